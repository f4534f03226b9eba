"""Boxes in a table that a person corrects: `tilewright label` proposes them, a recipe learns.

    frame,time,class,x,y,w,h,score,keep
    12,0.48,ball,31.2,40.5,12.1,11.8,0.91,1

A row a box: number and time (seconds) of the picture, class, left, top, width and height in
samples, how sure the network was, and whether the box is right: 1, or 0. A picture without a box
has one row with class, places and score left empty: it was looked at, and nothing is in it. To
correct a table is to write 0 for wrong boxes, to change classes and places, and to add rows for
what was missed.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tilewright.errors import FileError
from tilewright.files.whole import replacing
from tilewright.video.detection.things import Thing
from tilewright.wording import PATH, short

COLUMNS = ("frame", "time", "class", "x", "y", "w", "h", "score", "keep")
_YES, _NO = ("1", "yes", "true"), ("0", "no", "false")


@dataclass(frozen=True, slots=True)
class Labelled:
    """A picture of a film, and what is in it.

    frame  its number, from 0 on
    time   in seconds
    """

    frame: int
    time: float
    things: tuple[Thing, ...]


def write(path: Path, pictures: Iterable[Labelled]) -> int:
    """Write a table, whole or not at all; gives how many boxes it has."""
    count = 0
    with (
        replacing(path, "labels") as temporary,
        temporary.open("w", newline="", encoding="utf-8") as file,
    ):
        rows = csv.writer(file)
        rows.writerow(COLUMNS)
        for one in pictures:
            begin = (one.frame, f"{one.time:.6f}")
            for thing in one.things:
                places = (f"{value:g}" for value in (thing.x, thing.y, thing.w, thing.h))
                rows.writerow((*begin, thing.kind, *places, f"{thing.score:g}", 1))
                count += 1
            if not one.things:
                rows.writerow((*begin, *[""] * 6, 1))
    return count


def read(path: Path) -> list[Labelled]:
    """The pictures of a table, in the order of time, with those boxes alone that are kept.

    Raises FileError naming the column or the row that is none.
    """
    label = f"labels={short(str(path), PATH)}"
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            rows = list(csv.reader(file))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        why = getattr(error, "strerror", None) or str(error)
        raise FileError(f"{label}: cannot be read ({why}); accepted is a table (CSV)") from None
    header = [one.strip().lower() for one in rows[0]] if rows else []
    if sorted(header) != sorted(COLUMNS):
        raise FileError(f"{label}: columns {header}; accepted are {', '.join(COLUMNS)}")
    found: dict[int, tuple[float, list[Thing]]] = {}
    for number, row in enumerate(rows[1:], 2):
        if not any(one.strip() for one in row):
            continue
        if len(row) != len(header):
            raise FileError(f"{label}: row {number} has {len(row)} values; accepted are 9")
        values = {name: one.strip() for name, one in zip(header, row, strict=True)}
        _taken(values, f"{label}: row {number}", found)
    return [Labelled(frame, *_of(found[frame])) for frame in sorted(found)]


def _of(found: tuple[float, Sequence[Thing]]) -> tuple[float, tuple[Thing, ...]]:
    return found[0], tuple(found[1])


def _taken(
    values: Mapping[str, str], label: str, found: dict[int, tuple[float, list[Thing]]]
) -> None:
    """A row among the pictures. Raises FileError naming what it is not."""
    keep = values["keep"].lower()
    if keep not in (*_YES, *_NO):
        raise FileError(f"{label}: keep={values['keep']!r}; accepted are 1 and 0")
    frame = int(_number(values, "frame", label, 0, whole=True))
    time = _number(values, "time", label, None)
    things = found.setdefault(frame, (time, []))[1]
    if keep in _NO or not (values["class"] or values["w"]):
        return
    if not values["class"]:
        raise FileError(f"{label}: class is empty; accepted is a name")
    x, y = (_number(values, name, label, None) for name in "xy")
    w, h = (_number(values, name, label, 0) for name in "wh")
    if w == 0 or h == 0:
        raise FileError(f"{label}: w={w:g}, h={h:g}; accepted are more than 0")
    score = _number(values, "score", label, 0) if values["score"] else 1.0
    things.append(Thing(values["class"], score, x, y, w, h))


def _number(
    values: Mapping[str, str], name: str, label: str, least: float | None, whole: bool = False
) -> float:
    """A number that is not below `least`. Raises FileError."""
    try:
        found = float(values[name])
    except ValueError:
        found = float("nan")
    fits = abs(found) < 1e9 and (least is None or found >= least)
    if not fits or (whole and found != int(found)):
        kind = "a whole number" if whole else "a number"
        more = "" if least is None else f" from {least:g} on"
        raise FileError(f"{label}: {name}={values[name]!r}; accepted is {kind}{more}")
    return found
