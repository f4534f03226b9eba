"""What was found in a film as a file of JSON lines: a line a picture, in the order of time.

    {"frame": 3, "time": 0.12, "things": [
        {"class": "ball", "score": 0.97, "x": 31.2, "y": 40.5, "w": 12.1, "h": 11.8, "track": 1}]}

Time is in seconds of the film that is written, places are its samples (left, top, width, height).
A thing that is seen again has the same track. Pictures come from the chunks of a run, so that a run
that was killed and goes on, or one of many workers, gives the same lines.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

from tilewright.errors import ArgumentError
from tilewright.files.whole import check_writable, path_of, replacing
from tilewright.video.detection.things import Thing
from tilewright.video.detection.tracks import tracked
from tilewright.wording import PATH, counted, short

SUFFIXES = (".jsonl", ".ndjson")
Row = Sequence[Any]  # a picture's time stamp, and its things as `things.plain` gives them


def checked(path: Any) -> Path:
    """A file that lines can go to. Raises ArgumentError for another suffix, FileError."""
    target = path_of(path, "detections")
    if target.suffix.lower() not in SUFFIXES:
        raise ArgumentError(
            f"detections={short(str(target), PATH)}: suffix {target.suffix!r}; accepted are"
            f" {', '.join(SUFFIXES)}"
        )
    check_writable(target, "detections")
    return target


def lines(rows: Iterable[Row], time_base: Fraction) -> Iterator[dict[str, Any]]:
    """What a file holds, a picture each, with tracks."""
    ordered = sorted(rows, key=lambda row: row[0])
    times = [row[0] * time_base for row in ordered]
    things = [[Thing(*one) for one in row[1]] for row in ordered]
    numbers = tracked(((float(t), some) for t, some in zip(times, things, strict=True)), exact=True)
    for number, (time, some, tracks) in enumerate(zip(times, things, numbers, strict=True)):
        listed = [
            {"class": one.kind, "score": one.score, "x": one.x, "y": one.y, "w": one.w, "h": one.h,
             "track": track}
            for one, track in zip(some, tracks, strict=True)
        ]  # fmt: skip
        yield {"frame": number, "time": float(time), "things": listed}


def written(rows: Iterable[Row], time_base: Fraction, path: Path) -> None:
    """The file, whole or not at all. Raises FileError where it cannot be written."""
    with replacing(path, "detections") as temporary, temporary.open("w") as file:
        for line in lines(rows, time_base):
            file.write(json.dumps(line) + "\n")


def summed(rows: Iterable[Row], time_base: Fraction) -> list[str]:
    """How many of each class there were, and in how many tracks of two pictures and more.

    A line that nothing was found where pictures were looked at and nothing was.
    """
    boxes: Counter[str] = Counter()
    tracks: dict[str, Counter[int]] = {}
    looked = 0
    for line in lines(rows, time_base):
        looked += 1
        for one in line["things"]:
            boxes[one["class"]] += 1
            tracks.setdefault(one["class"], Counter())[one["track"]] += 1
    if looked and not boxes:
        return [f"nothing found in {counted(looked, 'picture')}"]
    return [
        f"{name}: seen {counted(boxes[name], 'time')},"
        f" {counted(sum(n > 1 for n in tracks[name].values()), 'track')}"
        for name in sorted(boxes)
    ]
