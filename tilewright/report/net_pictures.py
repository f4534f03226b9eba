"""A network's profile as pictures: its operators under the roof, and bars of where time goes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tilewright.nn.profile import Row
from tilewright.report import plots
from tilewright.report.net_profile import CONV, OURS, NetProfile, kind_of
from tilewright.report.roofline import Placed, Point, Roofline
from tilewright.report.roofline_show import ROOF, draw_roof
from tilewright.wording import time_text

_REST = "#C9C9C9"
_MOST = 7  # operators with a colour of their own
_LARGEST = 900.0  # square points of the point that takes longest
_OTHERS = "others"


def draw_roofline(profile: NetProfile, path: Path, argument: str) -> None:
    """Rate over intensity, a point for each node or step, its area by time."""
    with plots.canvas(path, argument) as save:
        save(_roofline(profile))


def draw_bars(profile: NetProfile, path: Path, argument: str) -> None:
    """Where time goes: roofs before and after fusion, measured time, and that of peers."""
    with plots.canvas(path, argument) as save:
        save(_bars(profile))


def _roofline(profile: NetProfile) -> Any:
    """Nodes before fusion as rings, steps after it as discs."""
    from matplotlib.figure import Figure

    before, after = (
        [row for row in some if row.flops and row.bytes and _seconds(profile, row)]
        for some in (profile.before, profile.after)
    )
    figure = Figure(figsize=(9, 5.8), layout="constrained")
    axes = figure.add_subplot()
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    draw_roof(axes, _under(profile, [*before, *after]), plain=True)
    _draw_points(axes, profile, before, after)
    fastest = max((row.flops / _seconds(profile, row) for row in (*before, *after)), default=0.0)
    axes.set_ylim(top=max(axes.get_ylim()[1], 3 * fastest / 1e9))  # discs are large
    axes.xaxis.set_major_formatter("{x:,.10g}")
    axes.yaxis.set_major_formatter("{x:,.10g}")
    axes.set_xlabel("operations for each byte that is read or written")
    axes.set_ylabel("billions of operations a second (GFLOP/s)")
    axes.grid(color="#E3E3E3", linewidth=0.8)
    axes.set_axisbelow(True)
    plots.clean(axes, "top", "right")
    said = "how fast each operator runs" if profile.after else "how fast each operator could run"
    plots.head(axes, profile.device, f"{profile.title}: {said}, {profile.dtype}")
    return figure


def _seconds(profile: NetProfile, row: Row) -> float:
    """What a row took; at its roof where nothing was measured."""
    return row.least(profile.ceilings) if row.seconds is None else row.seconds


def _under(profile: NetProfile, rows: Iterable[Row]) -> Roofline:
    """The rows as points under the roof, as those of products are."""
    placed = []
    for row in rows:
        point = Point(row.name, row.dtype, row.flops, row.bytes, _seconds(profile, row))
        roof = row.flops / row.least(profile.ceilings)
        placed.append(Placed(point, roof, row.bound(profile.ceilings)))
    return Roofline(profile.device, profile.ceilings, profile.title, profile.dtype, tuple(placed))


def _draw_points(
    axes: Any, profile: NetProfile, before: Sequence[Row], after: Sequence[Row]
) -> None:
    """Circles whose area is time, a colour for each operator, the small ones on top."""
    colours = _palette(_stacks(profile))
    kinds = [_kind(profile, row) for row in (*before, *after)]
    longest = max((_seconds(profile, row) for row in (*before, *after)), default=1.0)
    points = [(row, False) for row in before] + [(row, True) for row in after]
    for row, filled in sorted(points, key=lambda point: -_seconds(profile, point[0])):
        seconds = _seconds(profile, row)
        colour = colours.get(_kind(profile, row), _REST)
        axes.scatter(
            row.intensity,
            row.flops / seconds / 1e9,
            s=max(14.0, _LARGEST * seconds / longest),
            facecolor=colour if filled else "none",
            edgecolor="white" if filled else colour,
            linewidth=0.8 if filled else 1.6,
            alpha=0.8,
            zorder=3,
        )
    others = {_OTHERS: _REST} if any(kind not in colours for kind in kinds) else {}
    shown = {name: colour for name, colour in colours.items() if name in kinds}
    for name, colour in {**shown, **others}.items():
        axes.scatter([], [], s=50, color=colour, label=name)
    axes.plot([], [], color=ROOF, linewidth=2, label="the most that was measured here")
    if after:
        ring = {"facecolor": "none", "edgecolor": plots.INK, "linewidth": 1.6}
        axes.scatter([], [], s=50, **ring, label="a node of the file, run by itself")
        axes.scatter([], [], s=50, color=plots.INK, label="a step of the network as it runs")
    title = "the larger, the more time it takes" if after else "the larger, the more time"
    axes.legend(loc="lower right", frameon=True, edgecolor="none", title=title, fontsize=9.5)


def _palette(bars: Mapping[str, Mapping[str, float]]) -> dict[str, str]:
    """A colour for each of the operators that take longest, the same in both pictures."""
    totals: dict[str, float] = {}
    for parts in bars.values():
        for name, seconds in parts.items():
            totals[name] = max(totals.get(name, 0.0), seconds)
    longest = sorted(totals, key=lambda name: -totals[name])[:_MOST]
    return dict(zip(longest, plots.LINES, strict=False))


def _bars(profile: NetProfile) -> Any:
    """Stacked bars, a part for each operator; what they have in common has one colour."""
    from matplotlib.figure import Figure

    bars = _stacks(profile)
    colours = _palette(bars)
    longest = max(sum(parts.values()) for parts in bars.values())
    unit, scale, digits = ("ms", 1e3, 3) if longest >= 1e-3 else ("µs", 1e6, 1)
    figure = Figure(figsize=(9, 1.9 + 0.55 * len(bars)), layout="constrained")
    axes = figure.add_subplot()
    names = list(bars)[::-1]
    for operator in (*colours, _OTHERS):
        _draw_part(axes, bars, names, operator, colours, scale)
    for at, name in enumerate(names):
        whole = sum(bars[name].values())
        text = f" {scale * whole:,.{digits}f} {unit}" if whole >= 1e-7 else f" {time_text(whole)}"
        axes.annotate(text, (scale * whole, at), va="center", fontsize=10)
    axes.set_yticks(range(len(names)), names)
    axes.set_xlim(0, 1.15 * scale * longest)
    axes.set_xlabel(f"{unit}: roofs are plain sums at the measured ceilings, all else was measured")
    axes.tick_params(axis="y", length=0)
    plots.clean(axes, "left", "top", "right")
    figure.legend(loc="outside lower center", ncols=4, frameon=False)
    plots.head(axes, profile.device, f"{profile.title}: where time goes, {profile.dtype}")
    return figure


def _draw_part(
    axes: Any,
    bars: Mapping[str, Mapping[str, float]],
    names: Sequence[str],
    operator: str,
    colours: Mapping[str, str],
    scale: float,
) -> None:
    """One operator's part of every bar, behind those that were drawn before it."""
    order = list(colours)
    before = order[: order.index(operator)] if operator in order else order
    widths, lefts = [], []
    for name in names:
        parts = bars[name]
        mine = parts.get(operator, 0.0)
        if operator == _OTHERS:
            mine = sum(seconds for part, seconds in parts.items() if part not in colours)
        widths.append(scale * mine)
        lefts.append(scale * sum(parts.get(part, 0.0) for part in before))
    if any(widths):
        colour = colours.get(operator, _REST)
        axes.barh(names, widths, left=lefts, color=colour, height=0.66, label=operator)


def _stacks(profile: NetProfile) -> dict[str, dict[str, float]]:
    """Seconds of each operator, by bar."""
    found = {"roof, before fusion": _sums(profile.before, profile, roof=True)}
    if profile.after:
        found["roof, after fusion"] = _sums(profile.after, profile, roof=True)
    if any(row.seconds is not None for row in profile.before):
        found[f"{OURS}, before fusion"] = _sums(profile.before, profile, roof=False)
    if any(row.seconds is not None for row in profile.after):
        found[f"{OURS}, after fusion"] = _sums(profile.after, profile, roof=False)
    found.update((peer.name, dict(peer.operators)) for peer in profile.peers)
    return found


def _sums(rows: Iterable[Row], profile: NetProfile, *, roof: bool) -> dict[str, float]:
    sums: dict[str, float] = {}
    for row in rows:
        seconds = row.least(profile.ceilings) if roof else row.seconds or 0.0
        kind = _kind(profile, row)
        sums[kind] = sums.get(kind, 0.0) + seconds
    return sums


def _kind(profile: NetProfile, row: Row) -> str:
    """The operator as the file has it; chains of convolutions are convolutions."""
    return CONV if row.operator.endswith(f" {CONV}") else kind_of(profile, row)
