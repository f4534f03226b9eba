"""Measures of single pictures. Luma comes as float32, 0 (black) to 255, or as codes where said.

Each is 0, or near it, for a picture without the fault, and grows with it; what is known of made-up
pictures stands in the tests.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tilewright.arrays.array import NDArray
from tilewright.video.analysis.small import ROWS, boxed, shrunk, worst_of
from tilewright.video.look import Frame
from tilewright.video.tables import LIGHT, lightness

GRID = 8  # of blocks in JPEG, MPEG and most of H.264
_STEP = 20.0  # larger ones are edges
_STRONG, _EDGES = 12.0, 0.02
_SLOPED = 3  # samples a side, below which there is no slope
_REACH, _SURE = 4.0, 1.02
_PATCH, _BRIGHT, _FEW = 3, 0.999, 0.01
VEILS = 9
_COMB = 8.0
_MATRICES = {1: (1.5748, 0.1873, 0.4681, 1.8556)}  # BT.709; others as BT.601
_OLD = (1.402, 0.344136, 0.714136, 1.772)


def blocks(luma: NDArray) -> float:
    """By how much steps at the seams of a grid of 8 exceed those inside it, 0 and more.

    As Wang, Bovik and Evans (2000), over seams of both directions, wherever the grid begins; steps
    above 20 are edges and count as 20.
    """
    found = []
    for axis in (0, 1):
        steps = np.minimum(np.abs(np.diff(luma, axis=axis)), _STEP).mean(1 - axis)
        if len(steps) < 2 * GRID:
            return 0.0
        means = np.array([steps[phase::GRID].mean() for phase in range(GRID)])
        seam = int(means.argmax())
        inside = np.delete(means, seam)
        # Of seven means the largest differs a little from the rest without any grid.
        found.append(max(0.0, float((means[seam] - inside.max()) / (inside.mean() + 0.1))))
    return float(np.mean(found))


def blur(luma: NDArray) -> float:
    """Deviation, in samples, of the Gaussian that the strongest edges look blurred by, 0 to 4.

    How much an edge's slope falls when it is blurred once more, by a deviation of 1, tells how
    blurred it was (Zhuo and Sim 2011); the median over the steepest 2 % of samples.
    """
    if min(luma.shape) < _SLOPED:
        return 0.0
    again = _gaussian(luma)
    slopes, less = _slope(luma), _slope(again)
    steepest = slopes >= max(float(np.quantile(slopes, 1 - _EDGES)), _STRONG / 4)
    if steepest.sum() < 16:
        return 0.0
    ratio = np.maximum(slopes[steepest] / np.maximum(less[steepest], 1e-3), _SURE)
    return float(min(_REACH, np.median(1 / np.sqrt(ratio**2 - 1))))


def _gaussian(luma: NDArray) -> NDArray:
    along = np.arange(-4.0, 5)
    taps = np.exp(-(along**2) / 2)
    taps = (taps / taps.sum()).astype(np.float32)
    found = luma
    for axis in (0, 1):
        ends = [(4, 4) if one == axis else (0, 0) for one in (0, 1)]
        padded = np.pad(found, ends, mode="edge")
        length = found.shape[axis]
        parts = (tap * np.take(padded, range(n, n + length), axis) for n, tap in enumerate(taps))
        found = np.asarray(sum(parts))
    return found


def _slope(luma: NDArray) -> NDArray:
    down = (luma[2:, 1:-1] - luma[:-2, 1:-1]) / 2
    right = (luma[1:-1, 2:] - luma[1:-1, :-2]) / 2
    found: NDArray = np.sqrt(down * down + right * right)
    return found


def banding(codes: NDArray) -> float:
    """Steps of one code between even stretches of four samples, a hundred samples each way.

    What a smooth ramp becomes with too few steps; noise, and dither, break the stretches up. As
    CAMBI (Netflix 2021) counts, on one scale. `codes` are a plane's own.
    """
    whole = codes.astype(np.int32)
    found = 0
    for axis in (0, 1):
        steps = np.diff(whole, axis=axis)
        length = steps.shape[axis]
        if length < 8:
            return 0.0
        still = steps == 0
        parts = [np.take(still, range(n, length - 6 + n), axis) for n in (0, 1, 2, 4, 5, 6)]
        middle = np.take(steps, range(3, length - 3), axis)
        found += int((np.logical_and.reduce(parts) & (np.abs(middle) == 1)).sum())
    return 100 * found / (2 * codes.size)


def combing(luma: NDArray) -> float:
    """The share, in hundredths, of samples that lie off both the line above and below, those alike.

    Lines of two fields taken one after the other, where something moved: over two lines each way
    the sign turns with every line.
    """
    if len(luma) < 5:
        return 0.0
    up = luma[1:-1] - luma[:-2]
    down = luma[1:-1] - luma[2:]
    apart = np.abs(luma[:-2] - luma[2:])
    off = (up * down > _COMB * _COMB) & (apart < _COMB)
    sign = np.sign(up)
    both = off[:-1] & off[1:] & (sign[:-1] != sign[1:])
    return 100 * float(both.mean())


def screen(codes: NDArray) -> float:
    """The share of samples that are as those to the right and below, of 0 to 1.

    Drawn by a computer most are; of a lens few are, even after compression.
    """
    if min(codes.shape) < 2:
        return 0.0
    here, right, below = codes[:-1, :-1], codes[:-1, 1:], codes[1:, :-1]
    return float(((here == right) & (here == below)).mean())


@dataclass(frozen=True, slots=True)
class Haze:
    """How much of a picture's light is haze's.

    share  of the light, 0 to 1: the median
    air    how light the haze itself is, 0 to 1
    veil   the share where the mean of luma round a sample is 0, 1/8 .. 1
    """

    share: float
    air: float
    veil: tuple[float, ...]


def dark_channel(frame: Frame) -> Haze:
    """Haze by the darkest colours.

    The least of red, green and blue within a patch is near 0 in clear pictures and the light of the
    haze in hazy ones (He, Sun and Tang 2009): its median, over the light of where it is most. Sky,
    snow and walls look like haze to it.
    """
    red, green, blue = colours(frame)
    least = worst_of(np.minimum(np.minimum(red, green), blue), _PATCH)
    grey = (red + green + blue) / 3
    air = float(grey[least >= np.quantile(least, _BRIGHT)].mean())
    if air < 1:
        return Haze(0.0, 0.0, (0.0,) * VEILS)
    shares = np.minimum(least / air, 1)
    places = boxed(grey, _PATCH) * ((VEILS - 1) / LIGHT)
    return Haze(float(np.median(shares)), min(1.0, air / LIGHT), _veil(shares, places))


def _veil(shares: NDArray, places: NDArray) -> tuple[float, ...]:
    """Medians by place; where too few samples are, what lies between the places round it."""
    found = {}
    for place in range(VEILS):
        near = np.abs(places - place) < 0.75
        if near.mean() > _FEW:
            found[place] = float(np.median(shares[near]))
    values = np.interp(range(VEILS), list(found), list(found.values()))
    return tuple(float(one) for one in np.maximum.accumulate(values))


def colours(frame: Frame) -> tuple[NDArray, NDArray, NDArray]:
    """Red, green and blue of a picture in about 120 rows, 0 to 255."""
    luma = lightness(frame)
    block = max(1, round(min(luma.shape) / ROWS))
    y = shrunk(luma, block)
    if frame.look.kind != "yuv":
        return y, y, y
    middle, code = 1 << (frame.look.bits - 1), LIGHT / ((1 << frame.look.bits) - 1)
    chroma = []
    for plane in frame.planes[1:3]:
        rows = np.linspace(0, plane.shape[0] - 1, y.shape[0]).astype(int)
        columns = np.linspace(0, plane.shape[1] - 1, y.shape[1]).astype(int)
        wide = np.float32(code * (1.0 if frame.look.range == 2 else 255 / 224))
        chroma.append((plane[np.ix_(rows, columns)].astype(np.float32) - middle) * wide)
    cb, cr = chroma
    from_red, green_cb, green_cr, from_blue = _MATRICES.get(frame.look.matrix, _OLD)
    found = (y + from_red * cr, y - green_cb * cb - green_cr * cr, y + from_blue * cb)
    red, green, blue = (one.clip(0, LIGHT) for one in found)
    return red, green, blue
