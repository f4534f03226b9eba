"""The table of layers of experts (bench/moe.py), in milliseconds."""

from __future__ import annotations

from typing import Any

_WAYS = ("tilewright", "liger", "_grouped_mm")


def layers(document: dict[str, Any]) -> list[str]:
    """Forward, forward and backward, and what is kept between them, ours and the peers'."""
    lines = [
        f"| ms (kept, MB) | {' | '.join(_WAYS)} |",
        "|---|---:|---:|---:|",
    ]
    for row in document["cases"]:
        for kind, title in (("forward_ms", "forward"), ("step_ms", "with gradients")):
            cells = []
            for name in _WAYS:
                way = row["ways"].get(name)
                cells.append(f"{way[kind]:.3f}" if way else "-")
                if way and kind == "forward_ms":
                    cells[-1] += f" ({way['kept_bytes'] / 1e6:.0f})"
            first, *others = cells
            lines.append(f"| {row['case']}, {title} | **{first}** | {' | '.join(others)} |")
    return lines
