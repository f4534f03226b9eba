"""Haze taken out of luma by a table, and chroma made as much stronger.

Haze mixes a picture with its own light (Koschmieder 1924): seen = t * clear + (1 - t) * air. How
much, 1 - t, and the air's light are what the dark channel says (He, Sun and Tang 2009;
`analysis/measures.py`). What is far is lighter for its haze, so t is asked of a whole scene by how
light the mean round a sample is, which is a table of two axes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from tilewright.arrays.array import NDArray
from tilewright.video.analysis.measures import dark_channel
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
    rising,
)

APART, COUNT = 64.0, 17
_CLEAREST = 0.12  # dark channels of clear pictures have this much on the mean
_TINT = 2.0  # haze is seldom without a colour, which more would stress
_LEAST = 0.35  # of t: what less would show is noise


@dataclass(frozen=True, slots=True)
class Dehaze(Tabled):
    """Pictures with less haze.

    amount  of the haze that is taken out, 0 to 1; a little left looks as far things do
    keys    haze and the air's light over time, as `fitted` finds them; () reads each picture
    """

    amount: float = 0.9
    keys: tuple[Key, ...] = ()

    name: ClassVar[str] = "dehaze"

    def fitted(self, survey: Survey) -> Dehaze:
        """With haze and air of every scene, smoothed over time."""
        seen = [(one.air, *one.veil) for one in survey.samples]
        return replace(self, keys=smoothed(survey, seen))

    def bound(self, look: Look) -> Work:
        """The loops, and a table for each time."""

        def at(frame: Frame) -> Table | None:
            air, *veil = between(self.keys, frame.time) if self.keys else seen_in(frame)
            through = clearness(veil, self.amount)
            return table_of(through, air) if through.min() < 1 else None

        return Toned(look, at)


def seen_in(frame: Frame) -> tuple[float, ...]:
    """A key's values, of one picture by itself."""
    found = dark_channel(frame)
    return (found.air, *found.veil)


def clearness(veil: Sequence[float], amount: float) -> NDArray:
    """How much of the light is the picture's own, t, where the mean is 0, 1/8 .. 1."""
    haze = (np.asarray(veil) - _CLEAREST).clip(0) / (1 - _CLEAREST)
    found: NDArray = (1 - amount * haze).clip(_LEAST)
    return found


def table_of(through: NDArray, air: float) -> Table:
    """A table that undoes haze of that light, of which `through` is left over the picture."""
    places = PLACES / LIGHT * (len(through) - 1)
    left = np.interp(places, np.arange(len(through)), through)[:, None]
    light = PLACES[:, None] + np.linspace(-APART, APART, COUNT)[None]
    clear = (light - LIGHT * air) / left + LIGHT * air
    values = np.repeat(rising(clear.clip(0, LIGHT))[..., None], 2, axis=2)
    return Table(values, APART, 1.0, 3, np.minimum(1 / left[:, 0], _TINT))
