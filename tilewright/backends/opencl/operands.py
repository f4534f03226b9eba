"""Operands as kernels want them: padded to whole vectors, transposed, or laid out as images.

Pure functions from numbers to `Launch`, `Scratch` and `Image` records, as in lowering.py.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from tilewright.backends.opencl.lowering import Block, grid, ints, round_up, types
from tilewright.facts.device import Device
from tilewright.facts.kernel import Argument, Image, Launch, Long, Operand, Raw, Scratch, Texels
from tilewright.facts.problem import Problem


@dataclass(frozen=True, slots=True)
class Padded:
    """An operand as a vector kernel wants it: where it lies, its leading dimension, what to run."""

    name: str
    offset: int
    leading: int
    launches: tuple[Launch, ...] = ()
    scratch: tuple[Scratch, ...] = ()
    moved_bytes: int = 0
    images: tuple[Image, ...] = ()

    def has_whole_vectors(self, problem: Problem) -> bool:
        """Whether every four elements from the start of a row are aligned, to 16 bytes at most."""
        starts = problem.aligned or bool(self.scratch)
        return starts and problem.itemsize <= 4 and self.offset % 4 == self.leading % 4 == 0

    @property
    def arguments(self) -> tuple[Argument, ...]:
        """The image, or pointer, offset and leading dimension."""
        if self.images:
            return tuple(Texels(image.name) for image in self.images)
        return (Operand(self.name, self.offset), Long(self.leading))


@dataclass(frozen=True, slots=True)
class Source:
    """A block of a caller's operand: sizes, first element, strides in elements."""

    name: str
    rows: int
    cols: int
    offset: int
    row: int
    col: int

    @property
    def transposed(self) -> Source:
        """The same elements, rows and columns swapped."""
        return Source(self.name, self.cols, self.rows, self.offset, self.col, self.row)

    @property
    def argument(self) -> tuple[Argument, ...]:
        """Pointer, offset and strides."""
        return Operand(self.name, self.offset), Long(self.row), Long(self.col)


def sources(problem: Problem, block: Block) -> tuple[Source, Source]:
    """The block's parts of A and of B."""
    at_a = block.i * problem.a_row + block.depth * problem.a_col
    at_b = block.depth * problem.b_row + block.j * problem.b_col
    a = Source("a", block.m, block.k, at_a, problem.a_row, problem.a_col)
    return a, Source("b", block.k, block.n, at_b, problem.b_row, problem.b_col)


def padded(
    problem: Problem,
    device: Device,
    source: Source,
    multiples: tuple[int, int],
    leading: int | None = None,
) -> Padded:
    """`source` row-major, its rows and columns padded to `multiples`.

    Used where it lies when it already is so; otherwise one relayout launch into scratch, with
    `leading` as its leading dimension (an image's row pitch) where one is given.
    """
    row_multiple, col_multiple = multiples
    fits = source.cols % col_multiple == source.rows % row_multiple == 0
    if leading is None and source.col == 1 and fits:
        return Padded(source.name, source.offset, source.row)
    rows, cols = round_up(source.rows, row_multiple), round_up(source.cols, col_multiple)
    leading = leading or cols
    name = f"{source.name}_padded"
    launch = element_by_element(
        "relayout",
        problem,
        device,
        (cols, rows),
        *ints(source.rows, source.cols),
        *source.argument,
        *ints(rows, cols),
        Raw(name),
        Long(leading),
    )
    bytes_ = rows * leading * problem.itemsize
    moved = source.rows * source.cols * problem.itemsize + bytes_
    return Padded(name, 0, leading, (launch,), (Scratch(name, bytes_),), moved)


def element_by_element(
    program: str, problem: Problem, device: Device, extent: tuple[int, int], *arguments: Argument
) -> Launch:
    """A launch of a program that moves one element a work-item."""
    size, local = grid(extent, device)
    return Launch(program, program, types(problem), size, local, arguments)


def image_pitch(device: Device, cols: int) -> int:
    """Leading dimension in elements of an image of `cols` elements a row on this device."""
    texels = round_up(round_up(cols, 4) // 4, max(1, device.image_pitch))
    return texels * 4


def as_image(
    problem: Problem, laid: Padded, name: str, rows: int, cols: int, *, written: bool = False
) -> Padded:
    """The same, read or written as an image of `rows` x `cols` elements on its scratch."""
    width, pitch = round_up(cols, 4) // 4, laid.leading * problem.itemsize
    image = Image(name, laid.name, width, rows, pitch, problem.dtype, written)
    return replace(laid, images=(image,))


def merge_scratch(*parts: tuple[Scratch, ...]) -> tuple[Scratch, ...]:
    """Scratch of several blocks: one buffer a name, as large as the largest needs."""
    sizes: dict[str, int] = {}
    for scratch in (item for part in parts for item in part):
        sizes[scratch.name] = max(sizes.get(scratch.name, 0), scratch.bytes)
    return tuple(Scratch(name, size) for name, size in sizes.items())
