"""The tables of `bench.restore`: noise, JPEG, films, pictures a second."""

from __future__ import annotations

import re
import statistics
from typing import Any


def restored(document: dict[str, Any]) -> list[str]:
    """Lines of Markdown."""
    return [
        *_noise(document["noise"]),
        "",
        *_jpeg(document["jpeg"]),
        "",
        *_films(document["films"]),
        "",
        *_speed(document["speed"]),
    ]


def _noise(cases: list[dict[str, Any]]) -> list[str]:
    lines = [
        "| noise, PSNR in dB | noisy | `nlmeans` | `bm3d`, the best way | `--size s` | `--size m` |"
        " m over the better filter |",
        "|---|---:|---:|---:|---:|---:|---:|",
    ]
    for case in cases:
        psnr = case["psnr"]
        blocks = [value for name, value in psnr.items() if name.startswith("bm3d")]
        best = max(blocks, default=None)
        ahead = psnr["m"] - max(psnr["nlmeans"], best or 0.0)
        cells = [psnr["damaged"], psnr["nlmeans"], best, psnr["s"], psnr["m"]]
        shown = " | ".join("-" if value is None else f"{value:.2f}" for value in cells)
        lines.append(f"| {case['name']} | {shown} | {ahead:+.2f} |")
    return lines


def _jpeg(cases: list[dict[str, Any]]) -> list[str]:
    lines = [
        "| JPEG, PSNR in dB | damaged | ffmpeg's `deblock` | `--size s` | `--size m` |",
        "|---|---:|---:|---:|---:|",
    ]
    for case in cases:
        psnr = case["psnr"]
        before = psnr["damaged"]
        cells = [_filter(psnr) - before, *(psnr[way] - before for way in ("s", "m"))]
        lines.append(f"| {case['name']} | {before:.2f} | {_signed(cells)} |")
    return lines


def _films(cases: list[dict[str, Any]]) -> list[str]:
    """By CRF: means over clips, and the clip that gains least."""
    lines = [
        "| films, PSNR in dB | damaged | ffmpeg's `deblock` | `--size s` | `--size m` |"
        " the least gain, m |",
        "|---|---:|---:|---:|---:|---|",
    ]
    for crf in sorted({_crf(case) for case in cases}):
        mine = [case for case in cases if _crf(case) == crf]
        gains = [
            statistics.fmean(way(case["psnr"]) - case["psnr"]["damaged"] for case in mine)
            for way in (_filter, _way("s"), _way("m"))
        ]
        before = statistics.fmean(case["psnr"]["damaged"] for case in mine)
        least = min(mine, key=lambda case: case["psnr"]["m"] - case["psnr"]["damaged"])
        name = least["name"].partition(",")[0]
        gain = least["psnr"]["m"] - least["psnr"]["damaged"]
        lines.append(
            f"| {len(mine)} clips, x264 CRF {crf} | {before:.2f} | {_signed(gains)} |"
            f" {gain:+.2f} ({name}) |"
        )
    return lines


def _way(name: str) -> Any:
    return lambda psnr: psnr[name]


def _filter(psnr: dict[str, float]) -> float:
    """ffmpeg's filter, weak or strong, whichever is better."""
    return max(value for name, value in psnr.items() if name.startswith("deblock"))


def _crf(case: dict[str, Any]) -> int:
    found = re.search(r"CRF (\d+)", case["name"])
    assert found
    return int(found[1])


def _signed(values: list[float]) -> str:
    return " | ".join(f"{value:+.2f}" for value in values)


def _speed(networks: dict[str, dict[str, float]]) -> list[str]:
    lines = ["| 640 × 480 4:2:0, pictures a second | float32 | int8 |", "|---|---:|---:|"]
    for name, rate in networks.items():
        whole = f"{rate['int8']:.1f}" if "int8" in rate else "-"
        lines.append(f"| `{name}` | {rate['float32']:.1f} | {whole} |")
    return lines
