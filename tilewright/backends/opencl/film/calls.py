"""The launches of motion between two pictures, and the memory that they share: plain data.

    taking    taken, halved, repeated
    finding   tried, searched, spread a size; trusted; stroked, widened, counted, thinned, softened
    making    cleared, thrown, landed, gathered, settled; warped, doubted, mixed a plane

Each is a kernel of kernels/film/; needs no device.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod

from tilewright.backends.opencl.film.cut import Cut
from tilewright.facts.kernel import Defines
from tilewright.planning.film import BORDER, CELL, Size, Sizes, bordered

SHARE = "share of the time"  # the one argument that changes
_WHITE = 255.0  # light of the largest sample
_KEPT = 3 * 16  # bytes that `tried` leaves of a patch
_SPREAD = 4  # samples a piece of `spread`; 8 of those that find strokes

Value = int | float | str  # int, float, what lies in memory by its name, and SHARE


@dataclass(frozen=True, slots=True)
class Call:
    """One launch: a kernel, work-items across and down, those of a group, arguments."""

    kernel: str
    size: Size
    group: Size
    values: tuple[Value, ...]


class Calls:
    """All launches for pictures of such sizes, cut for a device."""

    def __init__(self, sizes: Sizes, cut: Cut, unsure: float) -> None:
        """`unsure`: the deviation from which on it is doubt."""
        self._sizes, self._cut, self._unsure = sizes, cut, unsure
        self.taking = tuple(self._taking())
        self.finding = (*self._searching(), *self._trusting())
        self.making = (*self._moving(), *self._mixing())

    def defines(self, kernel: str) -> Defines:
        """What a kernel is compiled with."""
        cut = self._cut
        if kernel in ("taken", "mixed"):
            return (("BYTES", self._sizes.bytes_each),)
        if kernel in ("tried", "searched"):
            tile = (("TILE", cut.tile),) if kernel == "searched" else ()
            return (("LANES", cut.lanes), ("BAND", cut.band), *tile)
        return (("SLICES", cut.slices),) if kernel in ("cleared", "thrown", "landed") else ()

    @property
    def parts(self) -> dict[str, int]:
        """Bytes of everything, by name."""
        sizes = self._sizes
        luma, place = prod(sizes.sizes[0]), prod(sizes.place)
        border, cells = bordered(sizes.sizes[0]), prod(sizes.cells)
        images = {f"size {n}": size for n, size in enumerate(sizes.sizes)} | dict(sizes.images)
        found = {name: 8 * bordered(size) for name, size in images.items()}
        most = max((prod(sizes.patches(n)) for n in sizes.searched), default=0)
        found |= {"kept": 2 * _KEPT * most, "found": 2 * 8 * most, "most": 4, "unsure": 4}
        found |= {f"field {n}": 16 * prod(sizes.sizes[n]) for n in (*sizes.searched, sizes.finest)}
        found |= {"trust": 8 * place, "strokes": 4 * border, "left": border, "mask": border}
        found |= {"counts": 4 * cells, "cells": 4 * cells, "moved": 12 * luma}
        found["landing"] = self._copies * 3 * 8 * place
        found |= {f"sums {n}": 12 * prod(size) for n, size in enumerate(sizes.sums)}
        found |= {f"through {n}": 8 * prod(size) for n, size in enumerate(sizes.sums)}
        whole = sizes.bytes_each * sizes.starts[-1]
        return found | {"samples": 2 * whole, "out": whole}

    @property
    def _copies(self) -> int:
        return max(1, 2 * self._cut.slices)

    def _each(self, kernel: str, columns: int, rows: int, *values: Value) -> Call:
        """A work-item a column and row."""
        group = self._cut.group
        return Call(kernel, (-(-columns // group) * group, rows), (group, 1), values)

    def _pieces(self, kernel: str, columns: int, rows: int, *values: Value) -> Call:
        """A work-item so many pieces of a row, or all."""
        if self._cut.long:
            return Call(kernel, (1, rows), (1, 1), values)
        return self._each(kernel, columns, rows, *values)

    def _taking(self) -> Iterator[Call]:
        sizes = self._sizes
        scale, apart = _WHITE / ((1 << sizes.bits) - 1), sizes.starts[-1]
        for (name, shape), begin in zip(sizes.images, sizes.starts, strict=False):
            values = (*shape, begin, apart, scale, "samples", name, "most")
            yield self._each("taken", *_bordered(shape), *values)
        for n, (larger, size) in enumerate(zip(sizes.sizes, sizes.sizes[1:], strict=False)):
            names = (f"size {n}", f"size {n + 1}")
            yield self._each("halved", *_bordered(size), *larger, *size, *names)
        rows, columns = sizes.sizes[0]
        across, down = columns // min(CELL, columns), rows // min(CELL, rows)
        yield self._each("repeated", across, down, rows, columns, "size 0", "most")

    def _searching(self) -> Iterator[Call]:
        sizes, coarse = self._sizes, ""
        for n in sizes.searched:
            (rows, columns), image, field = sizes.sizes[n], f"size {n}", f"field {n}"
            high, wide = patches = sizes.patches(n)
            known = (rows, columns, int(bool(coarse)), *patches)
            under = coarse or field
            yield self._of_patches("tried", -(-wide // self._cut.band), 2 * high,
                                   *known, image, under, "kept")  # fmt: skip
            for diagonal, first, count in self._diagonals(patches):
                yield self._of_patches("searched", count, 2, diagonal, first, *known,
                                       image, under, "kept", "found")  # fmt: skip
            values = (rows, columns, *patches, image, "found", field)
            yield self._pieces("spread", -(-columns // _SPREAD), 2 * rows, *values)
            coarse = field

    def _of_patches(self, kernel: str, groups: int, rows: int, *values: Value) -> Call:
        items = self._cut.items
        across = 1 if kernel == "tried" and items == 1 else groups * items
        return Call(kernel, (across, rows), (items, 1), values)

    def _diagonals(self, patches: Size) -> Iterator[tuple[int, int, int]]:
        """Blocks that wait for none but those before: number, the first band, how many bands."""
        bands, tiles = -(-patches[0] // self._cut.band), -(-patches[1] // self._cut.tile)
        for diagonal in range(bands + tiles - 1):
            first = max(0, diagonal - tiles + 1)
            yield diagonal, first, min(bands - 1, diagonal) - first + 1

    def _trusting(self) -> Iterator[Call]:
        sizes = self._sizes
        if sizes.finest in sizes.searched:
            rows, columns = sizes.place
            where = (f"size {sizes.finest}", f"field {sizes.finest}", "trust")
            yield self._each("trusted", columns, 2 * rows, rows, columns, *where)
        rows, columns = sizes.sizes[0]
        down, across = sizes.cells
        names: dict[str, tuple[str, ...]] = {
            "stroked": ("size 0", "strokes"),
            "widened": ("size 0", "strokes", "left"),
            "counted": ("left", "counts"),
            "thinned": ("counts", "left"),
            "softened": ("size 0", "left", "mask"),
        }
        for kernel, given in names.items():
            high = down if kernel in ("counted", "thinned") else rows
            yield self._pieces(kernel, across, high, rows, columns, *given)

    def _moving(self) -> Iterator[Call]:
        """Motion through every place at a share of the time."""
        sizes, slices = self._sizes, self._cut.slices
        rows, columns = sizes.place
        all_rows = self._copies * 3 * rows
        yield self._each("cleared", columns, all_rows, columns, "landing", "unsure")
        given = (rows, columns, SHARE, f"field {sizes.finest}", "trust", "landing")
        if slices:
            yield Call("thrown", (1, 2 * slices), (1, 1), given)
        else:
            yield self._each("thrown", columns, 2 * rows, *given)
        yield self._each("landed", columns, 3 * rows, columns, 3 * rows * columns, "landing",
                         "sums 0")  # fmt: skip
        last = len(sizes.sums) - 1
        for n, (size, (tall, wide)) in enumerate(zip(sizes.sums, sizes.sums[1:], strict=False)):
            yield self._each("gathered", wide, tall, *size, f"sums {n}", f"sums {n + 1}")
        for n in reversed(range(last + 1)):
            tall, wide = sizes.sums[n]
            names = (f"sums {n}", f"through {min(n + 1, last)}", f"through {n}")
            yield self._each("settled", wide, tall, tall, wide, int(n < last), *names)

    def _mixing(self) -> Iterator[Call]:
        sizes, luma = self._sizes, self._sizes.sizes[0]
        most = float((1 << sizes.bits) - 1)
        for (name, shape), begin in zip(sizes.images, sizes.starts, strict=False):
            rows, columns = shape
            steps = sizes.steps(shape)
            ratio = (step / (1 << sizes.finest) for step in steps)
            known: tuple[Value, ...] = (*shape, *sizes.place, *ratio, SHARE, *luma, *steps)
            where = (name, "through 0", "mask", "moved")
            yield self._pieces("warped", columns, rows, *known, *where)
            if begin == 0:
                down, across = sizes.cells
                known = (*shape, self._unsure, "moved", "cells", "unsure")
                yield self._each("doubted", across, down, *known)
            rates = (*sizes.cells, *(step / CELL for step in steps), most / _WHITE, most)
            values: tuple[Value, ...] = (
                *shape,
                SHARE,
                *rates,
                begin,
                name,
                "moved",
                "cells",
                "out",
            )
            yield self._each("mixed", columns, rows, *values)


def _bordered(size: Size) -> Size:
    """Columns and rows of both pictures of a size with their borders."""
    return size[1] + 2 * BORDER, 2 * (size[0] + 2 * BORDER)
