"""Tables of networks and single convolutions on GPUs, and of others, by kind of file."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from bench.detect_table import detected
from bench.interpolate_table import interpolated
from bench.matting_table import matted
from bench.moe_table import layers
from bench.panel_table import large

Table = Callable[[dict[str, Any]], list[str]]


def net(document: dict[str, Any]) -> list[str]:
    """Whole networks beside a CUDA graph of cuDNN and torch.compile, in milliseconds."""
    peers = ("cudnn graph", "torch.compile")
    lines = [
        f"| ms | ours | {' | '.join(peers)} | error | host µs |",
        "|---|---:|" + "---:|" * (len(peers) + 2),
    ]
    for row in document["cases"]:
        ms = {name.split(" reduce")[0].split(" max")[0]: value for name, value in row["ms"].items()}
        beside = " | ".join(f"{ms[name]:.3f}" if name in ms else "-" for name in peers)
        ours = f"**{ms['tilewright']:.3f}** | {beside}"
        host = row["host_us"]["tilewright"]
        lines.append(f"| {row['case']} | {ours} | {row['errors']['tilewright']:.0e} | {host:.0f} |")
    return lines


def winograd(document: dict[str, Any]) -> list[str]:
    """3x3 layers in float32 by every way, in microseconds, and the errors."""
    ways = {
        "F(4, 3)": "winograd F(4, 3) by 8",
        "F(2, 3)": "winograd F(2, 3) by 8",
        "`triton`": "triton",
        "cuDNN": "cudnn",
        "cuDNN, channels first": "cudnn, channels first",
    }
    lines = [
        f"| µs | {' | '.join(ways)} | errors: F(4, 3) | F(2, 3) | `triton` |",
        "|---|" + "---:|" * (len(ways) + 3),
    ]
    for row in document["cases"]:
        images, channels, height, width = row["case"]
        several = f", {images} pictures" if images > 1 else ""
        times = {head: row["us"][way] for head, way in ways.items()}
        least = min(times.values())
        cells = [f"**{us:.1f}**" if us == least else f"{us:.1f}" for us in times.values()]
        errors = [f"{row['errors'][ways[head]]:.1e}" for head in ("F(4, 3)", "F(2, 3)", "`triton`")]
        name = f"{channels} → {channels} at {height} × {width}{several}"
        lines.append(f"| {name} | {' | '.join([*cells, *errors])} |")
    return lines


TABLES: dict[str, Table] = {
    "net": net,
    "winograd": winograd,
    "detect": detected,
    "interpolate": interpolated,
    "matting": matted,
    "moe": layers,
    "panel": large,
}
