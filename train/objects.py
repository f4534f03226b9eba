"""Small objects drawn for a detector to learn: balls, birds, drones, signs, and what is none.

Each is a picture of SIDE x SIDE with opacity, drawn four times as large and averaged, its longer
side filling the picture but for a border. All of it is made up: no photograph of such an object is
in it, and a net that learns from them knows drawn ones ("synthetic"). What is none of the kinds
(sticks, letters, stars, leaves, cut-outs of photographs) teaches that not all that was pasted
counts.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tilewright.video.detection.kinds import KINDS
from train.photographs import NDArray

SIDE, BORDER = 48, 2
NONE = len(KINDS)  # the number of what is none of them
_LARGE = 4 * SIDE
_MIDDLE = _LARGE / 2
Point = tuple[float, float]
Chance = np.random.Generator


class Canvas:
    """A picture with opacity, in coordinates of -1 to 1 that may be turned and squeezed."""

    def __init__(self, angle: float = 0.0, squeeze: float = 1.0) -> None:
        from PIL import Image, ImageDraw

        self.picture = Image.new("RGBA", (_LARGE, _LARGE))
        self._draw = ImageDraw.Draw(self.picture)
        self._turn = np.array(
            [[math.cos(angle), -math.sin(angle)], [math.sin(angle), math.cos(angle)]]
        ) @ np.diag([1.0, squeeze])

    def _placed(self, points: Sequence[Point]) -> list[Point]:
        found = _MIDDLE + 0.7 * _MIDDLE * (np.asarray(points) @ self._turn.T)
        return [(float(x), float(y)) for x, y in found]

    def shape(self, points: Sequence[Point], colour: tuple[int, ...]) -> None:
        """A filled polygon."""
        self._draw.polygon(self._placed(points), fill=colour)

    def line(self, points: Sequence[Point], colour: tuple[int, ...], width: float) -> None:
        """A line through points, round at its joints."""
        wide = max(1, round(width * _MIDDLE))
        self._draw.line(self._placed(points), fill=colour, width=wide, joint="curve")

    def disc(
        self, x: float, y: float, radius: float, colour: tuple[int, ...], flat: float = 1.0
    ) -> None:
        """An ellipse, `flat` times as high as wide."""
        angles = np.linspace(0, 2 * math.pi, 40)
        around = [
            (x + radius * math.cos(a), y + flat * radius * math.sin(a)) for a in angles.tolist()
        ]
        self.shape(around, colour)


def corners(count: int, radius: float = 1.0, begin: float = -math.pi / 2) -> list[Point]:
    """A regular polygon's."""
    angles = [begin + 2 * math.pi * n / count for n in range(count)]
    return [(radius * math.cos(a), radius * math.sin(a)) for a in angles]


def _colour(chance: Chance, low: int = 0, high: int = 256) -> tuple[int, ...]:
    return tuple(int(v) for v in chance.integers(low, high, 3))


def _grey(chance: Chance, low: int, high: int) -> tuple[int, ...]:
    base = int(chance.integers(low, high))
    return tuple(int(np.clip(base + chance.integers(-12, 13), 0, 255)) for _ in range(3))


def _within(
    chance: Chance, low: tuple[int, int, int], high: tuple[int, int, int]
) -> tuple[int, ...]:
    return tuple(int(v) for v in chance.integers(low, high))


def ball(chance: Chance) -> Canvas:
    """Plain, two-coloured, striped or spotted; light from above."""
    canvas = Canvas(chance.uniform(0, 2 * math.pi))
    base = _colour(chance) if chance.random() < 0.7 else _grey(chance, 200, 256)
    canvas.disc(0, 0, 1, base)
    other, kind = _colour(chance), chance.integers(4)
    if kind == 1:
        half = [(math.cos(a), math.sin(a)) for a in np.linspace(0, math.pi, 24).tolist()]
        canvas.shape(half, other)
    elif kind == 2:
        for bend in (-0.5, 0.0, 0.5):
            arc = [(bend * math.cos(a), math.sin(a)) for a in np.linspace(-1.5, 1.5, 20).tolist()]
            canvas.line(arc, other, 0.08)
    elif kind == 3:
        dark = _grey(chance, 0, 60)
        canvas.shape(corners(5, 0.38), dark)
        for x, y in corners(5, 0.86):
            canvas.disc(x, y, 0.2, dark)
    return canvas


def shaded(pixels: NDArray, chance: Chance) -> NDArray:
    """A ball's light and shadow, over a drawn disc [side, side, 4]."""
    y, x = np.mgrid[: pixels.shape[0], : pixels.shape[1]] / _MIDDLE - 1
    from_side, from_above = chance.uniform(-0.5, 0.5), chance.uniform(-0.7, -0.2)
    light = 1.15 - chance.uniform(0.4, 0.9) * np.hypot(x - from_side, y - from_above) ** 2 / 1.5
    shine = np.exp(-(np.hypot(x - from_side, y - from_above) ** 2) * 30) * chance.uniform(0, 160)
    pixels[..., :3] = (pixels[..., :3] * light[..., None] + shine[..., None]).clip(0, 255)
    return pixels


def bird(chance: Chance) -> Canvas:
    """Wings up, level or down, seen from the front, the side or above."""
    canvas = Canvas(chance.uniform(-0.6, 0.6), chance.uniform(0.8, 1.0))
    body = _grey(chance, 0, 90) if chance.random() < 0.65 else _grey(chance, 190, 256)
    wing = tuple(int(np.clip(v + chance.integers(-45, 46), 0, 255)) for v in body)
    lift, span = chance.uniform(-0.9, 0.9), chance.uniform(0.75, 1.0)
    bent, deep = chance.uniform(0.1, 0.45), chance.uniform(0.22, 0.4)
    for side in (-1, 1):
        tip = (side * span, -lift + chance.uniform(-0.1, 0.1))
        elbow = (side * span * 0.5, -lift * 0.6 - bent)
        canvas.shape([(0, -deep / 2), elbow, tip, (side * span * 0.45, elbow[1] + deep), (0, deep)],
                     wing)  # fmt: skip
    side = chance.choice([-1.0, 1.0])
    long = chance.uniform(0.3, 0.6)
    canvas.disc(0, 0.05, long, body, chance.uniform(0.35, 0.6))
    canvas.disc(side * long, -0.03, 0.17, body)
    canvas.shape([(-side * long * 0.7, 0), (-side * long * 1.7, -0.1), (-side * long * 1.6, 0.2)],
                 body)  # fmt: skip
    if chance.random() < 0.5:
        beak = (230, 150, 40)
        canvas.shape([(side * (long + 0.12), -0.08), (side * (long + 0.34), 0.0),
                      (side * (long + 0.12), 0.05)], beak)  # fmt: skip
    return canvas


def drone(chance: Chance) -> Canvas:
    """Four arms or six, a body, turning rotors; from above or from the side."""
    canvas = Canvas(chance.uniform(-0.4, 0.4), chance.uniform(0.35, 1.0))
    body = _grey(chance, 0, 80) if chance.random() < 0.6 else _grey(chance, 190, 256)
    arm = tuple(int(np.clip(v + chance.integers(-40, 41), 0, 255)) for v in body)
    count = 4 if chance.random() < 0.8 else 6
    begin = math.pi / 4 + chance.uniform(-0.3, 0.3)
    rotor = (*_grey(chance, 60, 230), int(chance.integers(130, 220)))
    wide, thick = chance.uniform(0.26, 0.38), chance.uniform(0.08, 0.14)
    for x, y in corners(count, 0.72, begin):
        canvas.disc(x, y, wide, rotor)
    for x, y in corners(count, 0.72, begin):
        canvas.line([(0, 0), (x, y)], arm, thick)
        canvas.disc(x, y, 0.1, arm)
    canvas.disc(0, 0, chance.uniform(0.2, 0.34), body, chance.uniform(0.7, 1.2))
    if chance.random() < 0.4:
        canvas.disc(0, 0.1, 0.1, _colour(chance, 100))
    return canvas


def sign(chance: Chance) -> Canvas:
    """A traffic sign: red rims, a red octagon, a blue disc, a yellow lozenge."""
    canvas = Canvas(chance.uniform(-0.12, 0.12), 1.0)
    red = _within(chance, (150, 0, 0), (230, 50, 60))
    white = _grey(chance, 205, 256)
    kind, thin = chance.integers(5), chance.uniform(0.55, 0.75)
    mark = _grey(chance, 0, 60)
    if kind == 0:
        begin = -math.pi / 2 if chance.random() < 0.7 else math.pi / 2
        canvas.shape(corners(3, 1.0, begin), red)
        inner = white if chance.random() < 0.7 else (240, 200, 40)
        canvas.shape(corners(3, thin * 0.85, begin), inner)
        canvas.line([(0, -0.2), (0, 0.25)], mark, 0.09)
    elif kind == 1:
        canvas.shape(corners(8, 1.0, math.pi / 8), white)
        canvas.shape(corners(8, 0.92, math.pi / 8), red)
        canvas.shape([(-0.62, -0.2), (0.62, -0.2), (0.62, 0.2), (-0.62, 0.2)], white)
    elif kind == 2:
        canvas.disc(0, 0, 1, red)
        canvas.disc(0, 0, thin, white)
        canvas.line([(-0.3, 0.3), (-0.3, -0.3), (0.3, -0.3), (0.3, 0.3)], mark, 0.1)
    elif kind == 3:
        blue = _within(chance, (0, 50, 150), (60, 110, 230))
        canvas.disc(0, 0, 1, white)
        canvas.disc(0, 0, 0.9, blue)
        canvas.line([(0, 0.55), (0, -0.4)], white, 0.16)
        canvas.shape([(-0.4, -0.1), (0, -0.65), (0.4, -0.1)], white)
    else:
        canvas.shape(corners(4), mark)
        canvas.shape(
            corners(4, 0.9), (int(chance.integers(220, 256)), int(chance.integers(170, 215)), 20)
        )
        canvas.line([(0, 0.4), (0, -0.3)], mark, 0.14)
    return canvas


def none(chance: Chance) -> Canvas:
    """A stick, a letter, a star, a leaf, a rectangle, some angular shape."""
    canvas = Canvas(chance.uniform(0, 2 * math.pi), chance.uniform(0.4, 1.0))
    colour, other, kind = _colour(chance), _colour(chance), chance.integers(6)
    if kind == 0:
        canvas.line([(-1, chance.uniform(-0.3, 0.3)), (1, 0)], colour, chance.uniform(0.06, 0.3))
    elif kind == 1:
        strokes = [(float(x), float(y)) for x, y in chance.uniform(-1, 1, (4, 2))]
        canvas.line(strokes, colour, chance.uniform(0.12, 0.3))
    elif kind == 2:
        outer, inner = corners(5), corners(5, 0.4, -math.pi / 2 + math.pi / 5)
        canvas.shape([p for pair in zip(outer, inner, strict=True) for p in pair], colour)
    elif kind == 3:
        canvas.disc(0, 0, 1, colour, chance.uniform(0.2, 0.5))
        canvas.line([(-1.2, 0), (1, 0)], other, 0.05)
    elif kind == 4:
        high = chance.uniform(0.4, 1)
        canvas.shape([(-1, -high), (1, -high), (1, high), (-1, high)], colour)
        canvas.shape(
            [(-0.7, -high / 2), (0.5, -high / 2), (0.5, high / 2), (-0.7, high / 2)], other
        )
    else:
        angles = np.sort(chance.uniform(0, 2 * math.pi, 7)).tolist()
        canvas.shape([(r * math.cos(a), r * math.sin(a))
                      for a, r in zip(angles, chance.uniform(0.4, 1, 7).tolist(), strict=True)],
                     colour)  # fmt: skip
    return canvas


_DRAWN: tuple[Callable[[Chance], Canvas], ...] = (ball, bird, drone, sign, none)


def drawn(number: int, chance: Chance) -> NDArray:
    """One of a kind by its number in KINDS, NONE for what is none: float32 [4, SIDE, SIDE].

    Colours times opacity, and opacity, 0 to 1.
    """
    canvas = _DRAWN[number](chance)
    pixels = np.asarray(canvas.picture, np.float64).copy()
    return fitted(shaded(pixels, chance) if number == 0 else pixels)


def fitted(pixels: NDArray) -> NDArray:
    """A drawn picture [side, side, 4] of 0 to 255, its longer side SIDE - 2 * BORDER."""
    from PIL import Image

    rows, columns = (np.flatnonzero(pixels[..., 3].max(axis) > 127) for axis in (1, 0))
    top, bottom, left, right = rows[0], rows[-1] + 1, columns[0], columns[-1] + 1
    opaque = pixels[..., 3:] / 255
    whole = np.concatenate([pixels[..., :3] / 255 * opaque, opaque], -1)[top:bottom, left:right]
    scale = (SIDE - 2 * BORDER) / max(whole.shape[:2])
    high, wide = (max(1, round(length * scale)) for length in whole.shape[:2])
    found = np.zeros((4, SIDE, SIDE), np.float32)
    first, second = (SIDE - high) // 2, (SIDE - wide) // 2
    for channel in range(4):
        plane = Image.fromarray(whole[..., channel].astype(np.float32))
        small = np.asarray(plane.resize((wide, high), Image.Resampling.BOX))
        found[channel, first : first + high, second : second + wide] = small
    return found


def extent(patch: NDArray) -> tuple[float, float]:
    """Width and height of what is opaque, as shares of the longer side."""
    rows, columns = ((patch[3].max(axis) > 0.5).sum() for axis in (1, 0))
    most = SIDE - 2 * BORDER
    return float(columns) / most, float(rows) / most


def bank(each: int, seed: int) -> tuple[NDArray, NDArray, NDArray]:
    """Patches [N, 4, SIDE, SIDE] float16, their kinds, and extents [N, 2]; as many of each kind."""
    patches, kinds = [], []
    for kind in range(NONE + 1):
        for number in range(each):
            patches.append(drawn(kind, np.random.default_rng((seed, kind, number))))
            kinds.append(kind)
    sizes = np.asarray([extent(one) for one in patches], np.float32)
    return np.stack(patches).astype(np.float16), np.asarray(kinds), sizes


def sheet(each: int, seed: int) -> Any:
    """A picture of some of each kind, a row each."""
    from PIL import Image

    patches, kinds, _ = bank(each, seed)
    made = Image.new("RGB", (each * SIDE, (NONE + 1) * SIDE))
    for number, (patch, kind) in enumerate(zip(patches.astype(np.float32), kinds, strict=True)):
        over = patch[:3] + (1 - patch[3]) * 0.55
        pixels = (over.transpose(1, 2, 0) * 255).clip(0, 255).astype(np.uint8)
        made.paste(Image.fromarray(pixels), (number % each * SIDE, int(kind) * SIDE))
    return made
