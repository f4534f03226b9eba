"""Where a network's time goes: its nodes under the roof, before and after fusion, beside peers.

schema   "tilewright-net-profile/1"; date, commit, versions, host, device as in document.py
title    of the network;  sizes  of its inputs;  dtype  that it was bound for
before   a row for each node of the file;  after  one for each step after fusion:
    name, operator, covers, shape, dtype, flops, bytes, flops_per_byte
    least_ms   the roof: the least time at the device's measured ceilings;  bound  by what
    engine, ms, share   what ran it, median, least_ms / ms; null where nothing was measured
    predicted_ms, reason   what the engine said when it was chosen; null where none was
seconds  of whole runs, medians in turns: "tilewright", and each peer by its name
peers    [{"name", "operators": {name: ms}}] by their own profilers
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from tilewright.facts.ceilings import Ceilings
from tilewright.facts.device import Device
from tilewright.nn.graph import Shape
from tilewright.nn.profile import VIEWS, Row, by_operator
from tilewright.report.document import provenance
from tilewright.report.roofline import TOLERANCE
from tilewright.report.sheet import grey, sheet
from tilewright.wording import counted, time_text

SCHEMA = "tilewright-net-profile/1"
OURS = "tilewright"
CONV = "Conv"
_NAME = 24  # characters of a name in a table of 80 columns


@dataclass(frozen=True, slots=True)
class PeerTimes:
    """Seconds of each kind of operator by a peer's own profiler, of one run."""

    name: str
    operators: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class NetProfile:
    """A network's rows before and after fusion; `after` is empty where nothing was bound."""

    title: str
    device: Device
    ceilings: Ceilings
    dtype: str
    sizes: Mapping[str, Shape]
    before: tuple[Row, ...]
    after: tuple[Row, ...] = ()
    seconds: Mapping[str, float] = field(default_factory=dict)
    peers: tuple[PeerTimes, ...] = ()

    def least(self, some: Iterable[Row]) -> float:
        """The sum of the roofs."""
        return sum(row.least(self.ceilings) for row in some)


def document(profile: NetProfile) -> dict[str, Any]:
    """Plain JSON types, as the module says."""
    return {
        "schema": SCHEMA,
        **provenance(profile.device),
        "title": profile.title,
        "sizes": {name: list(shape) for name, shape in profile.sizes.items()},
        "dtype": profile.dtype,
        "ceilings": profile.ceilings.as_dict(),
        "before": [_fields(row, profile.ceilings) for row in profile.before],
        "after": [_fields(row, profile.ceilings) for row in profile.after],
        "seconds": dict(profile.seconds),
        "peers": [
            {"name": p.name, "operators": {n: 1e3 * s for n, s in p.operators.items()}}
            for p in profile.peers
        ],
    }


def _fields(row: Row, ceilings: Ceilings) -> dict[str, Any]:
    return {
        "name": row.name,
        "operator": row.operator,
        "covers": list(row.covers),
        "shape": list(row.shape),
        "dtype": row.dtype,
        "flops": row.flops,
        "bytes": row.bytes,
        "flops_per_byte": row.intensity,
        "least_ms": 1e3 * row.least(ceilings),
        "bound": row.bound(ceilings),
        "engine": row.engine or None,
        "ms": None if row.seconds is None else 1e3 * row.seconds,
        "share": row.share(ceilings),
        "predicted_ms": None if row.predicted is None else 1e3 * row.predicted,
        "reason": row.reason or None,
    }


def table(profile: NetProfile, most: int | None) -> RenderableType:
    """Operators before fusion, and the `most` slowest of the steps after it; None for all of them,
    and all nodes before fusion."""
    parts: list[RenderableType] = [_operators(profile)]
    if profile.after:
        parts.append(_rows(profile, profile.after, "after fusion", "step", most))
    if most is None:
        parts.append(_rows(profile, profile.before, "before fusion", "node", most))
    why = _choices(profile, _slowest(profile, profile.after, most))
    return Group(*parts, *grey(notes(profile)), *grey(why), Text())


def _operators(profile: NetProfile) -> Table:
    """A row for each operator of the file, the longest at its roof first."""
    title = (
        f"{profile.title}, {_sizes(profile)}, on {profile.device.id}, {profile.device.name}\n"
        f"before fusion: {counted(len(profile.before), 'node')}"
    )
    heads = ["\noperator", "\nnodes", "\nMFLOP", "\nMiB", "FLOP\na byte", "roof\nms", "% of\nroofs"]
    timed = all(row.seconds is not None for row in profile.before)
    shown = sheet(title, [*heads, "time\nms"] if timed else heads)
    groups = by_operator(profile.before)
    whole = profile.least(profile.before) or 1.0
    for name, some in sorted(groups.items(), key=lambda item: -profile.least(item[1])):
        least = profile.least(some)
        cells = [name, str(len(some)), *_work(some), _ms(least), f"{100 * least / whole:.0f}"]
        if timed:
            cells.append(_ms(sum(row.seconds or 0.0 for row in some)))
        shown.add_row(*cells)
    return shown


def _rows(
    profile: NetProfile, some: Sequence[Row], when: str, what: str, most: int | None
) -> Table:
    """Rows in their order; of many the slowest."""
    kept = _slowest(profile, some, most)
    left = len(some) - len(kept)
    title = f"{when}: {counted(len(some), what)}" + (f", the {len(kept)} slowest" if left else "")
    heads = (f"\n{what}", "\nMFLOP", "\nMiB", "FLOP\na byte", "roof\nms", "time\nms", "% of\nroof")
    shown = sheet(title, (*heads, "\nengine"), "\nengine")
    shown.columns[0].no_wrap = False  # in a narrow terminal names give way, figures do not
    for row in some:
        if row in kept:
            share = row.share(profile.ceilings)
            shown.add_row(
                _named(profile, row),
                *_work([row]),
                _ms(row.least(profile.ceilings)),
                "-" if row.seconds is None else _ms(row.seconds),
                "-" if share is None else f"{100 * share:.0f}",
                row.engine or "-",
            )
    return shown


def _slowest(profile: NetProfile, some: Sequence[Row], most: int | None) -> list[Row]:
    """By measured time, where there is none by the roof."""

    def cost(row: Row) -> float:
        return row.least(profile.ceilings) if row.seconds is None else row.seconds

    return sorted(some, key=cost, reverse=True)[:most]


def _choices(profile: NetProfile, some: Iterable[Row]) -> Iterable[str]:
    """What each step took beside what its engine was predicted to take, and why it was chosen."""
    for row in some:
        if row.predicted is not None:
            named = _named(profile, row)
            took = "" if row.seconds is None else f"took {time_text(row.seconds)}, "
            predicted = f"predicted {time_text(row.predicted)}"
            yield f"{named}: {row.engine}, {took}{predicted}: {row.reason}"


def notes(profile: NetProfile) -> Iterable[str]:
    """Sums, whole runs, and what a reader has to know besides."""
    ceilings = profile.ceilings
    before = profile.least(profile.before)
    yield f"roofs before fusion: {time_text(before)} in all" + (
        f"; after it {time_text(profile.least(profile.after))}." if profile.after else "."
    )
    if any(row.seconds is not None for row in profile.before):
        took = [sum(row.seconds or 0.0 for row in some) for some in (profile.before, profile.after)]
        after = f", after it {time_text(took[1])}" if profile.after else ""
        yield f"steps one by one, medians: before fusion {time_text(took[0])} in all{after}."
    if profile.seconds:
        ours = profile.seconds[OURS]
        yield "a whole run: " + ", ".join(
            f"{name} {time_text(seconds)}"
            + (f" ({seconds / ours:.2f} times ours)" if name != OURS else "")
            for name, seconds in profile.seconds.items()
        )
    peak, memory = ceilings.peak(profile.dtype), ceilings.memory()
    known = {row.dtype for row in profile.after or profile.before if ceilings.peak(row.dtype)}
    if peak and memory:
        yield (
            f"roof: {peak.value / 1e9:,.0f} GFLOP/s and {memory.value / 1e9:,.0f} GB/s beyond the"
            f" caches, measured {ceilings.date}; each node has the bandwidth of its own bytes."
        )
    unknown = sorted({row.dtype for row in profile.after or profile.before if row.flops} - known)
    if unknown:
        yield f"No peak is known of {', '.join(unknown)}: roofs of those are of their bytes alone."
    if any((row.share(ceilings) or 0.0) > TOLERANCE for row in profile.after):
        yield (
            "Above 100 %: Winograd's convolutions do fewer operations than the plain sums that are"
            " counted, or values were still in a cache."
        )
    yield (
        "MFLOP: millions of operations, a multiplication and an addition being two. MiB: 2^20"
        " bytes, what is read and given, weights among it, each once; of a fused step that is what"
        " its ends move: what lies between stays in a cache."
    )
    if any(len(row.covers) > 1 for row in profile.after):
        yield (
            "A step that does several nodes is timed as a whole; nodes before fusion are timed each"
            " by itself (--all shows them)."
        )


def _work(some: Sequence[Row]) -> list[str]:
    """Cells of operations, bytes, and how many operations a byte."""
    flops, size = sum(row.flops for row in some), sum(row.bytes for row in some)
    return [_number(flops / 1e6), _number(size / 2**20), _number(flops / size) if size else "-"]


def _sizes(profile: NetProfile) -> str:
    return ", ".join(f"{n} {'×'.join(map(str, shape))}" for n, shape in profile.sizes.items())


def kind_of(profile: NetProfile, row: Row) -> str:
    """The operator that a row is in the file; of a product that runs as a convolution its own."""
    if row.operator != CONV:
        return row.operator
    found = {one.operator for one in profile.before if one.name in row.covers} - set(VIEWS)
    products = sorted(found & {"Gemm", "MatMul", "GlobalAveragePool"})
    return products[0] if products and CONV not in found else CONV


def _named(profile: NetProfile, row: Row) -> str:
    """The operator and a name's tail, which tells two apart.

    Of a step that does several nodes the first with its operator names it. Exporters repeat
    themselves: of /layer1/layer1.0/conv1/Conv layer1.0/conv1 is left.
    """
    kind = kind_of(profile, row)
    plain = kind.rpartition(" ")[2]
    alike = (one.name for one in profile.before if one.name in row.covers and one.operator == plain)
    parts = [part for part in next(alike, row.name).split("/") if part]
    if len(parts) > 1 and parts[-1].startswith(plain):
        parts.pop()
    told = [one for one, after in pairwise([*parts, ""]) if not f"{after}.".startswith(f"{one}.")]
    text, room = "/".join(told), max(_NAME - len(kind) - 1, 6)
    return f"{kind} " + (text if len(text) <= room else f"…{text[1 - room :]}")


def _number(value: float) -> str:
    if 0 < value < 0.01:
        return "<0.01"
    digits = 0 if value >= 100 else 1 if value >= 10 else 2
    return f"{value:,.{digits}f}"


def _ms(seconds: float) -> str:
    if 0 < seconds < 5e-7:
        return "<0.001"
    return f"{1e3 * seconds:,.3f}" if seconds else "-"
