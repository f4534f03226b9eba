"""The tables of `bench.interpolate`: dropped pictures, still text, pictures a second."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable
from functools import partial
from typing import Any

from bench.interpolate import MCI, means

_PLAIN, _ALL = MCI


def interpolated(document: dict[str, Any]) -> list[str]:
    """Lines of Markdown, of the parts that were measured."""
    parts: dict[str, Callable[[Any], list[str]]] = {
        "clips": _clips, "text": _text, "speed": _speed,
        "speed, fuse-s": partial(_speed, how=", with `fuse-s`"),
    }  # fmt: skip
    lines: list[str] = []
    for name, made in parts.items():
        if name in document:
            lines += ["", *made(document[name])]
    return lines[1:]


def _clips(clips: dict[str, Any]) -> list[str]:
    lines = [
        "| every second picture made again, PSNR of luma in dB | the one before | both mixed |"
        " `minterpolate` (mci) | aobmc, bidir, vsbmc | `--interpolate 2` | over mci | over mixed |"
        " partly the nearer | the nearer | by `fuse-s` |",
        f"|---|{'---:|' * 10}",
    ]
    rows = []
    for name, entry in clips.items():
        found, notes = means(entry), entry["notes"]
        row = [found[way] for way in ("copy", "mix", _PLAIN, _ALL, "stage")]
        row += [row[4] - row[2], row[4] - row[1], found.get("fuse-s", math.nan) - row[4]]
        counts = [_counted(notes, word) for word in ("parts", "the nearer")]
        rows.append(row)
        lines.append(_line(f"{name}, {len(entry['stage'])}", row, "".join(counts)))
    row = [statistics.fmean(column) for column in zip(*rows, strict=True)]
    lines.append(_line("mean", row, " | |"))
    return lines


def _line(name: str, row: list[float], counts: str) -> str:
    cells = [f"{value:.2f}" for value in row[:5]] + [f"{value:+.2f}" for value in row[5:-1]]
    return f"| {name} | {' | '.join(cells)} |{counts} {_more(row[-1])} |"


def _more(gain: float) -> str:
    """Decibels; nothing where they were not measured."""
    return "" if math.isnan(gain) else f"{gain:+.2f}"


def _counted(notes: dict[str, int], word: str) -> str:
    return f" {sum(count for note, count in notes.items() if f': {word}' in note)} |"


def _text(clips: dict[str, Any]) -> list[str]:
    lines = [
        "| inside text that stands still, PSNR in dB | the one before | both mixed |"
        " `--interpolate 2` | over the one before | by `fuse-s` |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    for name, entry in clips.items():
        found = means(entry)
        copy, mix, stage = (found[way] for way in ("copy", "mix", "stage"))
        more = _more(found.get("fuse-s", math.nan) - stage)
        cells = f"{copy:.2f} | {mix:.2f} | {stage:.2f} | {stage - copy:+.2f} | {more}"
        lines.append(f"| {name} | {cells} |")
    return lines


def _speed(rates: dict[str, float], how: str = "") -> list[str]:
    sizes = dict.fromkeys(name.split(", ")[0] for name in rates)
    counts = list(dict.fromkeys(name.split(", ")[1] for name in rates))
    words = {"1": "one thread", "own time": "a second of one thread's processor time"}
    words |= {"own times": "a second of the processor's time by OpenCL"}
    words |= {"host's own times": "by the host's loops"}
    heads = " | ".join(words.get(count, f"{count} threads") for count in counts)
    lines = [f"| pictures made a second, 4:2:0{how} | {heads} |", f"|---|{'---:|' * len(counts)}"]
    for size in sizes:
        cells = " | ".join(f"{rates[f'{size}, {count}']:.1f}" for count in counts)
        lines.append(f"| {size.replace('x', ' × ')} | {cells} |")
    return lines
