"""Pictures through tables: luma by (mean, value - mean, difference), chroma by a curve of the mean.

A table says what becomes of a sample that lies so far from the mean round it, where that mean is so
light, and the mean of its nearest nine lies so far from that. Values rise along the first two axes,
so a lighter sample never comes out darker; what lies between places is mixed of eight. Samples are
rounded by an ordered dither (Bayer 1973), the same in every picture, so that ramps have no bands
and nothing flickers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from tilewright.arrays.array import NDArray
from tilewright.video.look import FULL_RANGE, Frame, Look
from tilewright.video.planes import blank, flat, kernels_of

MIDDLES = 49  # places of the mean, at squares
LIGHT = 255.0  # white; black is 0: the units that tables are made in, whatever a film's bits
# Of means: 0 to 255, dense in the dark.
PLACES = LIGHT * np.linspace(0, 1, MIDDLES) ** 2


@dataclass(frozen=True, slots=True, eq=False)
class Table:
    """What becomes of samples, in units of 0 (black) to 255 (white).

    values  [MIDDLES, apart, near]: at means of PLACES, at value - mean from -apart to apart, at
            (mean of 3 x 3) - mean from -near to near
    apart   how far the second axis reaches, at most
    near    how far the third does
    radius  the mean is of (2 * radius + 1)² samples
    gains   [MIDDLES]: how much further from grey chroma is
    """

    values: NDArray
    apart: float
    near: float
    radius: int
    gains: NDArray

    def __post_init__(self) -> None:
        if (np.diff(self.values, axis=0) < 0).any() or (np.diff(self.values, axis=1) < 0).any():
            raise ValueError("a table has to rise with the mean and with the value")


def rising(values: NDArray) -> NDArray:
    """The nearest table above that rises along the first two axes."""
    return np.maximum.accumulate(np.maximum.accumulate(values, axis=0), axis=1)


def span(look: Look) -> tuple[float, float]:
    """The code of black, and how many codes white lies above it."""
    most = float((1 << look.bits) - 1)
    if look.range == FULL_RANGE:
        return 0.0, most
    return float(16 << (look.bits - 8)), float(219 << (look.bits - 8))


def lightness(frame: Frame) -> NDArray:
    """A picture's luma as float32, 0 (black) to 255 (white)."""
    black, wide = span(frame.look)
    found: NDArray = (frame.planes[0].astype(np.float32) - black) * np.float32(LIGHT / wide)
    return found


class Toned:
    """A look's pictures, each through the table of its time; `at` gives it, None for none."""

    def __init__(self, look: Look, at: Callable[[Frame], Table | None]) -> None:
        self._look, self._at = look, at
        self._run = kernels_of("tables")
        self._dither = _bayer()
        self._table: Table | None = None
        self._ready: tuple[Any, ...] = ()
        shape = look.shapes[1] if look.kind == "yuv" else (0, 0)
        self._means = np.zeros(shape, np.float32)

    def __call__(self, window: Any) -> tuple[Frame, ...]:
        """The picture of a window, in new memory where a table is its own."""
        frame: Frame = window.frame
        table = self._at(frame)
        if table is None:
            return (frame,)
        out = blank(frame, self._look)
        black, wide = span(self._look)
        light = (np.float32(black), np.float32(1 / wide))
        most = np.float32((1 << self._look.bits) - 1)
        if table is not self._table:
            self._table, self._ready = table, _scaled(table, black, wide)
        source, into = flat(frame.planes[0]), flat(out.planes[0])
        self._run.toned(
            *source, *frame.planes[0].shape, *into, *self._ready, self._dither, most,
            self._means, self._look.halved,
        )  # fmt: skip
        chroma = 2 if self._look.kind == "yuv" else 0
        gains = table.gains.astype(np.float32)
        for number, (plane, to) in enumerate(zip(frame.planes[1:], out.planes[1:], strict=True)):
            if number >= chroma:
                to[...] = plane
                continue
            self._run.tinted(*flat(plane), *plane.shape, *flat(to), self._means, gains, light, most)
        return (out,)


def _scaled(table: Table, black: float, wide: float) -> tuple[Any, ...]:
    """A table in a film's codes, as the loops take it."""
    code = wide / LIGHT
    counts = table.values.shape
    step = 2 * table.apart * code / (counts[1] - 1)
    near = 2 * table.near * code / (counts[2] - 1)
    values = (table.values * code + black).astype(np.float32).reshape(-1)
    reach = (np.float32(step), np.float32(1 / step), np.float32(1 / near))
    return values, counts, table.radius, (np.float32(black), np.float32(1 / wide)), reach


def _bayer() -> NDArray:
    """Bayer's 8 x 8 thresholds, 1/128 to 127/128."""
    found = np.zeros((1, 1))
    for _ in range(3):
        found = np.block([[4 * found, 4 * found + 2], [4 * found + 3, 4 * found + 1]])
    thresholds: NDArray = ((found + 0.5) / found.size).astype(np.float32)
    return thresholds


@dataclass(frozen=True, slots=True)
class Key:
    """What a film's table is made of at a time, in seconds; `cut` where a scene begins with it."""

    time: float
    values: tuple[float, ...]
    cut: bool = False


def between(keys: tuple[Key, ...], time: Fraction) -> tuple[float, ...]:
    """The values of a time: those of the two keys round it, mixed; across a cut those before."""
    moment = float(time)
    after = next((n for n, key in enumerate(keys) if key.time > moment), len(keys))
    if after in (0, len(keys)) or keys[after].cut:
        return keys[max(0, after - 1)].values
    low, high = keys[after - 1], keys[after]
    share = (moment - low.time) / (high.time - low.time)
    return tuple(a + share * (b - a) for a, b in zip(low.values, high.values, strict=True))
