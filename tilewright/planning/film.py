"""Sizes of two pictures and of the motion between them, whatever device finds it.

    shapes   planes of a picture          sizes     luma, halved each time
    place    a field of motion            searched  sizes at which motion is looked for
    sums     fields halved down to 1 x 1  cells     8 x 8 of luma each

Plain arithmetic: needs no device.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from tilewright.remember import once

BORDER, SIDE, STEP, CELL = 16, 8, 4, 8  # of the host's loops, and of all kernels

Size = tuple[int, int]


@dataclass(frozen=True)
class Sizes:
    """Two pictures and their motion.

    shapes  rows and columns of their planes, luma first
    bits    of a sample
    sizes   of luma, halved each time
    finest  the number of the size at which motion is found
    """

    shapes: tuple[Size, ...]
    bits: int
    sizes: tuple[Size, ...]
    finest: int

    @property
    def bytes_each(self) -> int:
        """Of a sample."""
        return 1 if self.bits <= 8 else 2

    @property
    def place(self) -> Size:
        """Rows and columns of a field."""
        return self.sizes[self.finest]

    @property
    def searched(self) -> tuple[int, ...]:
        """Numbers of the sizes that motion is looked for at, from coarse to fine."""
        seen = [n for n in range(self.finest, len(self.sizes)) if min(self.sizes[n]) >= 2 * SIDE]
        return tuple(reversed(seen))

    @once
    def starts(self) -> tuple[int, ...]:
        """Where the planes of one picture begin, and where they end, in samples."""
        found = [0]
        for shape in self.shapes:
            found.append(found[-1] + prod(shape))
        return tuple(found)

    @once
    def sums(self) -> tuple[Size, ...]:
        """Sizes of sums, from the field's to 1 x 1."""
        found = [self.place]
        while max(found[-1]) > 1:
            rows, columns = found[-1]
            found.append((-(-rows // 2), -(-columns // 2)))
        return tuple(found)

    @property
    def cells(self) -> Size:
        """Of luma, 8 x 8 each."""
        rows, columns = self.sizes[0]
        return -(-rows // CELL), -(-columns // CELL)

    @property
    def images(self) -> tuple[tuple[str, Size], ...]:
        """What the largest pictures of planes are called, and how large they are: luma first."""
        rest = ((f"plane {n}", shape) for n, shape in enumerate(self.shapes) if n)
        return (("size 0", self.sizes[0]), *rest)

    @property
    def alike(self) -> int:
        """Samples that pictures are compared by at once, to know whether they repeat."""
        return prod(min(CELL, length) for length in self.sizes[0])

    def patches(self, number: int) -> Size:
        """Down and across, of a size."""
        rows, columns = self.sizes[number]
        return -(-(rows - SIDE) // STEP) + 1, -(-(columns - SIDE) // STEP) + 1

    def steps(self, shape: Size) -> Size:
        """Samples of luma for one of a plane, down and across."""
        down, across = (round(a / b) for a, b in zip(self.sizes[0], shape, strict=True))
        return down, across


def bordered(size: Size) -> int:
    """Samples of a picture with its border."""
    return (size[0] + 2 * BORDER) * (size[1] + 2 * BORDER)
