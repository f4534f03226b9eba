"""Where everything lies that motion between two pictures needs on a GPU, in one piece of memory.

    samples | pictures by size | patches | fields | trust | strokes | sums | moved | cells
            | landing: whole numbers, how many cells are unsure | out
              '------- cleared -------------------------------'  '--' fetched with the number

Plain arithmetic: needs no GPU.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import prod

BORDER, SIDE, STEP, CELL = 16, 8, 4, 8  # of kernels/film/film.cuh
_ALIGNED = 256
_KEPT = 12  # floats that `tried` leaves of a patch
_LITTLE = 4096  # places of a size from which on all smaller ones are one launch

Size = tuple[int, int]


@dataclass(frozen=True)
class Plan:
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

    @cached_property
    def starts(self) -> tuple[int, ...]:
        """Where the planes of one picture begin, and where they end, in samples."""
        found = [0]
        for shape in self.shapes:
            found.append(found[-1] + prod(shape))
        return tuple(found)

    @cached_property
    def sums(self) -> tuple[Size, ...]:
        """Sizes of sums, from the field's to 1 x 1."""
        found = [self.place]
        while max(found[-1]) > 1:
            rows, columns = found[-1]
            found.append((-(-rows // 2), -(-columns // 2)))
        return tuple(found)

    @property
    def single(self) -> int:
        """How many of `sums` have launches of their own; the others share one."""
        return sum(prod(size) > _LITTLE for size in self.sums)

    @property
    def cells(self) -> Size:
        """Of luma, 8 x 8 each."""
        rows, columns = self.sizes[0]
        return -(-rows // CELL), -(-columns // CELL)

    def patches(self, number: int) -> Size:
        """Down and across, of a size."""
        rows, columns = self.sizes[number]
        return -(-(rows - SIDE) // STEP) + 1, -(-(columns - SIDE) // STEP) + 1

    @cached_property
    def offsets(self) -> dict[str, int]:
        """Where parts begin, in bytes; `end` is where all ends."""
        luma, place = prod(self.sizes[0]), prod(self.place)
        parts = {"samples": 2 * self.bytes_each * self.starts[-1]}
        images = {f"size {n}": size for n, size in enumerate(self.sizes)}
        images |= {f"plane {n}": size for n, size in enumerate(self.shapes) if n}
        for name, (rows, columns) in images.items():
            parts[name] = 8 * (rows + 2 * BORDER) * (columns + 2 * BORDER)
        most = max((prod(self.patches(n)) for n in self.searched), default=0)
        parts |= {"tried": 2 * 4 * _KEPT * most, "found": 2 * 8 * most, "begun": 4, "differ": 4}
        parts |= {f"field {n}": 16 * prod(self.sizes[n]) for n in (*self.searched, self.finest)}
        parts |= {"trust": 8 * place, "strokes": 4 * luma, "mask": luma, "left": luma}
        parts |= {"counts": 4 * prod(self.cells), "cells": 4 * prod(self.cells)}
        parts["sums"] = 4 * 3 * sum(map(prod, self.sums))
        parts["through"] = 4 * 2 * sum(map(prod, self.sums))
        parts["moved"] = 4 * 3 * luma
        found, at = {}, 0
        for name, size in parts.items():
            found[name] = at
            at += -(-size // _ALIGNED) * _ALIGNED
        # No gap: what is cleared ends with the number of cells, what is fetched begins with it.
        found["landing"], found["unsure"] = at, at + 8 * 3 * place
        found["out"] = found["unsure"] + 8
        found["end"] = found["out"] + self.bytes_each * self.starts[-1]
        return found
