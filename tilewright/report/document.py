"""A measured ladder as JSON, with everything needed to know later what was measured.

schema      "tilewright-ladder/1"; a change that breaks readers raises the number
date        UTC, ISO 8601
commit      of the checkout that tilewright runs from, "-dirty" if changed; null outside one
versions    of python, tilewright, numpy, and of pyopencl and torch where installed
host        facts of the processor and its BLAS (the fields of tilewright.Device)
processor   sets of instructions that it has beyond the least that NumPy asks for, by NumPy's names,
            and "AMX": processors of one name have unlike sets, and speeds 2 to 8 times apart
device      facts of the device, driver version among them (the same fields)
dtype       of operands and result;   seed   of the random operands
ladders     one a size:
    size    m = n = k
    winner  name of the fastest right kernel, or null
    rungs   slowest first:
        name, kind ("kernel" or "peer"), configuration (tunables that differ from defaults)
        right               error is rounding (Ladder.right says how much); true of every peer
        error               largest, against float64, over the largest magnitude; null: NaN
        measured_size       smaller than size where the time was scaled up: then `scaled`
        event_ms, wall_ms   medians at `size`; event_ms null where there are no events
        clock               "events" or "wall": which one the rate counts from
        events_lie          event times that cannot be true beside the wall clock
        gflops, speedup_over_serial, speedup_over_numpy
        percent_of_peak     of the device's measured peak; null where that is unknown
        joules              of one product at measured_size; null where nothing counts them
        cpu_percent         processor time over wall time; 100 is one core
        end_to_end_ms       NumPy in, NumPy out; null where host and device share memory
        warmups, repeats    runs before and in the median
        samples             {"wall_ms", "cpu_ms", "event_ms"}: every counted run, unscaled
    skipped [{"name", "reason"}]: kernels and peers that could not run
    energy  the counter that joules are from, or why there is none
    busy    names of rungs during which something else had a part of the processor
    memory  [{"way", "create_ms", "run_ms", "map_back_ms", "create_bytes", "map_back_bytes",
            "error"}]: the three host-pointer ways, empty unless asked for
"""

from __future__ import annotations

import datetime
import math
import platform
import subprocess
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np

import tilewright
from tilewright.backends.host.blas import blas
from tilewright.facts.device import Device
from tilewright.inputs.devices import host
from tilewright.report.ladder import SEED
from tilewright.report.peers import NUMPY, SERIAL
from tilewright.report.records import Ladder, MemoryWay, Rung

SCHEMA = "tilewright-ladder/1"


def document(ladders: Sequence[Ladder]) -> dict[str, Any]:
    """Ladders of one device and dtype in plain JSON types, as the module says."""
    first = ladders[0]
    return {
        "schema": SCHEMA,
        **provenance(first.device),
        "dtype": first.dtype,
        "seed": SEED,
        "ladders": [_ladder(ladder) for ladder in ladders],
    }


def provenance(device: Device) -> dict[str, Any]:
    """Where and with what a result was measured: date, commit, versions, host and device."""
    return {
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "commit": commit(),
        "versions": versions(),
        "host": host().as_dict(),
        "processor": instruction_sets(),
        "device": device.as_dict(),
    }


def instruction_sets() -> list[str]:
    """Of this processor: what NumPy found, "AMX" where Linux names it; empty where neither can say.

    A virtual machine may hide sets that its processor has, and keeps the processor's name.
    """
    found = np.show_config("dicts") or {}
    sets = list(found.get("SIMD Extensions", {}).get("found", []))
    flags = Path("/proc/cpuinfo")
    if flags.exists() and " amx_tile" in flags.read_text(encoding="utf-8", errors="replace"):
        sets.append("AMX")
    return sets


def versions() -> dict[str, str]:
    """Of what the figures depend on, NumPy's BLAS with its kernels and threads among it."""
    found = {"python": platform.python_version(), "tilewright": tilewright.__version__}
    found["blas"] = str(blas())
    for package in ("numpy", "pyopencl", "torch"):
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


def commit() -> str | None:
    """The commit of tilewright's own checkout; None where it was installed from a package."""
    package = Path(tilewright.__file__).resolve().parent
    top = _git(package, "rev-parse", "--show-toplevel")
    # An installed copy may lie in somebody else's checkout, whose commit says nothing of it.
    if top is None or Path(top).resolve() / "tilewright" != package:
        return None
    return _git(package, "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*")


def _git(folder: Path, *arguments: str) -> str | None:
    try:
        result = subprocess.run(
            ["git", "-C", str(folder), *arguments], capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError):
        return None
    return result.stdout.strip()


def _ladder(ladder: Ladder) -> dict[str, Any]:
    return {
        "size": ladder.size,
        "winner": ladder.winner.name if ladder.winner else None,
        "rungs": [_rung(ladder, rung) for rung in ladder.rungs],
        "skipped": [{"name": item.name, "reason": item.reason} for item in ladder.skipped],
        "energy": ladder.energy,
        "busy": list(ladder.busy),
        "memory": [_way(way) for way in ladder.memory],
    }


def _rung(ladder: Ladder, rung: Rung) -> dict[str, Any]:
    samples = rung.samples
    event = None if samples.event is None else ladder.seconds(rung, samples.event) * 1e3
    return {
        "name": rung.name,
        "kind": rung.kind,
        "configuration": rung.settings,
        "right": ladder.right(rung),
        "error": _finite(rung.error),
        "measured_size": rung.size,
        "scaled": ladder.scaled(rung),
        "event_ms": event,
        "wall_ms": ladder.seconds(rung, samples.wall) * 1e3,
        "clock": rung.clock,
        "events_lie": samples.events_lie,
        "gflops": rung.gflops,
        "speedup_over_serial": ladder.speedup(rung, SERIAL),
        "speedup_over_numpy": ladder.speedup(rung, NUMPY),
        "percent_of_peak": ladder.percent(rung),
        "joules": rung.joules,
        "cpu_percent": samples.cpu_use * 100,
        "end_to_end_ms": None if rung.end_to_end is None else rung.end_to_end * 1e3,
        "warmups": samples.warmups,
        "repeats": samples.repeats,
        "samples": {
            f"{clock}_ms": [seconds * 1e3 for seconds in getattr(samples, f"{clock}s")]
            for clock in ("wall", "cpu", "event")
        },
    }


def _way(way: MemoryWay) -> dict[str, Any]:
    return {
        "way": way.way,
        **{f"{name}_ms": getattr(way, name) * 1e3 for name in ("create", "run", "map_back")},
        "create_bytes": way.create_bytes,
        "map_back_bytes": way.map_back_bytes,
        "error": _finite(way.error),
    }


def _finite(value: float) -> float | None:
    """JSON has no NaN."""
    return value if math.isfinite(value) else None
