"""Things that an earlier run found, from its JSON lines: boxes that know their tracks' numbers.

Tracks are known when a film is whole. So a film in which boxes have numbers takes two lines: one
that finds and writes lines (`--detections`), and one that draws them, which needs no network.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from tilewright.errors import ArgumentError
from tilewright.inputs.devices import host
from tilewright.video.detection.things import Found, Thing
from tilewright.video.look import Frame, Look
from tilewright.video.source import Film
from tilewright.video.stages.contract import Window, Work, check_luma, workers_on
from tilewright.video.stages.network_file import mark_of
from tilewright.wording import PATH, short

_NEAR = 0.002  # seconds: containers count milliseconds
_OUT = 1.0  # samples that a box may reach out of the picture, or a share of its own size


@dataclass(frozen=True, slots=True)
class Listed:
    """Things of a file of lines: `Frame.found`; in the place of `Detect` and `Follow`.

    model  the file, as `--detections` writes it of this film
    mark   tells it from another; `watched` fills it in
    """

    model: str
    mark: str = ""

    name: ClassVar[str] = "detect"
    before: ClassVar[int] = 0
    after: ClassVar[int] = 0

    @property
    def workers(self) -> int:
        """A picture a core."""
        return workers_on(host())

    @property
    def label(self) -> str:
        """What messages call it."""
        return f"detect={short(self.model, PATH)}"

    def turned(self, look: Look) -> Look:
        """The same look. Refuses interlaced pictures, and what has no plane of luma."""
        check_luma(self.name, look)
        return look

    @property
    def unseen(self) -> bool:
        """Whether it has yet to be held against the film."""
        return not self.mark

    def watched(self, film: Film, progress: Callable[[int, int], None] | None = None) -> Listed:
        """Held against a film. Raises ArgumentError for lines of another one."""
        listed = _read(self.model, self.label)
        times = np.array([float(one * film.time_base) for one in film.times])
        for time, things in listed.items():
            if np.abs(times - time).min() > _NEAR:
                raise ArgumentError(
                    f"{self.label}: lists a picture at {time:.3f} s, where the film has none;"
                    " accepted are lines of this film"
                )
            if any(_outside(one, film.look) for one in things):
                raise ArgumentError(
                    f"{self.label}: lists things outside of {film.look.width}x"
                    f"{film.look.height} at {time:.3f} s; accepted are lines of a film so large"
                )
        return replace(self, mark=mark_of(Path(self.model), "detect"))

    def bound(self, look: Look) -> Work:
        """The lines, by time."""
        listed = _read(self.model, self.label)
        times = np.array(sorted(listed))

        def told(window: Window) -> Iterable[Frame]:
            frame = window.frame
            apart = np.abs(times - float(frame.time))
            if not apart.size or apart.min() > _NEAR:
                return (frame,)
            things = listed[float(times[int(apart.argmin())])]
            return (replace(frame, found=Found(frame.time, look.width, look.height, things)),)

        return told


def _outside(one: Thing, look: Look) -> bool:
    far = max(_OUT, one.long)
    return one.x < -far or one.y < -far or one.x + one.w > look.width + far or (
        one.y + one.h > look.height + far
    )  # fmt: skip


def _read(path: str, label: str) -> dict[float, tuple[Thing, ...]]:
    """Things by time. Raises ArgumentError for what are no such lines."""
    found: dict[float, tuple[Thing, ...]] = {}
    number = 0
    try:
        for line in Path(path).read_text(encoding="utf-8").splitlines():
            number += 1
            row = json.loads(line)
            time = float(row["time"])
            if not np.isfinite(time):
                raise ValueError("no time")
            found[time] = tuple(_thing(one) for one in row["things"])
    except OSError as error:
        why = f"cannot be read ({error.strerror})"
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError):
        why = f"line {number} is none"
    else:
        return found
    raise ArgumentError(f"{label}: {why}; accepted are lines that --detections wrote")


def _thing(one: Any) -> Thing:
    places = [float(one[key]) for key in ("score", "x", "y", "w", "h")]
    if not np.isfinite(places).all() or min(places[3:]) <= 0:
        raise ValueError("no box")
    return replace(Thing(str(one["class"]), *places), track=int(one["track"]))
