"""Measures how fast an engine is on an unknown device: timed once, then read from the store.

The priors of OpenCL's engines say how kinds of devices compare; compilers differ more than that (a
popcount of vectors may be one instruction or twenty). One product of moderate size says how many
times its prior an engine takes, and every later prediction is stretched by that.
"""

from __future__ import annotations

import time

import numpy as np

from tilewright.backends import places
from tilewright.engines.bits import BitEngine, BitProblem, BitWork
from tilewright.facts.device import Device
from tilewright.tuning import store
from tilewright.version import __version__

PROBE = BitProblem(512, 512, 4096)
_REPEATS = 3


_known: dict[tuple[str, str], float] = {}


def stretch(engine: BitEngine, device: Device, *, measure: bool) -> float | None:
    """Measured seconds of `PROBE` by its predicted ones; None where that was never measured.

    With `measure` it is measured now where it was not before.
    """
    seconds = _known.get((engine.name, device.key))
    if seconds is None:
        key = f"bits|{device.key}|{engine.name}|{__version__}"
        seconds = store.load(key).get("seconds")
        if not isinstance(seconds, float) or not seconds > 0:
            if not measure:
                return None
            seconds = _measured(engine, device)
            store.save(key, {"seconds": seconds})
        _known[engine.name, device.key] = seconds
    return seconds / (engine.propose((PROBE,), device).seconds or seconds)


def _measured(engine: BitEngine, device: Device) -> float:
    """The least of a few runs, the first of which compiles; operands in place."""
    place = places()[device.backend]
    words = np.random.default_rng(0).integers(0, 2**64, (PROBE.m, PROBE.words), dtype=np.uint64)
    held = place.from_host(words, device)
    counts = place.counts(held) if engine.needs_counts else None
    work = BitWork(
        PROBE, held, held, counts, counts, place.empty((PROBE.m, PROBE.n), PROBE.out, held)
    )
    launch, seconds = engine.bind(engine.propose((PROBE,), device), [work]), []
    for _ in range(1 + _REPEATS):
        begun = time.perf_counter()
        launch()
        place.to_host(work.out)  # waits
        seconds.append(time.perf_counter() - begun)
    return min(seconds[1:])
