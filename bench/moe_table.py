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


def measured_layers(layers: dict[str, Any]) -> list[str]:
    """Layers as bench.gpu has them: rested, steady, cold, ours and the peers', and the host's."""
    lines = [
        "| ms, rested / steady / cold | tilewright | _grouped_mm | loop | host µs |",
        "|---|---:|---:|---:|---:|",
    ]
    for row in layers["cases"]:
        for kind, title in (("forward", "forward"), ("step", "with gradients")):
            cells = []
            for name in ("tilewright", "_grouped_mm", "loop"):
                way = row["ways"].get(name, {}).get(kind)
                figures = ("ms", "steady_ms", "cold_ms")
                cells.append(" / ".join(f"{way[figure]:.2f}" for figure in figures) if way else "-")
            host = row["ways"]["tilewright"][kind]["host_us"]
            first, *others = cells
            lines.append(
                f"| {row['case']}, {title} | **{first}** | {' | '.join(others)} | {host:.0f} |"
            )
    return lines
