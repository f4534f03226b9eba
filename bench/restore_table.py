"""The tables of `bench.restore`: noise, JPEG, films, chroma, other types, pictures a second."""

from __future__ import annotations

import re
import statistics
from collections.abc import Callable, Sequence
from typing import Any

Entry = dict[str, Any]
_TYPES = ("float16", "int8")


def restored(document: dict[str, Any]) -> list[str]:
    """Lines of Markdown."""
    return [
        *_noise(document["noise"]),
        "",
        *_jpeg(document["jpeg"]),
        "",
        *_films(document["films"]),
        "",
        *_colour(document["colour"]),
        "",
        *_lost(document),
        "",
        *_speed(document["speed"]),
    ]


def mean(entry: Entry, way: str) -> float:
    """PSNR by a way, over the pictures of a case."""
    return statistics.fmean(entry["psnr"][way])


def gain(entry: Entry, way: str) -> float:
    """Decibels that a way adds."""
    return mean(entry, way) - mean(entry, "damaged")


def lost(entry: Entry, size: str, dtype: str, every: int) -> float:
    """Decibels that another type than float32 loses, on every so-manieth picture."""
    floats = entry["psnr"][size][::every]
    return statistics.fmean(floats) - mean(entry, f"{size}-{dtype}")


def _noise(cases: Sequence[Entry]) -> list[str]:
    lines = [
        "| noise, PSNR in dB | noisy | `nlmeans` | `bm3d`, the best way | `--size s` | `--size m` |"
        " m over the better filter |",
        "|---|---:|---:|---:|---:|---:|---:|",
    ]
    for case in cases:
        blocks = [mean(case, name) for name in case["psnr"] if name.startswith("bm3d")]
        means = mean(case, "nlmeans")
        ahead = mean(case, "m") - max(means, *blocks)
        cells = mean(case, "damaged"), means, max(blocks), mean(case, "s"), mean(case, "m")
        shown = " | ".join(f"{value:.2f}" for value in cells)
        lines.append(f"| {case['name']} | {shown} | {ahead:+.2f} |")
    return lines


def _jpeg(cases: Sequence[Entry]) -> list[str]:
    lines = [
        "| JPEG, PSNR in dB | damaged | ffmpeg's `deblock` | `--size s` | `--size m` |",
        "|---|---:|---:|---:|---:|",
    ]
    for case in cases:
        cells = [_filter(case), gain(case, "s"), gain(case, "m")]
        lines.append(f"| {case['name']} | {mean(case, 'damaged'):.2f} | {_signed(cells)} |")
    return lines


def _films(cases: Sequence[Entry]) -> list[str]:
    """By CRF: means over clips, and the clip that gains least."""
    lines = [
        "| films, PSNR in dB | damaged | ffmpeg's `deblock` | `--size s` | `--size m` |"
        " the least gain, s | the least gain, m |",
        "|---|---:|---:|---:|---:|---|---|",
    ]
    for crf in sorted({_crf(case) for case in cases}):
        mine = [case for case in cases if _crf(case) == crf]
        ways: tuple[Callable[[Entry], float], ...] = (_filter, _gainer("s"), _gainer("m"))
        gains = [statistics.fmean(way(case) for case in mine) for way in ways]
        before = statistics.fmean(mean(case, "damaged") for case in mine)
        least = " | ".join(_least(mine, size) for size in ("s", "m"))
        lines.append(
            f"| {len(mine)} clips, x264 CRF {crf} | {before:.2f} | {_signed(gains)} | {least} |"
        )
    return lines


def _least(cases: Sequence[Entry], size: str) -> str:
    found = min(cases, key=_gainer(size))
    return f"{gain(found, size):+.2f} ({found['name'].partition(',')[0]})"


def _colour(cases: Sequence[Entry]) -> list[str]:
    """Chroma of photographs case by case, of films by CRF."""
    lines = [
        "| chroma, PSNR in dB | damaged | `--size s` | `--size m` | the least gain, m |",
        "|---|---:|---:|---:|---|",
    ]
    still = [case for case in cases if "CRF" not in case["name"]]
    filmed = [case for case in cases if "CRF" in case["name"]]
    groups = [(f"{one['name']}, {one['pictures']} photographs", [one]) for one in still]
    for crf in sorted({_crf(case) for case in filmed}):
        mine = [case for case in filmed if _crf(case) == crf]
        groups.append((f"{len(mine)} clips, x264 CRF {crf}", mine))
    for name, mine in groups:
        before = statistics.fmean(mean(case, "damaged") for case in mine)
        gains = [statistics.fmean(gain(case, size) for case in mine) for size in ("s", "m")]
        least = _least(mine, "m") if len(mine) > 1 else ""
        lines.append(f"| {name} | {before:.2f} | {_signed(gains)} | {least} |")
    return lines


def _lost(document: dict[str, Any]) -> list[str]:
    """What types lose against float32."""
    still, films = [*document["noise"], *document["jpeg"]], document["films"]
    every = document["other_types_every"]
    head = [f"{size} in {dtype}" for dtype in _TYPES for size in ("s", "m")]
    lines = [
        "| lost against float32, dB | " + " | ".join(head) + " |",
        "|---|" + "---:|" * len(head),
    ]
    groups = [(case["name"], [case]) for case in still]
    for crf in sorted({_crf(case) for case in films}):
        mine = [case for case in films if _crf(case) == crf]
        groups.append((f"{len(mine)} clips, CRF {crf}", mine))
    for name, mine in groups:
        cells = [_cell(mine, size, dtype, every) for dtype in _TYPES for size in ("s", "m")]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return lines


def _cell(cases: Sequence[Entry], size: str, dtype: str, every: int) -> str:
    if any(f"{size}-{dtype}" not in case["psnr"] for case in cases):
        return "-"
    found = statistics.fmean(lost(case, size, dtype, every) for case in cases)
    return f"{round(found, 3) + 0.0:.3f}"  # no -0.000


def _gainer(way: str) -> Callable[[Entry], float]:
    return lambda case: gain(case, way)


def _filter(case: Entry) -> float:
    """What ffmpeg's filter adds, weak or strong, whichever is better."""
    return max(gain(case, name) for name in case["psnr"] if name.startswith("deblock"))


def _crf(case: Entry) -> int:
    found = re.search(r"CRF (\d+)", case["name"])
    assert found
    return int(found[1])


def _signed(values: Sequence[float]) -> str:
    return " | ".join(f"{value:+.2f}" for value in values)


def _speed(rates: dict[str, dict[str, float]]) -> list[str]:
    lines = ["| 640 × 480 4:2:0, pictures a second | float32 | float16 | int8 | ffmpeg |"]
    lines.append("|---|---:|---:|---:|---:|")
    for name, found in rates.items():
        cells = [f"{found[t]:.2f}" if t in found else "-" for t in ("float32", *_TYPES, "ffmpeg")]
        lines.append(f"| `{name}` | {' | '.join(cells)} |")
    return lines
