"""Pictures between pictures: twice or four times as many, or as many a second as one says.

Motion is found both ways between each picture and the next (`video/motion_places.py`). Where there
is nothing between two pictures none is made up: at a cut the one before is held until the next, a
picture that repeats (as drawn films have them) is repeated, and where motion cannot be told the
nearer picture is shown. Times are exact: 2 and 4 give pictures exactly between, however unevenly
those come; a rate gives a grid from the first picture's time to the last one's end.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import pairwise
from typing import ClassVar

from tilewright.errors import ArgumentError
from tilewright.video.analysis.record import Survey
from tilewright.video.fusion import NAMES
from tilewright.video.look import Frame, Look
from tilewright.video.motion_places import Engine, engine_on, place_of
from tilewright.video.planes import blank
from tilewright.video.stages.contract import Pace, Window, Work, check_luma, workers_on
from tilewright.wording import short

FACTORS = (2, 4)
_MOST = 1000  # pictures a second
_FINEST = 1 << 31  # ticks a second that containers count
_ROUND = Fraction(1001, 1000)  # by so much rates differ that are meant to be the same
_NEAR = Fraction(1, 20)  # of the time between two pictures: so near to one it is that one
_ELSEWHERE = 2  # pictures at once
_LOST, _SOME = 0.3, 0.02  # shares of a picture in which motion is unsure
HELD = "interpolate: held at a cut"
REPEATED = "interpolate: repeated, as the two round it are the same"
NEARER = "interpolate: the nearer picture, as motion is unsure"
PARTLY = "interpolate: parts of the nearer picture alone"


@dataclass(frozen=True, slots=True)
class Interpolate:
    """More pictures a second, by the motion between those there are.

    rate   2 or 4: times as many; else pictures a second, as "60" or "60000/1001"
    cuts   when scenes begin, in seconds, as `fitted` finds it
    known  whether it knows the film's cuts
    first  when the film's first picture is shown, as a fraction of seconds
    tick   of a rate's grid, as a fraction of seconds
    device where motion is found: the host, a GPU, or what an OpenCL driver has; "auto" is a GPU of
           NVIDIA's if there is one
    net    "none": pictures are mixed by time alone; "fuse-s" of `tilewright.models` says how much
           of which is right, where motion is found on the host; elsewhere there is none
    """

    rate: int | str = 2
    cuts: tuple[float, ...] = ()
    known: bool = False
    first: tuple[int, int] = (0, 1)
    tick: tuple[int, int] = (0, 1)
    device: str = "auto"
    net: str = NAMES[0]

    name: ClassVar[str] = "interpolate"
    before: ClassVar[int] = 0
    after: ClassVar[int] = 1

    @property
    def workers(self) -> int:
        """A picture a core; elsewhere two, of which one is copied while the other is made."""
        device = place_of(self.device)
        return workers_on(device) if device.backend == "host" else _ELSEWHERE

    @property
    def card(self) -> str:
        """The network's name, whose card `tilewright.models` has; "" where none runs."""
        runs = self.net in NAMES[1:] and place_of(self.device).backend == "host"
        return self.net if runs else ""

    @property
    def said(self) -> str:
        """What it was told, in words."""
        return f"rate {self.rate}" + (f", by {self.card}" if self.card else "")

    @property
    def unfitted(self) -> bool:
        """Whether it has yet to know where the film is cut."""
        return not self.known

    def fitted(self, survey: Survey) -> Interpolate:
        """With the times of the film's cuts."""
        return replace(self, cuts=survey.starts[1:], known=True)

    def turned(self, look: Look) -> Look:
        """The same look. Refuses interlaced pictures, what has no luma, and rates that are none."""
        self._wanted()
        if self.net not in NAMES:
            raise ArgumentError(
                f"interpolate: net={short(self.net)}; accepted are {', '.join(NAMES)}"
            )
        check_luma(self.name, look)
        self._said_where()
        return look

    def _said_where(self) -> None:
        """Warn where a network is asked for that will not run."""
        if self.net != NAMES[0] and not self.card:
            where = place_of(self.device)
            warnings.warn(
                f"interpolate: net={short(self.net)}: left out, as it runs on the host and motion"
                f" is found on {where.id} ({where.name}); accepted with it is device='host'",
                stacklevel=2,
            )

    def _wanted(self) -> int | Fraction:
        """Times as many, or a rate."""
        try:
            found = Fraction(str(self.rate))
        except (ValueError, ZeroDivisionError):
            found = Fraction(0)
        if not 0 < found <= _MOST:
            raise ArgumentError(
                f"interpolate: rate={short(self.rate)}; accepted are 2 and 4 (times as many), and"
                f" pictures a second up to {_MOST}, as 60 or 60000/1001"
            )
        return int(found) if found in FACTORS else found

    def retimed(self, pace: Pace) -> tuple[Interpolate, Pace]:
        """The stage with the film's first time, and when its pictures will be shown.

        Raises ArgumentError for a rate lower than the film's.
        """
        wanted = self._wanted()
        if isinstance(wanted, int):
            times = [
                a * wanted + k * (b - a) for a, b in pairwise(pace.times) for k in range(wanted)
            ]
            times.append(pace.times[-1] * wanted)
            base = pace.time_base / wanted
            return self, Pace(tuple(times), pace.length * wanted, base, pace.rate * wanted)
        if wanted * _ROUND < pace.rate:
            raise ArgumentError(
                f"interpolate: rate={short(self.rate)}: the film has {float(pace.rate):g} pictures"
                " a second; accepted are 2 and 4 (times as many), and rates not below the film's"
            )
        first = pace.times[0] * pace.time_base
        tick = _shared(1 / wanted, pace.time_base)
        if tick.denominator >= _FINEST:
            raise ArgumentError(
                f"interpolate: rate={short(self.rate)}: has no clock in common with the film's"
                f" {pace.time_base}; accepted are rates as 60 or 60000/1001"
            )
        end = (pace.times[-1] + pace.length) * pace.time_base
        last = pace.times[-1] * pace.time_base
        count = max(math.ceil((end - first) * wanted), math.floor((last - first) * wanted) + 1)
        begin, step = int(first / tick), int(1 / wanted / tick)
        times = [begin + step * n for n in range(count)]
        known = replace(self, first=first.as_integer_ratio(), tick=tick.as_integer_ratio())
        return known, Pace(tuple(times), step, tick, wanted)

    def bound(self, look: Look) -> Work:
        """Memory for two pictures and their motion."""
        return _Between(self, look)


def _shared(one: Fraction, other: Fraction) -> Fraction:
    """The largest unit that both are whole multiples of."""
    above = math.gcd(one.numerator * other.denominator, other.numerator * one.denominator)
    return Fraction(above, one.denominator * other.denominator)


class _Between:
    """A picture, and those until the next."""

    def __init__(self, stage: Interpolate, look: Look) -> None:
        self._stage, self._look = stage, look
        self._motion = engine_on(place_of(stage.device), look, stage.net)
        self._wanted = stage._wanted()

    def __call__(self, window: Window) -> Iterable[Frame]:
        now = window.frame
        later = window.after[0] if window.after else None
        made = _Pair(self._motion, now, later, self._is_cut(now, later))
        for time, shown in self._times(now, later):
            yield replace(
                made.at(time), pts=shown.pts, duration=shown.duration, time_base=shown.time_base
            )

    def _is_cut(self, now: Frame, later: Frame | None) -> bool:
        if later is None:
            return False
        return any(float(now.time) < cut <= float(later.time) for cut in self._stage.cuts)

    def _times(self, now: Frame, later: Frame | None) -> Iterator[tuple[Fraction, Frame]]:
        """Shares of the time to the next picture, and frames that say when that is."""
        if isinstance(self._wanted, int):
            count = 1 if later is None else self._wanted
            step = now.duration * self._wanted if later is None else later.pts - now.pts
            base = now.time_base / self._wanted
            for number in range(count):
                pts = now.pts * self._wanted + number * step
                yield (
                    Fraction(number, count),
                    replace(now, pts=pts, duration=step, time_base=base),
                )
            return
        first, tick = Fraction(*self._stage.first), Fraction(*self._stage.tick)
        step = int(1 / self._wanted / tick)
        number = math.ceil((now.time - first) * self._wanted)
        until = later.time if later else now.time + now.duration * now.time_base
        while (time := first + number / self._wanted) < until or time == now.time:
            share = (time - now.time) / (until - now.time) if later else Fraction(0)
            pts = int(first / tick) + number * step
            yield share, replace(now, pts=pts, duration=step, time_base=tick)
            number += 1


class _Pair:
    """Two pictures, and what is shown between them; motion is found when it is first needed."""

    def __init__(self, motion: Engine, now: Frame, later: Frame | None, cut: bool) -> None:
        self._motion, self._now, self._later, self._cut = motion, now, later, cut
        self._repeats: bool | None = None

    def at(self, share: Fraction) -> Frame:
        """The picture at a share of the time from one to the other."""
        now, later = self._now, self._later
        if share == 0 or later is None:
            return now
        if self._cut:
            return _noted(now, HELD)
        if share < _NEAR:
            return now
        if share > 1 - _NEAR:
            return later
        if self._repeats is None:
            self._motion.given(now, later)
            self._repeats = self._motion.repeats()
            if not self._repeats:
                self._motion.found()
        if self._repeats:
            return _noted(now, REPEATED)
        out = blank(replace(now, notes=()), now.look)
        doubt = self._motion.between(float(share), out.planes)
        if doubt > _LOST:
            return _noted(now if share <= Fraction(1, 2) else later, NEARER)
        return _noted(out, PARTLY) if doubt > _SOME else out


def _noted(frame: Frame, note: str) -> Frame:
    return replace(frame, notes=(note,))
