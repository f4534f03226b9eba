"""A roofline as a table of 100 columns and as a picture; drawn in the ladder's style."""

from __future__ import annotations

import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from tilewright.facts.ceilings import READ, Bandwidth, bytes_text
from tilewright.report import plots
from tilewright.report.roofline import TOLERANCE, Placed, Roofline
from tilewright.report.sheet import grey, sheet

ROOF, _CACHE, _POINT, _ABOVE, _FAINT = "#222222", "#6B6B6B", "#0072B2", "#D55E00", "#6B6B6B"
_HEADS = (
    "\nwork",
    "flop\na byte",
    "time\nms",
    "\nGFLOP/s",
    "roof\nGFLOP/s",
    "% of\nroof",
    "bound by",
)


def table(roofline: Roofline) -> RenderableType:
    """The points, the slowest first, and the roof in words."""
    device = roofline.device
    shown = sheet(f"{roofline.title}, on {device.id}, {device.name}", _HEADS, "bound by")
    for placed in sorted(roofline.points, key=lambda placed: placed.share):
        point = placed.point
        shown.add_row(
            point.name,
            f"{point.intensity:,.1f}",
            f"{point.seconds * 1e3:,.3f}",
            f"{point.rate / 1e9:,.1f}",
            f"{placed.roof / 1e9:,.1f}",
            f"{100 * placed.share:.0f}",
            f"{placed.bound}, ABOVE" if placed.above else placed.bound,
            style="bold red" if placed.above else "",
        )
    lines = (*_roof(roofline), *(f"ERROR in the measurement: {error}" for error in roofline.errors))
    return Group(shown, *grey(lines), Text())


def _roof(roofline: Roofline) -> Iterable[str]:
    ceilings = roofline.ceilings
    peak = ceilings.peak(roofline.dtype)
    if peak:
        yield f"roof: {peak.value / 1e9:,.0f} GFLOP/s ({peak})."
    reads = _reads(roofline)
    if reads:
        parts = "; ".join(f"{row.value / 1e9:,.0f} GB/s at {bytes_text(row.size)}" for row in reads)
        yield f"memory: {parts}; a point has the bandwidth of its own working set."
    yield (
        f"measured {ceilings.date}. flop a byte: every operand moved once. A point more than"
        f" {100 * (TOLERANCE - 1):.0f} % above its roof is an error in the measurement."
    )


def _reads(roofline: Roofline) -> list[Bandwidth]:
    return sorted(
        (row for row in roofline.ceilings.bandwidths if row.path == READ), key=lambda r: r.size
    )


def draw(roofline: Roofline, path: Path, argument: str) -> None:
    """Draw it into `path`, a whole file or none."""
    with plots.canvas(path, argument) as save:
        save(_figure(roofline))


def _figure(roofline: Roofline) -> Any:
    """Rate over intensity, both logarithmic; a sloping line for each working set."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 5.8), layout="constrained")
    axes = figure.add_subplot()
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    draw_roof(axes, roofline)
    for placed in roofline.points:
        colour = _ABOVE if placed.above else _POINT
        style: dict[str, Any] = {"color": colour, "markersize": 6, "markeredgecolor": "white"}
        axes.plot(placed.point.intensity, placed.point.rate / 1e9, "o", **style)
    _name_points(axes, roofline)
    axes.xaxis.set_major_formatter("{x:,.10g}")
    axes.yaxis.set_major_formatter("{x:,.10g}")
    plots.frame(axes, "operations a byte, every operand moved once", "GFLOP/s")
    plots.head(axes, roofline.device, f"Roofline: {roofline.title}")
    return figure


def draw_roof(axes: Any, roofline: Roofline, *, plain: bool = False) -> None:
    """The roof over the points, a line for each working set; limits that hold both.

    plain: lines are named by what they bound, not by how it was measured.
    """
    peak = roofline.ceilings.peak(roofline.dtype)
    top = peak.value / 1e9 if peak else max(p.point.rate for p in roofline.points) / 1e9
    reads = _reads(roofline)
    intensities = [placed.point.intensity for placed in roofline.points]
    ridges = [top * 1e9 / row.value for row in reads]
    low = min([*intensities, *ridges], default=1) / 4
    high = max([*intensities, *ridges], default=1) * 4
    axes.set_xlim(low, high)
    start = min(ridges, default=low)
    axes.plot([start, high], [top, top], color=ROOF, linewidth=2)
    if peak:
        over = {"xytext": (0, 5), "textcoords": "offset points", "ha": "right"}
        said = f"arithmetic: {top:,.0f} GFLOP/s" if plain else str(peak)
        plots.readable(axes.annotate(said, (high, top), **over))
    # The smallest and the largest set bound the rest.
    for index, row in enumerate(reads):
        outer = index in (0, len(reads) - 1)
        ridge = top * 1e9 / row.value
        style = {"color": ROOF if outer else _CACHE, "linewidth": 2 if outer else 0.8}
        axes.plot([low, ridge], [low * row.value / 1e9, top], **style)
    if reads:
        _name_lines(axes, reads, low, top, plain)
    lowest = min((placed.point.rate for placed in roofline.points), default=top * 1e9) / 1e9
    axes.set_ylim(
        min(lowest, low * min((r.value for r in reads), default=1e18) / 1e9) / 2, 1.8 * top
    )


def _name_lines(axes: Any, reads: list[Bandwidth], low: float, top: float, plain: bool) -> None:
    """The outer two of the sloping lines: above all of them, and below."""

    def name(row: Bandwidth, at: float, **where: Any) -> None:
        text = f"{bytes_text(row.size)}: {row.value / 1e9:,.0f} GB/s"
        if plain:
            text = f"reading {text} at most"
        plots.readable(axes.annotate(text, (at, at * row.value / 1e9), fontsize=9, **where))

    if len(reads) > 1:
        first, at = reads[0], 1.6 * low
        over = (low * 1.05, 1.12 * top)  # no line is above the roof
        leader = {"arrowstyle": "-", "color": _FAINT, "linewidth": 0.6, "relpos": (0.15, 0)}
        name(first, at, xytext=over, va="bottom", arrowprops=leader)
    name(reads[-1], 1.4 * low, xytext=(8, -7), textcoords="offset points")


def spread(wanted: list[float], gap: float) -> list[float]:
    """Heights as near to the wanted ones as a gap between any two allows.

    `wanted` descends. Those that would touch are a group, which has its own middle for its middle.
    """
    groups: list[tuple[float, int]] = []  # middle, members
    for height in wanted:
        middle, count = height, 1
        while groups and groups[-1][0] - middle < gap * (groups[-1][1] + count) / 2:
            above, members = groups.pop()
            middle = (above * members + middle * count) / (members + count)
            count += members
        groups.append((middle, count))
    return [
        middle + gap * ((count - 1) / 2 - place)
        for middle, count in groups
        for place in range(count)
    ]


def _name_points(axes: Any, roofline: Roofline) -> None:
    """Names right of their points, spread where points are close, each led to its own."""
    low, high = axes.get_ylim()
    gap = math.log(high / low) * 0.029  # a line of text on this figure
    columns: dict[float, list[Placed]] = {}
    for placed in sorted(roofline.points, key=lambda placed: -placed.point.rate):
        columns.setdefault(placed.point.intensity, []).append(placed)
    for at, column in columns.items():
        heights = spread([math.log(placed.point.rate / 1e9) for placed in column], gap)
        for placed, height in zip(column, heights, strict=True):
            colour = _ABOVE if placed.above else _FAINT
            axes.annotate(
                placed.point.name,
                (at, placed.point.rate / 1e9),
                xytext=(at * 1.28, math.exp(height)),
                fontsize=9,
                va="center",
                color=colour,
                arrowprops={
                    **{"arrowstyle": "-", "color": colour, "linewidth": 0.6, "relpos": (0, 0.5)},
                    **{"shrinkA": 1, "shrinkB": 4},
                },
            )
