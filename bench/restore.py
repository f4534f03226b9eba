"""Damage taken out by the stages' networks, beside what ffmpeg's filters take out of the same.

    python -m bench.restore IMAGES CLIPS [--only PART ...] [--seconds 500] [--output FILE]
    python -m bench.restore IMAGES CLIPS --only speed
    python -m bench.restore IMAGES CLIPS --again s s-int8

IMAGES holds test/. The same line goes on with pictures that are not in FILE yet, and ends after
--seconds, until it says that all is done; --again forgets figures of these ways first, as of
networks that learned anew. PSNR of whole pictures, of what is rounded to eight bits again; what the
parts are, `restore_cases.py` says. Other types than float32 see every fourth picture.
Speed wants the machine for itself.
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from bench.environment import RESULTS, environment
from bench.restore_cases import Case, NDArray, Planes, cases, filtered
from bench.restore_speed import speeds
from bench.timing import load_average
from tilewright.inputs.devices import host
from tilewright.video.look import Frame, Look
from tilewright.video.stages.contract import Stage, Window, Work

PARTS = ("noise", "jpeg", "films", "colour", "speed")
SIZES = ("s", "m")
_FOURTH = 4
_BATCH = 4  # pictures between two looks at the clock
_NUMBERS = re.compile(r"\[[-\d.,\s]+\]")  # a list of them, for one line
Way = Callable[[Sequence[Planes]], list[Planes]]


def main() -> None:
    """Read the command line and measure what is not measured yet."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.restore", description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.add_argument("images", type=Path)
    parser.add_argument("clips", type=Path)
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument("--again", nargs="+", default=[], help="ways, as s, m-int8, nlmeans")
    parser.add_argument("--seconds", type=float, default=500.0)
    parser.add_argument("--output", type=Path, default=RESULTS / "restore-cpu.json")
    options = parser.parse_args()
    until = time.monotonic() + options.seconds
    document = _document(options.output, options.only, options.again)
    for part in options.only:
        if part == "speed":
            document[part] = speeds()
            _write(document, options.output)
            continue
        for case in cases(part, options.images, options.clips):
            if not _measured(case, _entry(document, part, case), document, options.output, until):
                print("time is over; the same line goes on")
                return
    print("all is done")


def _document(path: Path, parts: Sequence[str], again: Sequence[str]) -> dict[str, Any]:
    """What is there, of this processor and these versions now."""
    document: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
    for part in parts:
        for entry in document.get(part, []) if part != "speed" else []:
            for way in again:
                entry["psnr"].pop(way, None)
    return document


def _write(document: dict[str, Any], path: Path) -> None:
    document["environment"] = environment(host())
    document["load_before"] = load_average()
    document["other_types_every"] = _FOURTH
    text = json.dumps(document, indent=1)
    path.write_text(_NUMBERS.sub(lambda found: " ".join(found[0].split()), text) + "\n")


def _entry(document: dict[str, Any], part: str, case: Case) -> dict[str, Any]:
    """The case's in the document, made where there is none."""
    entries: list[dict[str, Any]] = document.setdefault(part, [])
    for entry in entries:
        if entry["name"] == case.name:
            return entry
    entries.append({"name": case.name, "pictures": 0, "psnr": {}})
    return entries[-1]


def _measured(
    case: Case, entry: dict[str, Any], document: dict[str, Any], path: Path, until: float
) -> bool:
    """Whether all pictures of a case have their PSNR by all ways."""
    found = entry["psnr"]
    ways = _ways(case)
    count = range(entry["pictures"])
    if count and all(len(found.get(way, [])) == len(count[:: step_of(way)]) for way in ways):
        return True
    every = case.pairs()
    entry["pictures"] = len(every)
    for name, way in ways.items():
        values = found.setdefault(name, [])
        pairs = every[:: step_of(name)]
        while len(values) < len(pairs):
            if time.monotonic() > until:
                return False
            some = pairs[len(values) : len(values) + _BATCH]
            made = way([damaged for damaged, _ in some])
            values += [
                round(psnr(one[case.judged :], clean[case.judged :]), 4)
                for one, (_, clean) in zip(made, some, strict=True)
            ]
            _write(document, path)
    means = {name: round(statistics.fmean(values), 2) for name, values in found.items()}
    print(case.name, means, flush=True)
    return True


def step_of(way: str) -> int:
    """Every how manieth picture a way is measured on, by its name."""
    return _FOURTH if way.endswith(("-int8", "-float16")) else 1


def psnr(one: Planes, other: Planes) -> float:
    """Decibels between pictures of eight bits: of the mean square over all their samples."""
    apart = [(a.astype(np.float64) - b).ravel() for a, b in zip(one, other, strict=True)]
    return float(10 * np.log10(255**2 / max(1e-9, float((np.concatenate(apart) ** 2).mean()))))


def _ways(case: Case) -> dict[str, Way]:
    """What is done about a case, by name: nothing, ffmpeg's filters, and the stages."""
    found: dict[str, Way] = {"damaged": list}
    for size in SIZES:
        for dtype in case.types:
            name = size if dtype == "float32" else f"{size}-{dtype}"
            found[name] = partial(_staged, case.stage(size, dtype), case.deep, {})
    for name, text in case.filters.items():
        found[name] = partial(_filtered, text)
    return found


def _filtered(text: str, pictures: Sequence[Planes]) -> list[Planes]:
    with ThreadPoolExecutor(host().compute_units) as pool:
        return [(one,) for one in pool.map(lambda x: filtered(x[0], text), pictures)]


def _staged(
    stage: Stage, deep: bool, works: dict[Look, list[Work]], pictures: Sequence[Planes]
) -> list[Planes]:
    """Through the stage, as films (eight bits) or pictures (sixteen) go through it."""
    for picture in pictures:  # bound before threads, one for each
        look = _look(picture, deep)
        if look not in works:
            works[look] = [stage.bound(look) for _ in range(host().compute_units)]

    def one(picture: Planes) -> Planes:
        look = _look(picture, deep)
        work = works[look].pop()
        try:
            planes = tuple(x.astype(np.uint16) * 257 for x in picture) if deep else picture
            (made,) = work(Window(Frame(planes, 0, 1, Fraction(1, 25), look)))
            return tuple(_eight(x) if deep else x.copy() for x in made.planes)
        finally:
            works[look].append(work)

    with ThreadPoolExecutor(host().compute_units) as pool:
        return list(pool.map(one, pictures))


def _eight(plane: NDArray) -> NDArray:
    return (plane / 257).round().astype(np.uint8)


def _look(picture: Planes, deep: bool) -> Look:
    rows, columns = picture[0].shape
    if len(picture) == 3:
        halved = picture[1].shape != picture[0].shape
        name = "yuv420p" if halved else "yuv444p"
        look = Look(columns, rows, name, 8, "yuv", halved=(int(halved), int(halved)))
    else:
        look = Look(columns, rows, "gray", 8, "grey")
    return replace(look, format=f"{look.format}16le", bits=16) if deep else look


if __name__ == "__main__":
    main()
