"""Opacity of a person before a plate: how much of every sample is the person's, 0 to 1.

    difference from the plate -> evidence (colours that the person wears are learned from the
    picture itself: what lies far from the plate) -> guided filter -> parts and gaps decided
    -> on rims: the share of the person's and the plate's colour -> guided filter

All but the rims is done at half the size, where chroma is. A single picture is seen; time comes
later (`smoothed` of stages/opacity.py).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tilewright.arrays.array import NDArray
from tilewright.video.look import Frame
from tilewright.video.planes import flat, kernels_of
from tilewright.video.tables import LIGHT, span

STRICT = 18.0  # squares over variances: further from the plate is somebody
_MOST = 8.0  # of evidence
_REACH, _EPS = 4, 36.0  # of the guided filter of evidence: places of half the size, codes squared
_RIM, _COLOURS, _RIDGE = 2, 6, 6.0
_SMALL, _GAP, _AGAINST = 3e-4, 0.02, -5.0
_NEAR, _DOUBT, _WEAKLY, _BESIDE = 4, -5.5, -3.5, 6  # reach in places, evidence, evidence, places
_ROUGH = 0.03  # of a step between neighbours, what a difference may be besides noise
_ALL, _SEEDS, _AGAINST_SURELY = 0.7, -3.0, 6.5
_GAINS, _SAME = (0.6, 1.6), 0.02
_LEAST, _NOISIEST = 0.7, 8.0  # deviation of a difference's noise, of 255


@dataclass(frozen=True, slots=True, eq=False)
class Halves:
    """A picture as mattes see it.

    luma     float32 [rows, columns], 0 to 255
    colours  float32 [3, rows / 2, columns / 2]: luma, and chroma of 0 to 255 where it is
    """

    luma: NDArray
    colours: NDArray


def halves(frame: Frame) -> Halves:
    """A picture with a plane of luma, as `Halves`."""
    look = frame.look
    tall, wide = -(-look.height // 2), -(-look.width // 2)
    luma = np.empty((look.height, look.width), np.float32)
    colours = np.full((3, tall, wide), 128, np.float32)
    black, white = span(look)
    scale, deep = np.float32(LIGHT / white), np.float32(1 / (1 << (look.bits - 8)))
    run = kernels_of("mattes").quartered
    shift = np.float32(-black * LIGHT / white)
    first = flat(frame.planes[0])
    run(*first, look.height, look.width, 1, 1, scale, shift, luma)
    run(*first, look.height, look.width, 2, 2, scale, shift, colours[0])
    for number in (1, 2) if look.kind == "yuv" else ():
        plane = frame.planes[number]
        down, across = 2 - look.halved[1], 2 - look.halved[0]
        run(*flat(plane), *plane.shape, down, across, deep, np.float32(0), colours[number])
    return Halves(luma, colours)


def noise_between(seen: Halves, plate: Halves) -> NDArray:
    """The deviation of the noise of the difference, of each colour: by the quarter that differs
    least, as the rest may be somebody."""
    found = []
    for one, other in zip(seen.colours, plate.colours, strict=True):
        apart = np.abs(one[::2, ::2] - other[::2, ::2])
        found.append(float(np.quantile(apart, 0.25)) / 0.3186)
    return np.asarray(found, np.float32).clip(_LEAST, _NOISIEST)


def levelled(seen: Halves, plate: Halves) -> Halves:
    """The plate as light as the picture, where a lens adapted: by the median of ratios of luma."""
    ratios = seen.colours[0, ::4, ::4] / np.maximum(plate.colours[0, ::4, ::4], 8)
    gain = np.float32(np.median(ratios).clip(*_GAINS))
    if abs(gain - 1) < _SAME:
        return plate
    colours = plate.colours * gain
    colours[1:] += 128 * (1 - gain)
    return Halves(plate.luma * gain, colours)


def loosened(plate: Halves, spread: NDArray) -> NDArray:
    """How many times more noise there is where the plate is rough: codecs spend fewer bits there,
    and a camera that trembles moves it."""
    rough = np.empty(plate.colours.shape[1:], np.float32)
    kernels_of("mattes").roughness(plate.colours, rough)
    grown = np.empty_like(rough)
    kernels_of("mattes").grown(rough, 1, grown)
    found: NDArray = np.sqrt(1 + (_ROUGH * grown / spread[0]) ** 2)
    return found


@dataclass(frozen=True, slots=True, eq=False)
class Found:
    """What was found in a picture; all but the first of half the size.

    alpha     float32 [rows, columns], 0 to 1
    sure      1 where somebody is
    evidence  for that, -8 to 8
    own       [3, ...]: somebody's colours near by, where `there` is no 0
    plate     what lies behind, as light as the picture
    lost      whether the picture is unlike its plate nearly all over
    """

    alpha: NDArray
    sure: NDArray
    evidence: NDArray
    own: NDArray
    there: NDArray
    plate: Halves
    lost: bool


def matte(seen: Halves, plate: Halves, spread: NDArray | None = None) -> Found:
    """A picture's opacity before a plate.

    spread  the deviation of each colour's noise, where it is known: of a wall in one colour, which
            nobody wears. None finds it, and somebody may wear the colours of the plate
    """
    run = kernels_of("mattes")
    plate = levelled(seen, plate)
    known, spread = spread is not None, noise_between(seen, plate) if spread is None else spread
    shape = seen.colours.shape[1:]
    raw, apart, smooth, mask = (np.empty(shape, np.float32) for _ in range(4))
    run.evidence(
        seen.colours, plate.colours, spread, loosened(plate, spread), np.float32(STRICT),
        np.float32(_MOST), raw, apart,
    )  # fmt: skip
    run.guided(seen.colours[0], raw, _REACH, np.float32(_EPS), smooth)
    count = raw.size
    run.decided(smooth, raw, int(_SMALL * count), int(_GAP * count), _AGAINST, mask)
    if not known:
        _alike(raw, smooth, mask)
    return _rims(seen, plate, spread, smooth, mask)


def closed(found: Found) -> tuple[NDArray, float]:
    """Opacity that leaves nobody open, and how much of the picture that adds to what is sure.

    What evidence is not plainly against is somebody's where it is joined to what is sure or near
    it. Where nearly all of a picture is unlike its plate that has failed, and all is covered.
    """
    run, sure = kernels_of("layers"), found.sure
    if found.lost:
        return np.ones_like(found.alpha), 1.0
    weak = (found.evidence > -_AGAINST_SURELY).astype(np.float32)
    joined, whole = np.empty_like(sure), np.empty_like(found.alpha)
    run.reached(np.maximum(sure, found.evidence > _SEEDS), weak, joined)
    run.spread(joined, whole)
    return np.maximum(found.alpha, whole), float(joined.mean() - sure.mean())


def _alike(raw: NDArray, smooth: NDArray, mask: NDArray) -> None:
    """Add to `mask` what lies beside it and looks as the plate does in somebody's own colours.

    There, evidence speaks for nobody, but weakly: the plate alone would look like something that
    nobody wears. What speaks against a place is averaged over those that speak against, so that a
    sure place beside it does not make up for them: gaps between strands stay.
    """
    run = kernels_of("mattes")
    doubt, near, kept = (np.empty_like(mask) for _ in range(3))
    run.doubted(raw, mask, _NEAR, doubt)
    weak = ((smooth > _WEAKLY) & (doubt > _DOUBT) & (mask == 0)).astype(np.float32)
    run.grown(1 - weak, 1, near)
    run.grown(1 - near, 1, kept)  # without what is thinner than three places
    weak *= kept
    for _ in range(_BESIDE):
        run.grown(mask, 1, near)
        np.maximum(mask, near * weak, out=mask)
    run.decided(mask - np.float32(0.5), raw, 0, int(_GAP * raw.size), _AGAINST, mask)


def _rims(seen: Halves, plate: Halves, spread: NDArray, smooth: NDArray, mask: NDArray) -> Found:
    run = kernels_of("mattes")
    outer, inside, prior = (np.empty_like(mask) for _ in range(3))
    run.grown(mask, _RIM, outer)
    run.grown(1 - mask, _RIM, inside)
    rim = outer * inside
    core = 1 - inside
    own = np.empty_like(seen.colours)
    there = run.inner(seen.colours, mask, core, smooth, _COLOURS, own)
    run.boxed(mask, 1, prior)
    alpha = np.empty_like(seen.luma)
    run.shared(
        seen.luma, seen.colours, plate.luma, plate.colours, own, there, mask, prior, rim,
        spread, np.float32(_RIDGE), alpha,
    )  # fmt: skip
    lost = float(mask.mean()) > _ALL or float(spread[0]) >= _NOISIEST
    return Found(alpha, mask, smooth, own, there, plate, lost)
