"""More contrast: the light that a scene has spread over what there is, and what is fine stressed.

Half of the way is a stretch of the scene's darkest to its lightest, a part towards light shared
out evenly (histogram equalisation, its steepness limited as in Pizer and others 1987): a curve for
the mean round a sample, and the sample's difference from it times that curve's slope and a little
more. So it is a table of two axes.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from tilewright.arrays.array import NDArray
from tilewright.video.analysis.light import TONES, tones
from tilewright.video.analysis.record import Survey, smoothed
from tilewright.video.look import Frame, Look
from tilewright.video.stages.contract import Work
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
)

APART, COUNT = 48.0, 17
_STEEPEST, _EVEN, _FINE = 2.0, 0.3, 0.2


@dataclass(frozen=True, slots=True)
class Contrast(Tabled):
    """Pictures with more contrast.

    amount  of the way, 0 to 1
    keys    quantiles of light over time, as `fitted` finds them; () reads each picture
    """

    amount: float = 0.6
    keys: tuple[Key, ...] = ()

    name: ClassVar[str] = "contrast"

    def fitted(self, survey: Survey) -> Contrast:
        """With every scene's light, smoothed over time."""
        return replace(self, keys=smoothed(survey, [one.tones for one in survey.samples]))

    def bound(self, look: Look) -> Work:
        """The loops, and a table for each time."""

        def at(frame: Frame) -> Table | None:
            found = between(self.keys, frame.time) if self.keys else tones(lightness(frame))
            return table_of(found, self.amount) if self.amount else None

        return Toned(look, at)


def curve_of(found: tuple[float, ...], amount: float) -> NDArray:
    """Light at PLACES, for quantiles of light, 0 to 1."""
    places = PLACES / LIGHT
    low, high = found[1], found[-2]
    wide = max(high - low, 1 / _STEEPEST)
    middle = (low + high) / 2
    # Narrow light is stretched round its middle, moved no further than black and white are.
    begin = float(np.clip(middle - wide / 2, 0, 1 - wide)) if wide < 1 else 0.0
    stretched = (places - begin) / wide
    rest = np.asarray(found) + np.arange(len(found)) * 1e-6
    even = np.interp(places, rest, TONES)
    wanted = (1 - _EVEN) * stretched + _EVEN * even
    made = places + amount * (wanted - places)
    steps = np.minimum(np.diff(made), _STEEPEST * np.diff(places))
    found_curve: NDArray = LIGHT * (made[0] + np.append(0, np.cumsum(steps)))
    return found_curve


def table_of(found: tuple[float, ...], amount: float) -> Table:
    """A table for quantiles of light."""
    curve = curve_of(found, amount)
    slopes = np.gradient(curve, PLACES)
    fine = (slopes + amount * _FINE)[:, None] * np.linspace(-APART, APART, COUNT)[None]
    values = rising((curve[:, None] + fine).clip(0, LIGHT))
    return Table(np.repeat(values[..., None], 2, axis=2), APART, 1.0, 3, slopes.clip(1, 2))
