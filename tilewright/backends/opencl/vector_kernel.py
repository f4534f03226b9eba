"""VectorKernel: kernels that read whole 4-vectors, from zero-padded buffers or from images.

`dot4`, `coalesced` and the three image kernels differ in three facts: which side is transposed,
which side is an image, and how many elements of C a work-item keeps unless tuned. Those facts are
fields here; the lowering is one.

Where a side is an image, products that pass the device's largest image are cut into blocks; blocks
along k add to C in order.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from tilewright.backends.opencl import operands as laying
from tilewright.backends.opencl.lowering import (
    GROUP_AXIS,
    MULTIPLY_ADD_AXIS,
    UNROLL_AXIS,
    Block,
    arithmetic,
    blocks,
    computed,
    grid,
    ints,
    round_up,
    strided,
    tail,
    why_unsupported,
)
from tilewright.backends.opencl.operands import Padded, Source
from tilewright.backends.opencl.rules import preferences
from tilewright.facts.device import Device
from tilewright.facts.kernel import (
    Argument,
    Axis,
    Config,
    Image,
    Launch,
    Long,
    Raw,
    Resources,
    Scratch,
    Step,
    Texels,
    axis,
)
from tilewright.facts.problem import Problem


@dataclass(frozen=True, slots=True)
class Side:
    """How an operand is read: transposed first, then as a buffer or as an image of texels."""

    transposed: bool = False
    image: bool = False


@dataclass(frozen=True, slots=True)
class _Lowered:
    """One block of the product, or the store of its C: launches in order, and what they need."""

    launches: tuple[Launch, ...] = ()
    scratch: tuple[Scratch, ...] = ()
    images: tuple[Image, ...] = ()
    moved_bytes: int = 0


@dataclass(frozen=True, slots=True)
class VectorKernel:
    """`k_vector` is 4 where the kernel reads vectors along k, 1 where it steps k by one."""

    name: str
    a: Side
    b: Side
    micro_m: int = 4
    micro_n: int = 4
    k_vector: int = 4
    own_multiply_add: bool = False
    stores_image: bool = False
    axes: tuple[Axis, ...] = (axis("micro_m", 1, 2, 4, 8), axis("micro_n", 4, 8, 16))

    @property
    def _has_images(self) -> bool:
        return self.a.image or self.b.image

    def why_not(self, problem: Problem, device: Device) -> str | None:
        """Why it cannot take a problem there, if so."""
        if problem.k == 0:
            return "k == 0 leaves no vector to load"
        if self.own_multiply_add and problem.accumulate == "float16":
            return "dot() of half vectors is not in OpenCL C 1.2"
        return why_unsupported(problem, device, images=self._has_images)

    def configs(self, problem: Problem, device: Device) -> tuple[Config, ...]:
        """The device's own multiply-add first, the others behind it for the tuner."""
        prior = preferences(device).multiply_add
        ways = [prior] if self.own_multiply_add else [prior, *({0, 1, 2} - {prior})]
        stores = (0, 1) if self.stores_image else (0,)
        own = Config(micro_m=self.micro_m, micro_n=self.micro_n, vector=4)
        pairs = ((way, store) for store in stores for way in ways)
        return tuple(replace(own, multiply_add=way, image_c=store) for way, store in pairs)

    def space(self, problem: Problem, device: Device) -> tuple[Axis, ...]:
        """Micro-tiles, work-groups, unrolling, the multiply-add and where C is stored."""
        stores = (axis("image_c", 0, 1),) if self.stores_image else ()
        return (MULTIPLY_ADD_AXIS, GROUP_AXIS, UNROLL_AXIS, *self.axes, *stores)

    def resources(self, config: Config, problem: Problem) -> Resources:
        """One work-item is enough, unless the configuration brings a group."""
        return Resources(work_items=max(1, config.group_m * config.group_n))

    def lower(self, problem: Problem, device: Device, config: Config) -> Step:
        """Relayouts where an operand does not lie as wanted, then the product, block by block."""
        parts = [
            self._lower_block(problem, device, config, block, index)
            for index, block in enumerate(self._blocks(problem, device, config))
        ]
        return Step(
            self.name,
            config,
            tuple(launch for part in parts for launch in part.launches),
            laying.merge_scratch(*(part.scratch for part in parts)),
            tuple(image for part in parts for image in part.images),
            computed(problem, config.micro_m, config.micro_n, self.k_vector),
            sum(part.moved_bytes for part in parts),
        )

    def _blocks(self, problem: Problem, device: Device, config: Config) -> Iterator[Block]:
        """Images limit sides: texels along a row, rows along a column."""
        m_limit, n_limit, k_limit = problem.m, problem.n, problem.k
        width, height = 4 * device.image_width, device.image_height
        if self.a.image:
            m_limit, k_limit = min(m_limit, height), min(k_limit, width)
        if self.b.image:
            n_limit, k_limit = min(n_limit, width), min(k_limit, height)
        if config.image_c:
            m_limit, n_limit = min(m_limit, height), min(n_limit, width)
        return blocks(problem, m_limit, n_limit, k_limit)

    def _lower_block(
        self, problem: Problem, device: Device, config: Config, block: Block, index: int
    ) -> _Lowered:
        a_source, b_source = laying.sources(problem, block)
        # A transposed has a micro-tile's rows side by side, B its columns; k comes by fours.
        a_cols = config.micro_m if self.a.transposed else 4
        a, a_images = self._prepare(
            problem, device, a_source, self.a, (1, a_cols), f"a_image{index}"
        )
        # Kernels that step k by vectors read whole groups of four rows of B.
        b_sides = (1, 4) if self.b.transposed else (self.k_vector, config.micro_n)
        b, b_images = self._prepare(problem, device, b_source, self.b, b_sides, f"b_image{index}")
        store = _stored(problem, device, block, index) if config.image_c else _Lowered()
        operands = (
            *((Texels(a_images[0].name),) if a_images else a.arguments),
            *((Texels(b_images[0].name),) if b_images else b.arguments),
            *(Texels(image.name) for image in store.images),
        )
        multiply = self._multiply(problem, device, config, block, operands)
        return _Lowered(
            (*a.launches, *b.launches, multiply, *store.launches),
            a.scratch + b.scratch + store.scratch,
            a_images + b_images + store.images,
            a.moved_bytes + b.moved_bytes + store.moved_bytes,
        )

    def _prepare(
        self,
        problem: Problem,
        device: Device,
        source: Source,
        side: Side,
        multiples: tuple[int, int],
        image_name: str,
    ) -> tuple[Padded, tuple[Image, ...]]:
        """`multiples` of rows and columns to pad to; texels past an image's edge are zero."""
        laid = source.transposed if side.transposed else source
        if not side.image:
            return laying.padded(problem, device, laid, multiples), ()
        pitch = laying.image_pitch(device, laid.cols)
        result = laying.padded(problem, device, laid, (multiples[0], 4), leading=pitch)
        height = round_up(laid.rows, multiples[0])
        return result, (laying.image_on(problem, result, image_name, height, laid.cols),)

    def _multiply(
        self,
        problem: Problem,
        device: Device,
        config: Config,
        block: Block,
        operands: tuple[Argument, ...],
    ) -> Launch:
        extent = (-(-block.n // config.micro_n), -(-block.m // config.micro_m))
        size, local = grid(extent, device, config)
        own = ["image_c"] * self.stores_image + ["wide_sum"] * self.own_multiply_add
        return Launch(
            program=self.name,
            entry=self.name,
            defines=(
                *arithmetic(problem.dtype, problem.accumulate, config.multiply_add, block.k),
                *config.macros("micro_m", "micro_n", "unroll", *own),
            ),
            global_size=size,
            local_size=local,
            arguments=(
                *ints(block.m, block.n, -(-block.k // self.k_vector)),
                *operands,
                *tail(problem, block),
            ),
        )


def _stored(problem: Problem, device: Device, block: Block, index: int) -> _Lowered:
    """C stored as an image on scratch, and the launch that carries it to C's own strides."""
    pitch = laying.image_pitch(device, block.n)
    size = block.m * pitch * problem.itemsize
    laid = Padded("c_stored", 0, pitch)
    image = laying.image_on(problem, laid, f"c_image{index}", block.m, block.n, written=True)
    carry = laying.element_by_element(
        "carry",
        problem,
        device,
        (block.n, block.m),
        *ints(block.m, block.n),
        Raw(laid.name),
        Long(pitch),
        *strided("c", problem.c_row, problem.c_col, block.i, block.j),
    )
    return _Lowered((carry,), (Scratch(laid.name, size),), (image,), 2 * size)
