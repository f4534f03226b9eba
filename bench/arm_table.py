"""The tables of `bench.arm`: shares of peaks, and the network's time beside Bolt's."""

from __future__ import annotations

from typing import Any

_TILES = {
    "products": "one-bit products",
    "windows": "one-bit convolutions",
    "sums": "convolutions of float32",
    "grouped": "small products of float32",
    "whole": "convolutions of int8",
    "bytes": "batches of int8",
    "brains": "batches of bfloat16",
}


def modelled(document: dict[str, Any]) -> list[str]:
    """Lines of Markdown."""
    lines = [
        f"| share of the core's peak | {' | '.join(_TILES.values())} |",
        "|---|" + "---:|" * len(_TILES),
    ]
    for core in document["cores"]:
        cells = [f"{100 * core['shares'][tile]:.0f} %" for tile in _TILES]
        lines.append(f"| {core['name']}, model of {core['model']} | {' | '.join(cells)} |")
    lines += [
        "",
        "| Bi-Real-Net-18, ms | bits | reals | others | modelled, not run | Bolt 0.2 there"
        " | Bolt's best |",
        "|---|---:|---:|---:|---:|---:|---:|",
    ]
    for row in document["networks"]:
        parts = row["ms"]
        cells = [f"{parts[name]:.1f}" for name in ("bits", "reals", "others")]
        cells.append(f"**{sum(parts.values()):.1f}**")
        cells += [
            "" if row[name] is None else f"{row[name]:.1f}" for name in ("bolt_ms", "bolt_best_ms")
        ]
        lines.append(f"| {row['core']}, {row['device']}, {row['ghz']} GHz | {' | '.join(cells)} |")
    return lines
