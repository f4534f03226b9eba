"""What a stage is: a frozen record of what is wanted, that makes itself ready for a film's look.

    turned(look)  what its pictures are like afterwards; raises for what it does not take    pure
    bound(look)   memory taken, kernels compiled, networks bound: once
    work(window)  a picture and its neighbours in, pictures out                          every time

A stage may look at `before` pictures and `after`, and gives any number of pictures for each, with
time stamps of its own. What it gives may depend on its window alone, never on what it was given
earlier: chunks begin anywhere, on any machine, and must come out the same.

A stage that has to know the whole film is a `Fitting` one: the film is looked at once before the
first picture is made (`analysis/`), and what the stage needs of that becomes plain values of its
record, by time. So they stand in the journal's recipe and go to workers as all of it does.

A `Watching` stage needs pictures of the film themselves: it is given the film, and keeps what it
saw as plain values too.

A stage that makes somebody or something unseen says so (`hides`): then no picture from before it
leaves the film, in a report, a preview, a cover or a thumbnail.

A stage that gives more pictures than it is given, or at other times, is a `Retiming` one: it says
before work begins when they will be shown.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from fractions import Fraction
from typing import Any, Protocol, runtime_checkable

from tilewright.errors import ArgumentError
from tilewright.facts.device import Device
from tilewright.video.analysis.record import Survey
from tilewright.video.look import Frame, Look
from tilewright.video.source import Film


@dataclass(frozen=True, slots=True, eq=False)
class Window:
    """A picture and those round it, fewer at the film's two ends."""

    frame: Frame
    before: tuple[Frame, ...] = ()
    after: tuple[Frame, ...] = ()


Work = Callable[[Window], Iterable[Frame]]
MOST = 16  # pictures at once, each with a stage's memory


class Stage(Protocol):
    """What the pipeline knows of a stage; a frozen dataclass of plain values."""

    @property
    def name(self) -> str:
        """As it is called in progress and messages."""

    @property
    def before(self) -> int:
        """How many earlier pictures it looks at."""

    @property
    def after(self) -> int:
        """How many later ones."""

    @property
    def workers(self) -> int:
        """How many pictures are worked on at once, each by a `bound` of its own."""

    def turned(self, look: Look) -> Look:
        """What its pictures look like. Raises ArgumentError, naming itself, for others."""

    def bound(self, look: Look) -> Work:
        """What does it, for pictures of one look."""


def hides(stages: Sequence[Stage]) -> bool:
    """Whether one of the stages makes unseen what its pictures showed."""
    plain = (getattr(stage, "stage", stage) for stage in stages)  # of those of some scenes alone
    return any(getattr(stage, "hides", False) for stage in plain)


def workers_on(device: Device) -> int:
    """A picture a core of the host, up to MOST; on other devices one after the other."""
    return min(device.compute_units, MOST) if device.backend == "host" else 1


def check_luma(name: str, look: Look) -> None:
    """Raise ArgumentError for interlaced pictures, and for those without a plane of luma."""
    if look.interlaced:
        raise ArgumentError(f"{name}: the film is interlaced; accepted are whole pictures")
    if look.kind not in ("yuv", "grey"):
        raise ArgumentError(
            f"{name}: samples are {look.format}; accepted are planes of luma, as yuv420p, gray"
        )


@runtime_checkable
class Fitting(Protocol):
    """A stage that has to know the whole film; unfitted it reads each picture by itself."""

    @property
    def unfitted(self) -> bool:
        """Whether it has yet to know the film."""

    def fitted(self, survey: Survey) -> Stage:
        """The stage with what it needs of a film that was looked at; pure."""


@runtime_checkable
class Watching(Protocol):
    """A stage that has to see pictures of the film before the first is made."""

    @property
    def unseen(self) -> bool:
        """Whether it has yet to see the film."""

    def watched(self, film: Film, progress: Callable[[int, int], None] | None) -> Stage:
        """The stage with what it needs of a film, whose pictures are asked for here; pure."""


def watched(
    stages: Sequence[Stage], film: Film, progress: Callable[[int, int], None] | None
) -> tuple[Stage, ...]:
    """The stages, those that have to having seen the film."""
    return tuple(
        one.watched(film, progress) if isinstance(one, Watching) and one.unseen else one
        for one in stages
    )


@dataclass(frozen=True, slots=True)
class Pace:
    """When pictures are shown.

    times   of each, rising, in units of `time_base` seconds
    length  of the last, in the same units
    rate    pictures a second, on average
    """

    times: tuple[int, ...]
    length: int
    time_base: Fraction
    rate: Fraction


@runtime_checkable
class Retiming(Protocol):
    """A stage that gives pictures at times of its own."""

    def retimed(self, pace: Pace) -> tuple[Stage, Pace]:
        """The stage with what it needs of a film's pace, and the pace it makes of that; pure."""


def paced(stages: Sequence[Stage], pace: Pace) -> tuple[tuple[Stage, ...], Pace]:
    """The stages, knowing when pictures come, and when they are shown after the last stage."""
    found: list[Stage] = []
    for stage in stages:
        if isinstance(stage, Retiming):
            stage, pace = stage.retimed(pace)
        found.append(stage)
    return tuple(found), pace


def fitted(stages: Sequence[Stage], survey: Survey) -> tuple[Stage, ...]:
    """The stages, knowing the film."""
    return tuple(one.fitted(survey) if isinstance(one, Fitting) else one for one in stages)


def looks(stages: Sequence[Stage], look: Look) -> tuple[Look, ...]:
    """What pictures are before each stage, and after the last."""
    found = [look]
    for stage in stages:
        found.append(stage.turned(found[-1]))
    return tuple(found)


def recipe(stages: Sequence[Stage]) -> list[Any]:
    """The stages as JSON has them, to be written down and compared."""
    plain = [[stage.name, asdict(stage)] for stage in stages]  # type: ignore[call-overload]
    found: list[Any] = json.loads(json.dumps(plain))
    return found


def windows(stage: Stage, pictures: Iterator[Frame]) -> Generator[Window, None, None]:
    """Every picture with those round it that a stage looks at."""
    held: deque[Frame] = deque()
    at = 0  # of `held`, the one whose turn is next
    for picture in pictures:
        held.append(picture)
        while len(held) - at > stage.after:
            yield _window(held, at, stage)
            at = _forgotten(held, at + 1, stage)
    while at < len(held):
        yield _window(held, at, stage)
        at = _forgotten(held, at + 1, stage)


def _window(held: deque[Frame], at: int, stage: Stage) -> Window:
    here = list(held)
    return Window(
        here[at],
        tuple(here[max(0, at - stage.before) : at]),
        tuple(here[at + 1 : at + 1 + stage.after]),
    )


def _forgotten(held: deque[Frame], at: int, stage: Stage) -> int:
    while at > stage.before:
        held.popleft()
        at -= 1
    return at
