"""A device's ceilings as a table of 100 columns, as a picture, and as JSON with every row."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from tilewright.facts.ceilings import FMA, Bandwidth, Ceilings, Rate, bytes_text
from tilewright.facts.device import Device
from tilewright.report import plots
from tilewright.report.document import provenance
from tilewright.report.sheet import grey, sheet

SCHEMA = "tilewright-peak/1"
_BEST, _OTHER = "#0072B2", "#56B4E9"


def winners(ceilings: Ceilings) -> tuple[Rate, ...]:
    """The fastest row of every type and way; `fma` is always among them where it was measured."""
    order = list(dict.fromkeys((rate.dtype, rate.way) for rate in ceilings.rates))
    found = (ceilings.best(dtype, way) for dtype, way in order)
    return tuple(rate for rate in found if rate is not None)


def table(device: Device, ceilings: Ceilings) -> RenderableType:
    """Rates, bandwidths, latencies, and what is to be known besides."""
    return Group(
        _rates(device, ceilings),
        _bandwidths(ceilings),
        _latencies(ceilings),
        *grey(notes(ceilings)),
        Text(),
    )


def _table(title: str, *heads: str) -> Table:
    return sheet(title, heads, "way", "clock", gap=2, wrap=True)


def _rates(device: Device, ceilings: Ceilings) -> Table:
    title = f"Multiply-add on {device.id}, {device.name}"
    shown = _table(title, "type", "way", "vector", "chains", "GOP/s", "% of type", "clock")
    for rate in winners(ceilings):
        best = ceilings.best(rate.dtype)
        assert best is not None
        shown.add_row(
            rate.dtype,
            rate.way,
            str(rate.vector or "-"),
            str(rate.chains or "-"),
            _number(rate.value / 1e9),
            f"{100 * rate.value / best.value:.0f}",
            rate.clock,
            style="bold green" if rate is best else "",
        )
    return shown


def _bandwidths(ceilings: Ceilings) -> Table:
    shown = _table("Bandwidth", "path", "working set", "GB/s", "clock")
    for row in ceilings.bandwidths:
        shown.add_row(row.path, bytes_text(row.size), _number(row.value / 1e9), row.clock)
    return shown


def _latencies(ceilings: Ceilings) -> Table:
    shown = _table("Latency", "what", "µs", "clock")
    for row in ceilings.latencies:
        shown.add_row(row.what, _number(row.value * 1e6), row.clock)
    return shown


def notes(ceilings: Ceilings) -> Iterable[str]:
    """What a reader of the figures has to know besides."""
    tried = len(ceilings.rates)
    yield (
        f"measured {ceilings.date}: the least time of the repeats, the best of {tried} rows of"
        " multiply-adds; an operation is a multiplication or an addition. --json has every row."
    )
    for dtype in dict.fromkeys(rate.dtype for rate in ceilings.rates):
        best, fma = ceilings.best(dtype), ceilings.best(dtype, FMA)
        if best and fma and fma.value < 0.5 * best.value:
            yield (
                f"fma of {dtype} reaches {100 * fma.value / best.value:.0f} % of {best.way}: it is"
                " emulated, or not built in."
            )
    if ceilings.lies:
        few = "; ".join(ceilings.lies[:3])
        more = f" and {len(ceilings.lies) - 3} more" if len(ceilings.lies) > 3 else ""
        yield (
            f"! the device's timer lies: its times of {few}{more} cannot be true beside the wall"
            " clock of the same runs. The wall clock counts there."
        )
    if ceilings.busy:
        yield (
            f"! during {len(ceilings.busy)} rows something else had a part of the processor or"
            " of the device; on a machine at rest `tilewright peak --again` may find more."
        )
    for reason in dict.fromkeys(reason for _, reason in ceilings.skipped):
        rows = [name for name, why in ceilings.skipped if why == reason]
        yield f"not measured: {', '.join(rows)}: {reason}"


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:,.1f}" if value >= 10 else f"{value:,.2f}"


def document(device: Device, ceilings: Ceilings) -> dict[str, Any]:
    """Plain JSON types: where and with what, and `figures`."""
    return {"schema": SCHEMA, **provenance(device), **figures(ceilings)}


def figures(ceilings: Ceilings) -> dict[str, Any]:
    """The winners by name, and every row."""
    return {
        "peaks_gops": {str(rate): rate.value / 1e9 for rate in winners(ceilings)},
        "ceilings": ceilings.as_dict(),
    }


def draw(device: Device, ceilings: Ceilings, path: Path, argument: str) -> None:
    """Rates as bars beside bandwidth over working set, into `path`, a whole file or none."""
    with plots.canvas(path, argument) as save:
        from matplotlib.figure import Figure

        height = max(4.6, 1.6 + 0.3 * len(winners(ceilings)))
        figure = Figure(figsize=(12, height), layout="constrained")
        left, right = figure.subplots(1, 2)
        _draw_rates(left, ceilings)
        _draw_bandwidths(right, ceilings)
        beside = ", beside other work" if ceilings.busy else ""
        plots.head(left, device, f"Measured ceilings{beside}")
        save(figure)


def _draw_rates(axes: Any, ceilings: Ceilings) -> None:
    rates = winners(ceilings)[::-1]
    names = [f"{rate.dtype} {rate.way}" for rate in rates]
    colours = [_BEST if rate is ceilings.best(rate.dtype) else _OTHER for rate in rates]
    bars = axes.barh(names, [rate.value / 1e9 for rate in rates], color=colours, height=0.72)
    axes.bar_label(bars, [_number(rate.value / 1e9) for rate in rates], padding=5, fontsize=10)
    axes.set_xlim(0, 1.2 * max(rate.value for rate in rates) / 1e9)
    axes.xaxis.set_major_formatter("{x:,.0f}")
    axes.set_xlabel("GOP/s, the best vector width and number of chains")
    axes.tick_params(axis="y", length=0)
    plots.clean(axes, "left", "top", "right")


def _draw_bandwidths(axes: Any, ceilings: Ceilings) -> None:
    from matplotlib.ticker import LogLocator, NullLocator

    paths = list(dict.fromkeys(row.path for row in ceilings.bandwidths))
    for index, path in enumerate(paths):
        rows: list[Bandwidth] = sorted(
            (row for row in ceilings.bandwidths if row.path == path), key=lambda row: row.size
        )
        axes.plot(
            [row.size for row in rows],
            [row.value / 1e9 for row in rows],
            marker=plots.MARKERS[index % len(plots.MARKERS)],
            color=plots.LINES[index % len(plots.LINES)],
            label=path,
        )
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    sizes = sorted({row.size for row in ceilings.bandwidths})[::2]
    axes.set_xticks(sizes, [bytes_text(size) for size in sizes], rotation=45, fontsize=9)
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_major_formatter("{x:,.10g}")
    axes.yaxis.set_minor_locator(NullLocator())
    plots.frame(axes, "working set", "GB/s", "y")
    axes.legend(frameon=False, fontsize=9)
