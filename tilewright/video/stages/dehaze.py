"""Haze taken out of luma by a table, and chroma made as much stronger.

Haze mixes a picture with its own light (Koschmieder 1924): seen = t * clear + (1 - t) * air. How
much, 1 - t, and the air's light are what the dark channel says (He, Sun and Tang 2009;
`analysis/measures.py`), of a whole scene: one t for near and far, which keeps skies even and leaves
far haze.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from tilewright.errors import ArgumentError
from tilewright.inputs.devices import host
from tilewright.video.analysis.measures import dark_channel
from tilewright.video.analysis.record import Survey, smoothed
from tilewright.video.look import Frame, Look
from tilewright.video.stages.contract import Work
from tilewright.video.tables import (
    LIGHT,
    MIDDLES,
    PLACES,
    Key,
    Table,
    Toned,
    between,
    check,
    rising,
)

APART, COUNT = 64.0, 17
_CLEAREST = 0.12  # dark channels of clear pictures have this much on the mean
_LEAST = 0.35  # of t: what less would show is noise


@dataclass(frozen=True, slots=True)
class Dehaze:
    """Pictures with less haze.

    amount  of the haze that is taken out, 0 to 1; a little left looks as far things do
    keys    haze and the air's light over time, as `fitted` finds them; () reads each picture
    """

    amount: float = 0.9
    keys: tuple[Key, ...] = ()

    name: ClassVar[str] = "dehaze"
    before: ClassVar[int] = 0
    after: ClassVar[int] = 0

    @property
    def workers(self) -> int:
        """A picture a core."""
        return min(host().compute_units, 16)

    def turned(self, look: Look) -> Look:
        """The same look. Refuses interlaced pictures, and what has no plane of luma."""
        if not 0 <= self.amount <= 1:
            raise ArgumentError(f"dehaze: amount={self.amount!r}; accepted are 0 to 1")
        check(self.name, look)
        return look

    @property
    def unfitted(self) -> bool:
        """Whether it has yet to know the film."""
        return not self.keys

    def fitted(self, survey: Survey) -> Dehaze:
        """With haze and air of every scene, smoothed over time."""
        return replace(self, keys=smoothed(survey, [(one.haze, one.air) for one in survey.samples]))

    def bound(self, look: Look) -> Work:
        """The loops, and a table for each time."""

        def at(frame: Frame) -> Table | None:
            haze, air = between(self.keys, frame.time) if self.keys else dark_channel(frame)
            through = clearness(haze, self.amount)
            return table_of(through, air) if through < 1 else None

        return Toned(look, at)


def clearness(haze: float, amount: float) -> float:
    """How much of the light is the picture's own, t, by its dark channel."""
    return max(_LEAST, 1 - amount * max(0.0, haze - _CLEAREST) / (1 - _CLEAREST))


def table_of(through: float, air: float) -> Table:
    """A table that undoes haze of that light, of which `through` is left over the picture."""
    light = PLACES[:, None] + np.linspace(-APART, APART, COUNT)[None]
    clear = (light - LIGHT * air) / through + LIGHT * air
    values = np.repeat(rising(clear.clip(0, LIGHT))[..., None], 2, axis=2)
    return Table(values, APART, 1.0, 3, np.full(MIDDLES, 1 / through))
