"""The tables of `bench.interpolate`: dropped pictures, still text, pictures a second."""

from __future__ import annotations

import statistics
from typing import Any

from bench.interpolate import MCI, means

_PLAIN, _ALL = MCI


def interpolated(document: dict[str, Any]) -> list[str]:
    """Lines of Markdown, of the parts that were measured."""
    parts = {"clips": _clips, "text": _text, "speed": _speed}
    lines: list[str] = []
    for name, made in parts.items():
        if name in document:
            lines += ["", *made(document[name])]
    return lines[1:]


def _clips(clips: dict[str, Any]) -> list[str]:
    lines = [
        "| every second picture made again, PSNR of luma in dB | the one before | both mixed |"
        " `minterpolate` (mci) | aobmc, bidir, vsbmc | `--interpolate 2` | over mci | over mixed |"
        " partly the nearer | the nearer |",
        "|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    rows = []
    for name, entry in clips.items():
        found, notes = means(entry), entry["notes"]
        row = [found[way] for way in ("copy", "mix", _PLAIN, _ALL, "stage")]
        row += [row[4] - row[2], row[4] - row[1]]
        counts = [_counted(notes, word) for word in ("parts", "the nearer")]
        rows.append(row)
        lines.append(_line(f"{name}, {len(entry['stage'])}", row) + "".join(counts))
    lines.append(_line("mean", [statistics.fmean(column) for column in zip(*rows, strict=True)]))
    lines[-1] += " | |"
    return lines


def _line(name: str, row: list[float]) -> str:
    cells = [f"{value:.2f}" for value in row[:5]] + [f"{value:+.2f}" for value in row[5:]]
    return f"| {name} | {' | '.join(cells)} |"


def _counted(notes: dict[str, int], word: str) -> str:
    return f" {sum(count for note, count in notes.items() if f': {word}' in note)} |"


def _text(clips: dict[str, Any]) -> list[str]:
    lines = [
        "| inside text that stands still, PSNR in dB | the one before | both mixed |"
        " `--interpolate 2` | over the one before |",
        "|---|---:|---:|---:|---:|",
    ]
    for name, entry in clips.items():
        copy, mix, stage = (means(entry)[way] for way in ("copy", "mix", "stage"))
        lines.append(f"| {name} | {copy:.2f} | {mix:.2f} | {stage:.2f} | {stage - copy:+.2f} |")
    return lines


def _speed(rates: dict[str, float]) -> list[str]:
    sizes = dict.fromkeys(name.split(", ")[0] for name in rates)
    counts = list(dict.fromkeys(name.split(", ")[1] for name in rates))
    words = {"1": "one thread", "own time": "a second of one thread's processor time"}
    heads = " | ".join(words.get(count, f"{count} threads") for count in counts)
    lines = [f"| pictures made a second, 4:2:0 | {heads} |", f"|---|{'---:|' * len(counts)}"]
    for size in sizes:
        cells = " | ".join(f"{rates[f'{size}, {count}']:.1f}" for count in counts)
        lines.append(f"| {size.replace('x', ' × ')} | {cells} |")
    return lines
