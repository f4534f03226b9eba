"""Tables that a person reads in a terminal of 80 to 100 columns: devices, a ladder, memory ways."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from rich import box
from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from tilewright.facts.ceilings import bytes_text
from tilewright.facts.device import Device
from tilewright.inputs.devices import INSTALL_HINT
from tilewright.report.ladder import shares_memory
from tilewright.report.peers import NUMPY, SERIAL
from tilewright.report.records import PEER, Ladder, Rung
from tilewright.report.sampling import FULL
from tilewright.report.sheet import grey, sheet
from tilewright.tuning.timer import EVENT_RATIO
from tilewright.wording import counted

# Headings have two lines, so that figures set the width of their columns.
_CONFIGURATION = "\nconfiguration"
_JOULES = "\nmJ"
_ROOMY = 92
_MULTIPLY_ADD = {0: "a*b+c", 1: "mad", 2: "fma"}


def device_cards(devices: Sequence[Device]) -> RenderableType:
    """A card for each device, and how to get one where the host is alone."""
    parts: list[RenderableType] = [_card(device) for device in devices]
    if all(device.backend == "host" for device in devices):
        parts.append(only_host())
    return Group(*parts)


def only_host() -> Text:
    """What to say where there is no device but the host."""
    text = Text("No OpenCL device here, only the host's BLAS. This brings one:\n")
    return text.append(INSTALL_HINT, style="bold")


def _card(device: Device) -> Panel:
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column(overflow="fold")
    for label, value in _facts(device):
        grid.add_row(label, value)
    title = Text.assemble((device.id, "bold cyan"), "  ", (device.name, "bold"))
    return Panel(grid, title=title, title_align="left", box=box.ROUNDED, width=80)


def _facts(device: Device) -> Iterable[tuple[str, str]]:
    yield "vendor", f"{device.vendor} · {device.platform}"
    yield "driver", device.driver
    yield "kind", f"{device.kind}, {counted(device.compute_units, 'compute unit')}"
    yield "memory", f"{bytes_text(device.memory)}, {bytes_text(device.max_allocation)} in one piece"
    if device.local_memory:
        where = "on the chip" if device.local_memory_is_dedicated else "in the same DRAM"
        yield "local memory", f"{bytes_text(device.local_memory)} a work-group, {where}"
    marks = {"fp16": "float16", "fp64": "float64"}
    yield (
        "arithmetic",
        " · ".join(
            ["float32", *(f"{'' if device.has(f) else 'no '}{name}" for f, name in marks.items())]
        ),
    )
    if device.ceilings:
        found = (device.ceilings.best(dtype) for dtype in device.dtypes)
        parts = [f"{row.dtype} {row.value / 1e9:,.0f}" for row in found if row]
        yield "peak GFLOP/s", " · ".join(parts)
    if device.backend != "host":
        yield "images", _images(device)
        svm = [f.removeprefix("svm_") for f in sorted(device.features) if f.startswith("svm_")]
        shared = "" if device.has("unified_memory") else "not "
        yield "sharing", f"memory {shared}unified · SVM {', '.join(svm) or 'none'}"


def _images(device: Device) -> str:
    if not device.has("images"):
        return "none"
    on_buffer = "on buffers" if device.has("image_from_buffer") else "by copy only"
    return f"up to {device.image_width} × {device.image_height} texels, {on_buffer}"


def ladder_table(ladder: Ladder, width: int) -> RenderableType:
    """The table of a ladder with its notes; configurations only where `width` has room for them."""
    device, size = ladder.device, ladder.size
    title = f"{size} × {size} × {size} {ladder.dtype} on {device.id}, {device.name}"
    columns = dict(_columns(ladder))
    if width < _ROOMY:
        del columns[_CONFIGURATION]
        if all(rung.joules is None for rung in ladder.rungs):
            columns.pop(_JOULES, None)
    table = sheet(title, columns, _CONFIGURATION)
    for column in table.columns:
        if column.header == _CONFIGURATION:
            column.overflow, column.style, column.no_wrap = "fold", "dim", False
    for index, rung in enumerate(ladder.rungs):
        cells = (column[index] for column in columns.values())
        table.add_row(*cells, style=_style(ladder, rung))
    return Group(table, *grey(notes(ladder)), *_skipped(ladder), Text())


def _columns(ladder: Ladder) -> Iterable[tuple[str, list[str | Text]]]:
    """Heading and cells of every column."""
    rungs = ladder.rungs
    yield "\nkernel", [rung.name + ("*" if ladder.scaled(rung) else "") for rung in rungs]
    yield _CONFIGURATION, [_configuration(rung) for rung in rungs]
    yield "event\nms", [_event(rung) for rung in rungs]
    yield "wall\nms", [_ms(ladder.seconds(rung, rung.samples.wall)) for rung in rungs]
    if any(rung.end_to_end is not None for rung in rungs):
        yield "+ moves\nms", ["-" if r.end_to_end is None else _ms(r.end_to_end) for r in rungs]
    yield "\nGFLOP/s", [_short(rung.gflops) for rung in rungs]
    if ladder.ceiling:
        percents = (ladder.percent(rung) for rung in rungs)
        yield "% of\npeak", ["-" if value is None else f"{value:.0f}" for value in percents]
    if ladder.energy:
        counted = any(rung.joules is not None for rung in rungs)
        absent = "-" if counted else "none"
        yield _JOULES, [absent if r.joules is None else _short(1e3 * r.joules) for r in rungs]
    for heading, peer in (("×\nserial", SERIAL), ("×\nNumPy", NUMPY)):
        speedups = (ladder.speedup(rung, peer) for rung in rungs)
        yield heading, ["-" if speedup is None else _short(speedup) for speedup in speedups]
    yield "\nerror", [_error(ladder, rung) for rung in rungs]
    yield "CPU\n%", [f"{rung.samples.cpu_use * 100:.0f}" for rung in rungs]


def _event(rung: Rung) -> str | Text:
    if rung.samples.event is None:
        return "-"
    event = _ms(rung.samples.event)
    return Text(f"{event}!", style="bold red") if rung.samples.events_lie else event


def _error(ladder: Ladder, rung: Rung) -> str | Text:
    error = "NaN" if math.isnan(rung.error) else f"{rung.error:.1e}"
    return error if ladder.right(rung) else Text(f"{error} wrong", style="bold red")


def _style(ladder: Ladder, rung: Rung) -> str:
    if rung.kind == PEER:
        return "cyan"
    return "bold green" if rung is ladder.winner else ""


def _configuration(rung: Rung) -> str:
    """`64×64×16 4×4 v4`: tile m×n×k, outputs a work-item, vector; the rest by name."""
    settings = rung.settings
    tile = [str(settings.pop(name)) for name in ("tile_m", "tile_n", "tile_k") if name in settings]
    micro = [str(settings.pop(name)) for name in ("micro_m", "micro_n") if name in settings]
    parts = ["×".join(tile), "×".join(micro)]
    if "vector" in settings:
        parts.append(f"v{settings.pop('vector')}")
    if "multiply_add" in settings:
        value = settings.pop("multiply_add")
        parts.append(_MULTIPLY_ADD.get(value, str(value)))
    parts += [f"{name}={value}" for name, value in settings.items()]
    return " ".join(part for part in parts if part)


def legend() -> Text:
    """What holds for every ladder."""
    return Text(
        f"{FULL.warmups} warm-ups and the median of {FULL.repeats} runs where nothing else is said."
        " serial: one core, a compiled loop without BLAS (numpy.einsum). error: the largest,"
        " against float64, over the largest magnitude. configuration: tile m×n×k, outputs a"
        " work-item, vector width. CPU: 100 is one core.",
        style="dim",
    )


def notes(ladder: Ladder) -> Iterable[str]:
    """What a reader of this ladder's figures has to know besides."""
    fewer = [
        f"{rung.name} {rung.samples.warmups} and {rung.samples.repeats}"
        for rung in ladder.rungs
        if (rung.samples.warmups, rung.samples.repeats) != (FULL.warmups, FULL.repeats)
    ]
    if fewer:
        yield f"Slow, so fewer warm-ups and runs: {', '.join(fewer)}."
    scaled = [rung for rung in ladder.rungs if ladder.scaled(rung)]
    if scaled:
        yield f"* measured at {scaled[0].size}, time scaled by arithmetic to {ladder.size}."
    if any(rung.clock == "events" for rung in ladder.rungs):
        by_wall = [r.name for r in ladder.rungs if r.samples.events and r.clock == "wall"]
        but = f", of {', '.join(by_wall)} by the wall clock" if by_wall else ""
        yield f"GFLOP/s of kernels by device events{but}."
    if any(rung.samples.events_lie for rung in ladder.rungs):
        low, high = EVENT_RATIO
        yield f"! events lie: outside {low} to {high} of the wall clock of the same runs."
    if ladder.busy:
        yield (
            f"! something else had a part of the processor during {', '.join(ladder.busy)}: compare"
            " them with nothing, and measure again on a quiet machine."
        )
    if ladder.ceiling:
        rate = f"{ladder.ceiling.value / 1e9:,.0f} GFLOP/s"
        yield f"% of peak: of {rate}, measured by `tilewright peak`: {ladder.ceiling}."
    else:
        yield "% of peak: `tilewright peak` has not measured this device yet."
    if ladder.energy:
        yield f"mJ: of one product; {ladder.energy}."
    if any(rung.end_to_end is not None for rung in ladder.rungs):
        yield "+ moves: ms of one matmul from NumPy arrays to a NumPy array, transfers included."


def _skipped(ladder: Ladder) -> Iterable[RenderableType]:
    if ladder.skipped:
        table = Table.grid(padding=(0, 2))
        table.add_column(no_wrap=True, style="yellow")
        table.add_column(overflow="fold")
        for item in ladder.skipped:
            table.add_row(item.name, f"not run: {item.reason}")
        yield table


def memory_table(ladder: Ladder) -> RenderableType:
    """The three host-pointer ways, stage by stage."""
    title = f"host-pointer ways, {ladder.size} × {ladder.size} {ladder.dtype}, {ladder.device.id}"
    stages = ("create + fill ms", "run ms", "map back ms", "copied in", "copied back", "error")
    table = sheet(title, ("way", *stages), wrap=True)
    for way in ladder.memory:
        seconds = map(_ms, (way.create, way.run, way.map_back))
        moved = map(bytes_text, (way.create_bytes, way.map_back_bytes))
        table.add_row(way.way, *seconds, *moved, f"{way.error:.1e}")
    shared = "shares" if shares_memory(ladder.device) else "does not share"
    note = f"Bytes copied are counted, not measured: this device {shared} the host's memory."
    return Group(table, Text(note, style="dim"))


def _ms(seconds: float) -> str:
    return _short(seconds * 1e3, small=3)


def _short(value: float, small: int = 2) -> str:
    """About three significant digits, never an exponent."""
    digits = 0 if value >= 100 else 1 if value >= 10 else 2 if value >= 1 else small
    return f"{value:.{digits}f}"
