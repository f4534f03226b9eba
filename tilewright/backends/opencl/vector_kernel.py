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
    chains,
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
    Launch,
    Long,
    Raw,
    Resources,
    Scratch,
    Step,
    axis,
)
from tilewright.facts.problem import Problem


@dataclass(frozen=True, slots=True)
class Side:
    """How an operand is read: transposed first, then as a buffer or as an image of texels."""

    transposed: bool = False
    image: bool = False


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
        launches: list[Launch] = []
        parts: list[Padded] = []
        for index, block in enumerate(self._blocks(problem, device, config)):
            a, b, *stored = laid = self._laid(problem, device, config, block, index)
            operands = tuple(argument for one in laid for argument in one.arguments)
            aligned = preferences(device).aligned_loads == 1 and all(
                one.images or one.has_whole_vectors(problem) for one in laid[:2]
            )
            multiply = self._multiply(problem, device, config, block, operands, aligned=aligned)
            launches += [*a.launches, *b.launches, multiply]
            launches += [launch for one in stored for launch in one.launches]
            parts += laid
        return Step(
            self.name,
            config,
            tuple(launches),
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

    def _laid(
        self, problem: Problem, device: Device, config: Config, block: Block, index: int
    ) -> list[Padded]:
        """A and B of a block, and C where it is stored as an image."""
        a_source, b_source = laying.sources(problem, block)
        # A transposed has a micro-tile's rows side by side, B its columns; k comes by fours.
        a_cols = config.micro_m if self.a.transposed else 4
        a = self._prepare(problem, device, a_source, self.a, (1, a_cols), f"a_image{index}")
        # Kernels that step k by vectors read whole groups of four rows of B.
        b_sides = (1, 4) if self.b.transposed else (self.k_vector, config.micro_n)
        b = self._prepare(problem, device, b_source, self.b, b_sides, f"b_image{index}")
        return [a, b, _stored(problem, device, block, index)] if config.image_c else [a, b]

    def _prepare(
        self,
        problem: Problem,
        device: Device,
        source: Source,
        side: Side,
        multiples: tuple[int, int],
        image_name: str,
    ) -> Padded:
        """`multiples` of rows and columns to pad to; texels past an image's edge are zero."""
        laid = source.transposed if side.transposed else source
        if not side.image:
            return laying.padded(problem, device, laid, multiples)
        pitch = laying.image_pitch(device, laid.cols)
        result = laying.padded(problem, device, laid, (multiples[0], 4), leading=pitch)
        height = round_up(laid.rows, multiples[0])
        return laying.as_image(problem, result, image_name, height, laid.cols)

    def _multiply(
        self,
        problem: Problem,
        device: Device,
        config: Config,
        block: Block,
        operands: tuple[Argument, ...],
        *,
        aligned: bool,
    ) -> Launch:
        extent = (-(-block.n // config.micro_n), -(-block.m // config.micro_m))
        size, local = grid(extent, device, config)
        own = ["image_c"] * self.stores_image + ["wide_sum"] * self.own_multiply_add
        return Launch(
            program=self.name,
            entry=self.name,
            defines=(
                *arithmetic(problem.dtype, problem.accumulate, config.multiply_add),
                *chains(problem.dtype, problem.accumulate, block.k),
                *config.macros("micro_m", "micro_n", "unroll", *own),
                ("ALIGNED", int(aligned)),
                ("ASIDE", preferences(device).sums_aside),
            ),
            global_size=size,
            local_size=local,
            arguments=(
                *ints(block.m, block.n, -(-block.k // self.k_vector)),
                *operands,
                *tail(problem, block),
            ),
        )


def _stored(problem: Problem, device: Device, block: Block, index: int) -> Padded:
    """C stored as an image on scratch, and the launch that carries it to C's own strides."""
    pitch = laying.image_pitch(device, block.n)
    size = block.m * pitch * problem.itemsize
    name = "c_stored"
    carry = laying.element_by_element(
        "carry",
        problem,
        device,
        (block.n, block.m),
        *ints(block.m, block.n),
        Raw(name),
        Long(pitch),
        *strided("c", problem.c_row, problem.c_col, block.i, block.j),
    )
    laid = Padded(name, 0, pitch, (carry,), (Scratch(name, size),), 2 * size)
    return laying.as_image(problem, laid, f"c_image{index}", block.m, block.n, written=True)
