"""Ceilings of a made-up device, and probes whose clocks say what a test wants."""

from __future__ import annotations

import io
from types import SimpleNamespace

import pytest
from rich.console import Console

from tests.support.made_up import TWO_CORES
from tilewright import Device
from tilewright.engines.backend import Timing
from tilewright.engines.probes import Probe
from tilewright.facts.ceilings import READ, Bandwidth, Ceilings, Latency, Rate, Row
from tilewright.report import peaks
from tilewright.tuning import peak

KIB, MIB, GIB = 2**10, 2**20, 2**30


def made_up(key: str = TWO_CORES.key) -> Ceilings:
    """A device of 500 GFLOP/s whose fma is emulated, with two caches before its memory."""
    return Ceilings(
        key,
        "2026-01-01T00:00:00+00:00",
        (
            Rate("float64", "a*b+c", 8, 8, 250e9),
            Rate("float32", "a*b+c", 16, 8, 480e9),
            Rate("float32", "a*b+c", 16, 12, 500e9),
            Rate("float32", "fma", 16, 12, 20e9),
            Rate("float16", "mad", 16, 8, 50e9),
        ),
        (
            Bandwidth(READ, 64 * KIB, 500e9),
            Bandwidth(READ, MIB, 90e9),
            Bandwidth(READ, 16 * MIB, 100e9),
            Bandwidth(READ, 256 * MIB, 30e9),
            Bandwidth("copy", 256 * MIB, 25e9),
        ),
        (Latency("launch and wait", 8e-6),),
        ("float64 a*b+c, vector 8 × 8 chains",),
        (("int8 dot4", "the compiler refused it"),),
    )


def clocked(wall: float, events: float | None, row: Row | None = None) -> Probe:
    """A probe of a made-up device: so many seconds a round by each clock, 1000 operations."""

    def run(rounds: int) -> Timing:
        return Timing(None if events is None else rounds * events, rounds * wall, 0.0)

    return Probe(row or Rate("float32", "fma", 4, 8), 1000.0, run)


def offered(monkeypatch: pytest.MonkeyPatch) -> list[Probe]:
    """Probes that a test puts here are those of every device."""
    probes: list[Probe] = []
    module = SimpleNamespace(probes=lambda device, effort: iter(probes))
    monkeypatch.setattr(peak, "_probes", lambda device: module)
    return probes


def printed(device: Device, ceilings: Ceilings) -> str:
    console = Console(file=io.StringIO(), width=100, highlight=False)
    console.print(peaks.table(device, ceilings))
    return console.file.getvalue()  # type: ignore[attr-defined, no-any-return]
