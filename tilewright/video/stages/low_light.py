"""Dark pictures made light: luma through a table of value, mean and local difference.

A light curve alone makes noise light too. The table first moves each value towards the mean round
it, as far as nothing but noise keeps them apart there, and then along the curve:

    out = curve(mean + noise * shrink(mean / noise, (value - mean) / noise, (near - mean) / noise))

`shrink` is the expected value of clean photographs under noise, counted once over darkened ones;
the curve is one of few numbers that a small regression reads off the picture (`low_light.npz`, by
`train/low_light.py`). Over a film these numbers are found before the first picture is made, and
smoothed: a picture's table depends on its time alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import ClassVar

import numpy as np

from tilewright.arrays.array import NDArray
from tilewright.errors import ArgumentError
from tilewright.video.analysis.light import traits
from tilewright.video.analysis.noise import noise
from tilewright.video.analysis.record import Survey, smoothed
from tilewright.video.look import Frame, Look
from tilewright.video.stages.contract import Work, check_luma
from tilewright.video.stages.tabled import Tabled
from tilewright.video.tables import (
    LIGHT,
    PLACES,
    Key,
    Table,
    Toned,
    between,
    lightness,
    rising,
)  # fmt: skip

RADIUS = 3  # the mean is of 7 x 7: 5 x 5 and 9 x 9 gave 0.1 dB less
APART, NEAR = 6.0, 4.0  # how far the shrinking table reaches, in deviations of noise
KNOTS = 16  # of the curve, at squares
_DARKEST, _LIGHTEST = 0.45, 0.6  # mean luma up to which all is done, and from which nothing
_MOST_TINT = 5.0
_DARK = 1  # of a key's values: how much is done, 0 to 1
METHODS = ("2d", "3d")


@dataclass(frozen=True, slots=True)
class LowLight(Tabled):
    """Dark pictures made light, noise in them made less.

    amount  of the way, 0 to 1
    method  "3d", or "2d": by value and mean alone, without the local difference
    keys    what tables are made of at which times, as `fitted` finds it; () reads each picture
            by itself, as single pictures need
    """

    amount: float = 1.0
    method: str = "3d"
    keys: tuple[Key, ...] = ()

    name: ClassVar[str] = "low-light"

    def turned(self, look: Look) -> Look:
        """The same look. Refuses interlaced pictures, and what has no plane of luma."""
        if not 0 <= self.amount <= 1 or self.method not in METHODS:
            raise ArgumentError(
                f"low-light: amount={self.amount!r}, method={self.method!r}; accepted are 0 to 1"
                f" and {', '.join(METHODS)}"
            )
        check_luma(self.name, look)
        return look

    def fitted(self, survey: Survey) -> LowLight:
        """With keys for every scene: noise and curve, smoothed over time, that cuts end."""
        read = [_read(one.light, one.noise, one.mean) for one in survey.samples]
        return replace(self, keys=smoothed(survey, read))

    def bound(self, look: Look) -> Work:
        """The loops, and tables as their times come."""
        latest: list[tuple[tuple[float, ...], Table]] = []

        def at(frame: Frame) -> Table | None:
            values = between(self.keys, frame.time) if self.keys else seen_in(frame)
            if not values[_DARK]:
                return None
            if not latest or latest[0][0] != values:
                latest[:] = [(values, table_of(values, self.amount, self.method))]
            return latest[0][1]

        return Toned(look, at)


def seen_in(frame: Frame) -> tuple[float, ...]:
    """A key's values, of one picture by itself."""
    luma = lightness(frame)
    deviation = noise(luma)
    return _read(traits(luma, deviation), deviation, float(luma.mean()) / LIGHT)


def _read(light: Sequence[float], deviation: float, mean: float) -> tuple[float, ...]:
    """Noise, and the curve's knots, of a picture by its traits."""
    dark = float(np.clip((_LIGHTEST - mean) / (_LIGHTEST - _DARKEST), 0, 1))
    plain = np.linspace(0, 1, KNOTS) ** 2
    knots = plain + dark * (curve_of(light) - plain)
    return (deviation, dark, *(float(one) for one in knots))


@cache
def learned() -> dict[str, NDArray]:
    """What `train/low_light.py` wrote."""
    with np.load(Path(__file__).with_name("low_light.npz")) as file:
        return {name: file[name] for name in file.files}


def curve_of(light: Sequence[float]) -> NDArray:
    """Light at KNOTS places, at squares of 0 to 1, of what a picture with these traits was."""
    net = learned()
    x = (np.asarray(light) - net["mean"]) / net["deviation"]
    exponent, gain = np.tanh(x @ net["w1"] + net["b1"]) @ net["w2"] + net["b2"]
    places = np.linspace(0, 1, KNOTS) ** 2
    power = 0.38 * np.exp(0.3 * np.tanh(exponent))
    found = np.exp(power * np.log(places + 1e-3) + 0.13 + 0.3 * np.tanh(gain)) + net["rest"]
    curve: NDArray = np.maximum.accumulate(found.clip(0, 1))
    return curve


def table_of(values: tuple[float, ...], amount: float, method: str = "3d") -> Table:
    """A table for noise, darkness, and a curve's knots, as `LowLight` keeps them."""
    deviation, dark, *knots = values
    shrink = learned()["shrink"] if method == "3d" else _without_near(learned()["shrink"])
    levels, count, _ = shrink.shape
    level = np.log2((PLACES / deviation).clip(0.5, 64)) + 1
    low = np.minimum(level.astype(int), levels - 2)
    part = (level - low)[:, None, None]
    moved = (1 - part) * shrink[low] + part * shrink[low + 1]
    apart = np.linspace(-APART, APART, count)[None, :, None]
    towards = apart + dark * amount * (moved - apart)
    light = PLACES[:, None, None] + deviation * towards
    curve = _along(knots, light)
    plain = light.clip(0, LIGHT)
    out = plain + amount * (curve - plain)
    line = _along(knots, PLACES)
    slopes = np.gradient(PLACES + amount * (line - PLACES), PLACES).clip(0.5, _MOST_TINT)
    return Table(rising(out), APART * deviation, NEAR * deviation, RADIUS, slopes)


def _along(knots: Sequence[float], light: NDArray) -> NDArray:
    places = np.sqrt(light.clip(0, LIGHT) / LIGHT) * (KNOTS - 1)
    found: NDArray = LIGHT * np.interp(places, np.arange(KNOTS), knots)
    return found


def _without_near(shrink: NDArray) -> NDArray:
    """The table of two axes: the third's mean, weighed as often as near means lie there."""
    depths = shrink.shape[2]
    near = np.linspace(-NEAR, NEAR, depths)
    weights = np.exp(-(near**2) / 2)
    flat = (shrink * (weights / weights.sum())).sum(2, keepdims=True)
    return np.repeat(flat, depths, axis=2)
