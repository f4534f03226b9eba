"""A measured batch as a table of 100 columns, and as JSON with everything behind the table."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from tilewright.planning.deal import Floats
from tilewright.report.document import provenance
from tilewright.report.grouped_records import Planning, Report, Way
from tilewright.report.sheet import grey, sheet

SCHEMA = "tilewright-grouped/1"
_HEADS = (
    "\nway",
    "time\nms",
    "\nGFLOP/s",
    "% of\nceiling",
    "\nbalance",
    "plan\nms",
    "again\nms",
    "bind\nms",
    "\nerror",
)


def spread(work: Floats) -> float:
    """The busiest unit's work over the mean; 1 where there is none."""
    return float(work.max() / work.mean()) if work.any() else 1.0


def grouped_table(report: Report) -> RenderableType:
    """The table, what did not run and why, and what the columns mean."""
    title = (
        f"{report.title}: {len(report.m)} products, {report.dtype}, {report.flops / 1e9:,.3g} GFLOP"
        f" on {report.device.id}, {report.device.name}"
    )
    table = sheet(title, _HEADS)
    ran = [way for way in report.ways if way.skipped is None]
    fastest = min((way for way in ran if report.right(way)), key=lambda w: w.seconds, default=None)
    for way in ran:
        table.add_row(*_cells(report, way), style="bold green" if way is fastest else "")
    return Group(table, *grey(notes(report)), Text())


def _cells(report: Report, way: Way) -> Iterable[str | Text]:
    planning = way.planning
    auto = planning is not None and way.name.endswith("auto")
    yield f"{way.name}: {planning.chosen}" if planning and auto else way.name
    yield _ms(way.seconds)
    yield f"{report.flops / way.seconds / 1e9:,.1f}" if report.flops else "-"
    yield _share(report, way)
    if planning is None:
        yield from ("-",) * 4
    else:
        yield _balance(planning)
        yield from (_ms(planning.anew), _ms(planning.cached), _ms(planning.bind))
    error = f"{way.error:.1e}"
    yield error if report.right(way) else Text(f"{error} wrong", style="bold red")


def _share(report: Report, way: Way) -> str:
    if report.ceiling is None:
        return "not measured"
    if not report.flops:
        return "-"
    return f"{100 * report.flops / way.seconds / report.ceiling.rate:.0f}"


def _balance(planning: Planning) -> str:
    if planning.balance is None:
        return "-"
    return f"{spread(planning.balance.before):.2f} → {spread(planning.balance.after):.2f}"


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:.3f}" if seconds < 0.1 else f"{seconds * 1e3:,.1f}"


def notes(report: Report) -> Iterable[str]:
    """What a reader of the figures has to know besides."""
    for way in report.ways:
        if way.skipped is not None:
            yield f"not run: {way.name}: {way.skipped}."
        elif way.planning is not None and way.name.endswith("auto"):
            yield f"auto took {way.planning.reason}."
    if report.ceiling is None:
        yield "ceiling: not measured on this device."
    else:
        yield f"ceiling: {report.ceiling.rate / 1e9:,.0f} GFLOP/s, {report.ceiling.source}."
    yield (
        "time: median by the wall clock, ways in turns; tilewright.grouped_matmul makes its"
        " results, all others write to some that are there. balance: work of the busiest compute"
        " unit over the mean in the plan's model, as given → as planned. plan, again, bind:"
        " planning anew, found again, binding; in no time before. error: the largest against"
        " float64, over its problem's largest magnitude or √k. Padding itself is not timed."
    )


def document(report: Report) -> dict[str, Any]:
    """Plain JSON types: sizes, every way with every counted run, balance per compute unit."""
    ceiling = report.ceiling
    return {
        "schema": SCHEMA,
        **provenance(report.device),
        "batch": report.title,
        "dtype": report.dtype,
        "seed": report.seed,
        "flops": report.flops,
        **{name: getattr(report, name).tolist() for name in "mnk"},
        "ceiling": ceiling and {"gflops": ceiling.rate / 1e9, "source": ceiling.source},
        "ways": [_way(report, way) for way in report.ways],
    }


def _way(report: Report, way: Way) -> dict[str, Any]:
    if way.skipped is not None:
        return {"name": way.name, "skipped": way.skipped}
    return {
        "name": way.name,
        "ms": way.seconds * 1e3,
        "gflops": report.flops / way.seconds / 1e9,
        "error": way.error if math.isfinite(way.error) else None,
        "right": report.right(way),
        "samples_ms": [seconds * 1e3 for seconds in way.times],
        "plan": None if way.planning is None else _plan(way.planning),
    }


def _plan(planning: Planning) -> dict[str, Any]:
    balance = planning.balance
    return {
        "order": planning.chosen,
        "reason": planning.reason,
        "anew_ms": planning.anew * 1e3,
        "cached_ms": planning.cached * 1e3,
        "bind_ms": planning.bind * 1e3,
        "predicted_ms": None if planning.predicted is None else planning.predicted * 1e3,
        "balance_before": None if balance is None else balance.before.tolist(),
        "balance_after": None if balance is None else balance.after.tolist(),
    }
