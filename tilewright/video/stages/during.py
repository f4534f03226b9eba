"""A stage for some scenes of a film, and none for the others: what `--auto` switches."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import ClassVar

from tilewright.errors import ArgumentError
from tilewright.video.analysis.record import Survey
from tilewright.video.look import Frame, Look
from tilewright.video.stages.contract import Fitting, Stage, Window, Work


@dataclass(frozen=True, slots=True)
class During:
    """A stage that works on pictures of some times, and leaves others as they are.

    stage  one that keeps what pictures are, and looks at no neighbours
    spans  when it works, in seconds: from the first of two, and before the second
    """

    stage: Stage
    spans: tuple[tuple[float, float], ...]

    before: ClassVar[int] = 0
    after: ClassVar[int] = 0

    @property
    def name(self) -> str:
        """The stage's."""
        return self.stage.name

    @property
    def workers(self) -> int:
        """The stage's."""
        return self.stage.workers

    def turned(self, look: Look) -> Look:
        """The same look. Refuses a stage that changes it, or looks at neighbours."""
        if self.stage.turned(look) != look or self.stage.before or self.stage.after:
            raise ArgumentError(
                f"stage={self.stage.name!r}: changes what pictures are, or needs neighbours;"
                " accepted for some scenes alone are stages of single pictures"
            )
        return look

    @property
    def unfitted(self) -> bool:
        """Whether the stage has yet to know the film."""
        return isinstance(self.stage, Fitting) and self.stage.unfitted

    def fitted(self, survey: Survey) -> During:
        """With a stage that knows the scenes it is for."""
        if not isinstance(self.stage, Fitting):
            return self
        inside = tuple(one for one in survey.samples if self._holds(one.time))
        return replace(self, stage=self.stage.fitted(replace(survey, samples=inside)))

    def _holds(self, time: float) -> bool:
        return any(first <= time < end for first, end in self.spans)

    def bound(self, look: Look) -> Work:
        """The stage's, asked when its time has come."""
        work = self.stage.bound(look)

        def switched(window: Window) -> Iterable[Frame]:
            return work(window) if self._holds(float(window.frame.time)) else (window.frame,)

        return switched
