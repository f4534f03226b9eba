"""Interleaved timing: two ways to compute the same thing, block by block in turns, as a ratio.

A block is a few runs of one way back to back. Between blocks the machine rests for as long as
threads keep spinning after a product, as they ship (OpenMP's and MKL's for 0.2 s): they would take
the cores from whoever comes next. Every way has the same rest, and results made alike: beforehand
(`out=`), or by every call. Medians over all blocks; the ratio is of medians, from one run.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable, Mapping

REST = 0.25


def interleaved(
    ways: Mapping[str, Callable[[], object]],
    *,
    rounds: int = 5,
    block_seconds: float = 0.15,
    rest: float = REST,
) -> dict[str, float]:
    """Median seconds of every way; `rounds` blocks of each, in turns, `rest` seconds between."""
    times: dict[str, list[float]] = {name: [] for name in ways}
    for name, way in ways.items():
        way()
        times[name] = []
    for _ in range(rounds):
        for name, way in ways.items():
            time.sleep(rest)
            way()
            times[name] += _block(way, block_seconds)
    return {name: statistics.median(values) for name, values in times.items()}


def _block(way: Callable[[], object], seconds: float) -> list[float]:
    """Runs until `seconds` have passed, three at least and a thousand at most."""
    values: list[float] = []
    begun = time.perf_counter()
    while len(values) < 3 or (time.perf_counter() - begun < seconds and len(values) < 1000):
        start = time.perf_counter()
        way()
        values.append(time.perf_counter() - start)
    return values


def load_average() -> float:
    """How busy the machine is otherwise; stored beside every result."""
    return os.getloadavg()[0] if hasattr(os, "getloadavg") else -1.0
