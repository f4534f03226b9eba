"""Pictures that move, drawn for tests of motion: looks, layers that go over one another."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np

from tilewright.video.look import Frame, Look

FORMATS = {
    "gray": ("grey", 8, (0, 0)),
    "yuv420p": ("yuv", 8, (1, 1)),
    "yuv422p10le": ("yuv", 10, (1, 0)),
    "yuva420p": ("yuv", 8, (1, 1)),
}
# Columns, rows, samples, by how many samples layers move, and the share of the time.
CASES = (
    (320, 200, "gray", 3, 0.5),
    (322, 181, "yuv420p", 2, 0.25),
    (961, 541, "yuv420p", 6, 0.5),
    (640, 420, "yuv422p10le", 4, 0.7),
    (200, 130, "yuva420p", 12, 0.5),
)
SMALL = ((1, 1), (2, 1), (3, 7), (15, 40), (17, 16), (50, 23))


def look(columns: int, rows: int, format: str) -> Look:
    kind, bits, halved = FORMATS[format]
    return Look(columns, rows, format, bits, kind, halved, alpha="yuva" in format)


def texture(rng: np.random.Generator, rows: int, columns: int) -> Any:
    """Noise of three sizes, 0 to 1."""
    total = np.zeros((rows, columns))
    for size in (1, 4, 16):
        small = rng.random((-(-rows // size) + 1, -(-columns // size) + 1))
        total += np.kron(small, np.ones((size, size)))[:rows, :columns]
    return total / 3


def layers(like: Look, seed: int, step: int) -> tuple[Frame, Frame]:
    """A ground, a layer that moves over it the other way, and bars that stand still."""
    rng = np.random.default_rng(seed)
    most, found = (1 << like.bits) - 1, ([], [])
    for rows, columns in like.shapes:
        ground = texture(rng, rows + 64, columns + 64)
        layer = texture(rng, rows, columns) * 0.8
        top, left = rows // 4, columns // 4
        for time, planes in enumerate(found):
            shown = ground[32 - 2 * step * time :, 32 + step * time :][:rows, :columns].copy()
            down, right = top + step * time, left + 2 * step * time
            to = shown[down : down + rows // 3, right : right + columns // 3]
            to[:] = layer[: to.shape[0], : to.shape[1]]
            shown[rows // 2 : rows // 2 + 3, columns // 8 : -columns // 8 or None] = 1
            noise = rng.normal(0, 0.004, shown.shape)
            planes.append(np.rint(most * (shown + noise).clip(0, 1)).astype(like.dtype))
    one, other = (tuple(planes) for planes in found)
    return Frame(one, 0, 1, Fraction(1), like), Frame(other, 1, 1, Fraction(1), like)


def blank(like: Look) -> tuple[Any, ...]:
    """Planes whose rows are longer than what is shown of them."""
    return tuple(np.zeros((r, c + 5), like.dtype)[:, :c] for r, c in like.shapes)


def noise(like: Look) -> tuple[Frame, Frame]:
    """Two pictures of nothing but noise."""
    rng = np.random.default_rng(1)
    pair = [
        tuple(rng.integers(0, 1 << like.bits, size).astype(like.dtype) for size in like.shapes)
        for _ in range(2)
    ]
    return Frame(pair[0], 0, 1, Fraction(1), like), Frame(pair[1], 1, 1, Fraction(1), like)


def made(engine: Any, pair: tuple[Frame, Frame], share: float) -> tuple[Any, float]:
    """Planes of the picture between two, and how much of it is unsure."""
    engine.given(*pair)
    assert not engine.repeats()
    engine.found()
    out = blank(pair[0].look)
    return out, engine.between(share, out)


def check_alike(pair: tuple[Frame, Frame], share: float, *engines: Any) -> None:
    """What two engines make is the same, but for what rounding does."""
    (right, doubt), (found, doubted) = (made(engine, pair, share) for engine in engines)
    most = (1 << pair[0].look.bits) - 1
    for plane, other in zip(right, found, strict=True):
        apart = np.abs(plane.astype(float) - other) * 255 / most
        assert (apart > 1.01).mean() < 0.01
        assert 10 * np.log10(255**2 / max((apart**2).mean(), 1e-9)) > 45
    assert abs(doubt - doubted) < 0.01


def check_small(like: Look, *engines: Any) -> None:
    """The same for noise, whose motion is anybody's guess."""
    (right, doubt), (found, doubted) = (made(engine, noise(like), 0.5) for engine in engines)
    assert abs(doubt - doubted) <= 0.35
    for plane, other in zip(right, found, strict=True):
        assert np.median(np.abs(plane.astype(int) - other)) <= 1


def check_repeatable(engine: Any, like: Look) -> None:
    """The same samples each time, and what repeats is known."""
    one, other = layers(like, 3, 5)
    seen = []
    for _ in range(3):
        engine.given(one, replace(one, pts=1))
        assert engine.repeats()
        engine.given(one, other)
        assert not engine.repeats()
        engine.found()
        for share in (0.25, 0.5, 0.75):
            out = blank(like)
            engine.between(share, out)
            seen.append(b"".join(plane.tobytes() for plane in out))
    assert seen[:3] == seen[3:6] == seen[6:]
    assert len(set(seen)) == 3
