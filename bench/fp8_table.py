"""The tables of `bench.fp8`: products of groups of rows, weight gradients, int8, quantising."""

from __future__ import annotations

from typing import Any

_ROWS = {
    "tilewright, row": "ours, row",
    "torch, row": "torch, row",
    "tilewright, 1x128, 128x128": "ours, blocks",
    "tilewright, bf16": "ours, bf16",
    "torch, bf16": "torch, bf16",
}
_INT8 = {
    "tilewright, int32": "ours, int32",
    "tilewright, bf16": "ours, scales of rows, bf16",
    "torch, int32, a loop": "torch, a loop of `_int_mm`",
}
_DEPTHS = {
    "tilewright, 1x128, 128x128": "ours, 128 x 128 of y",
    "tilewright, 1x128, 128x1": "ours, 128 x 1 of y",
    "tilewright, bf16": "ours, bf16",
    "torch, bf16": "torch, bf16",
}


def products(document: dict[str, Any]) -> list[str]:
    """Lines of Markdown."""
    quantised = ["| quantising 32768 x 7168 of bf16 | ms | GB/s |", "|---|---:|---:|"]
    quantised += [
        f"| {row['kind']} | {row['ms']:.3f} | {row['gb_s']:.0f} |" for row in document["quantising"]
    ]
    return [
        *_table("ms (TFLOP/s)", document["cases"], _ROWS),
        "",
        *_table("weight gradients, ms (TFLOP/s)", document["depths"], _DEPTHS),
        "",
        *_table("int8, ms (TOP/s)", document.get("int8", []), _INT8),
        "",
        *quantised,
    ]


def _table(title: str, rows: list[dict[str, Any]], ways: dict[str, str]) -> list[str]:
    lines = [f"| {title} | {' | '.join(ways.values())} |", "|---|" + "---:|" * len(ways)]
    for row in rows:
        cells = []
        for name in ways:
            way = row["ways"].get(name)
            cells.append(f"{way['ms']:.3f} ({way['tflops']:.0f})" if way else "-")
        lines.append(f"| {row['case']} | {' | '.join(cells)} |")
    return lines
