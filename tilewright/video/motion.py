"""Pictures between two others: where every sample goes, found both ways, and the two along that.

    luma of both -> sizes, halved each time -> motion there, motion back (`kernels/motion.py`)
                 -> motion through every place at a time between -> both moved, mixed
                    (`kernels/between.py`), for chroma and opacity along the same motion

A variational refinement after each size, as dense inverse search has it, took four fifths of the
time and 0.05 to 0.2 dB away; weights by which picture's motion is confirmed took 0.05 to 0.2 dB.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tilewright.arrays.array import NDArray
from tilewright.video.fusion import Fusion
from tilewright.video.look import Frame, Look
from tilewright.video.planes import flat, kernels_of
from tilewright.video.tables import LIGHT

_COARSEST = 24  # rows or columns of the coarsest size, at least
_HALF, _QUARTER = 400, 1600  # rows from which motion is found at half, and at a quarter the size
_REACH = 3  # samples from a stroke's end that belong to it
UNSURE = 32.0  # deviation between the two moved pictures, of 255, from which they disagree
_SURE = np.zeros((1, 1), np.float32)  # cells, where doubt has been weighed
SAME = 1.0  # mean difference of each 8 x 8, of 255: pictures that repeat


class Motion:
    """Memory for pictures of one look, and the motion between the last two that were given.

    fusion  says how much of which picture is right; without, the nearer in time is more so
    finest  of the sizes the largest at which motion is looked for; by the look where left out

    Needs Numba; raises DeviceError without.
    """

    def __init__(self, look: Look, fusion: Fusion | None = None, finest: int | None = None) -> None:
        self._look, self._fusion = look, fusion
        self._match, self._between = kernels_of("motion"), kernels_of("between")
        self._sizes = sizes_of(look)
        self._finest = finest_of(look, self._sizes) if finest is None else finest
        self._fusing: Any = kernels_of("fusing") if fusion is not None else None
        self._lumas = [[self._bordered(size) for size in self._sizes] for _ in range(2)]
        rest = look.shapes[1:]
        self._others = [[self._bordered(size) for size in rest] for _ in range(2)]
        place = self._sizes[self._finest]
        self._fields = [np.zeros((2, *place), np.float32) for _ in range(2)]
        self._trust = [np.zeros(place, np.float32) for _ in range(2)]
        self._mask = np.zeros(self._sizes[0], np.uint8)
        self._sums = [np.zeros((3, *place), np.float32)]
        while max(self._sums[-1].shape[1:]) > 1:
            rows, columns = self._sums[-1].shape[1:]
            self._sums.append(np.zeros((3, -(-rows // 2), -(-columns // 2)), np.float32))
        self._through = [np.zeros((2, *one.shape[1:]), np.float32) for one in self._sums]
        cell = self._between.CELL
        self._cells = np.zeros([-(-length // cell) for length in self._sizes[0]], np.float32)
        self._moved = [np.empty(look.height * look.width, np.float32) for _ in range(3)]

    def _bordered(self, size: tuple[int, int]) -> NDArray:
        border = 2 * self._match.BORDER
        return np.zeros((size[0] + border, size[1] + border), np.float32)

    def given(self, first: Frame, second: Frame) -> None:
        """Look at two pictures; `between` then makes those between them."""
        scale = np.float32(LIGHT / ((1 << self._look.bits) - 1))
        for frame, lumas, others in zip((first, second), self._lumas, self._others, strict=True):
            into = [lumas[0], *others]
            for plane, image in zip(frame.planes, into, strict=True):
                self._match.taken(*flat(plane), *plane.shape, scale, image)
            for size, image, larger in zip(self._sizes[1:], lumas[1:], lumas, strict=False):
                self._match.halved(larger, image, *size)

    def repeats(self) -> bool:
        """Whether the two are the same, but for what coding left."""
        border, cell = self._match.BORDER, self._between.CELL
        apart = np.abs(self._lumas[0][0] - self._lumas[1][0])[border:-border, border:-border]
        rows, columns = (max(1, length // cell) * min(cell, length) for length in apart.shape)
        parts = apart[:rows, :columns].reshape(rows // min(cell, rows), -1, columns)
        sums = parts.sum(1).reshape(len(parts), columns // min(cell, columns), -1).sum(-1)
        return bool(sums.max() < SAME * min(cell, rows) * min(cell, columns))

    def found(self) -> None:
        """Find motion between the two, both ways, and what stands still."""
        one, other = self._lumas
        for field, (a, b) in zip(self._fields, ((one, other), (other, one)), strict=True):
            self._searched(a, b, field)
        at, size = self._finest, self._sizes[self._finest]
        for n, (a, b) in enumerate(((one, other), (other, one))):
            if min(size) < 2 * self._match.SIDE:
                break  # too small to see anything move
            fields = self._fields[n], self._fields[1 - n]
            self._match.trusted(a[at], b[at], *size, *fields, self._trust[n])
        self._match.still(one[0], other[0], *self._sizes[0], _REACH, self._mask)

    def _searched(self, first: list[NDArray], second: list[NDArray], out: NDArray) -> None:
        side, step = self._match.SIDE, self._match.STEP
        found = np.zeros((2, 0, 0), np.float32)
        for level in range(len(self._sizes) - 1, self._finest - 1, -1):
            size = self._sizes[level]
            coarse, found = found, out if level == self._finest else np.zeros((2, *size), "f4")
            if min(size) < 2 * side:
                continue
            patches = np.empty((2, *(-(-(length - side) // step) + 1 for length in size)), "f4")
            weights = np.empty(size, np.float32)
            self._match.matched(first[level], second[level], *size, coarse, found, weights, patches)

    def between(self, share: float, out: tuple[NDArray, ...]) -> float:
        """Write planes of the picture at a share of the time, 0 to 1; how much of it is unsure."""
        self._settle(np.float32(share))
        most = np.float32((1 << self._look.bits) - 1)
        light = np.float32(most / LIGHT)
        doubt, place = 0.0, self._sizes[self._finest]
        said = None
        images = zip(*([lumas[0], *others] for lumas, others in _both(self)), strict=True)
        for number, ((a, b), plane) in enumerate(zip(images, out, strict=True)):
            rows, columns = plane.shape
            kept = [one[: rows * columns].reshape(rows, columns) for one in self._moved]
            ratio = _ratio(place, self._finest, self._sizes[0], plane.shape)
            steps = tuple(round(w / n) for w, n in zip(self._sizes[0], plane.shape, strict=True))
            self._between.warped(
                a, b, rows, columns, self._through[0], ratio, np.float32(share), self._mask,
                steps, *kept,
            )  # fmt: skip
            if number == 0:
                limit = np.float32(UNSURE)
                doubt = self._between.unsure(*kept, rows, columns, limit, self._cells)
            cells, each = self._cells, tuple(np.float32(n / self._between.CELL) for n in steps)
            if self._fusion is not None:
                where = (*kept, a, b, rows, columns, np.float32(share))
                said = self._fused(where, steps, self._fusion, said)
                cells, each = _SURE, (np.float32(0), np.float32(0))
            to, pitch = flat(plane)
            self._between.mixed(
                *kept, a, b, rows, columns, np.float32(share), cells, each, light, most, to, pitch
            )
        return doubt

    def _fused(
        self, where: tuple[Any, ...], steps: tuple[int, ...], fusion: Fusion, said: NDArray | None
    ) -> NDArray:
        """Moved pictures as the network wants them, which is asked for luma, the first plane."""
        each = tuple(np.float32(one / self._between.CELL) for one in steps)
        self._fusing.weighed(where[2], *where[5:], self._cells, each)
        if said is None:
            landed = self._sums[0], self._through[0], self._finest
            self._fusing.planes(*where, *landed, fusion.given)
            said = fusion()
        self._fusing.fused(*where, said, steps, self._sizes[0])
        return said

    def _settle(self, share: np.float32) -> None:
        """Motion through every place at a share of the time."""
        size = self._sizes[self._finest]
        self._sums[0][:] = 0
        for field, trust, part, sign in zip(
            self._fields, self._trust, (share, np.float32(1) - share), (1.0, -1.0), strict=True
        ):
            self._between.thrown(field, trust, *size, part, np.float32(sign), self._sums[0])
        for sums, smaller in zip(self._sums, self._sums[1:], strict=False):
            self._between.gathered(sums, smaller)
        coarse = np.zeros((2, 0, 0), np.float32)
        for sums, through in zip(reversed(self._sums), reversed(self._through), strict=True):
            self._between.settled(sums, coarse, through)
            coarse = through


def _both(of: Motion) -> Any:
    return zip(of._lumas, of._others, strict=True)


def sizes_of(look: Look) -> list[tuple[int, int]]:
    """Rows and columns of luma, halved as often as there is something to see."""
    found = [(look.height, look.width)]
    while min(found[-1]) // 2 >= _COARSEST:
        rows, columns = found[-1]
        found.append((rows // 2, columns // 2))
    return found


def finest_of(look: Look, sizes: list[tuple[int, int]]) -> int:
    """Which of them is the largest at which motion is looked for."""
    halvings = sum(min(look.height, look.width) >= one for one in (_HALF, _QUARTER))
    return min(halvings, len(sizes) - 1)


def _ratio(
    place: tuple[int, int], halvings: int, luma: tuple[int, int], plane: tuple[int, ...]
) -> tuple[np.float32, ...]:
    """Places of a field for a sample of a plane, down and across."""
    return tuple(
        np.float32(round(whole / length) / (1 << halvings))
        for whole, length in zip(luma, plane, strict=True)
    )
