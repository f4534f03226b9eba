"""Joules of a product, where the platform counts them: RAPL through powercap, NVML.

RAPL (Intel SDM volume 3, section "Platform Specific Power Management Support") counts the whole
package in /sys/class/powercap/intel-rapl:N/energy_uj and wraps at max_energy_range_uj; newer
kernels let only root read it. NVML counts a GPU since its driver was loaded, in millijoules
(nvmlDeviceGetTotalEnergyConsumption, Volta and later). Both include what the device draws when
idle: the figure is what a product costs while nothing else runs.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from time import perf_counter
from typing import Any

from tilewright.facts.device import Device

POWERCAP = Path("/sys/class/powercap")
# Counters move in steps of milliseconds (RAPL) to a tenth of a second (GPUs).
SECONDS = 0.5


@dataclass(frozen=True, slots=True)
class Counter:
    """A meter: `read` gives joules so far for each of its domains, `wraps` where each begins anew.

    0 in `wraps` is a domain that never does.
    """

    name: str
    read: Callable[[], tuple[float, ...]]
    wraps: tuple[float, ...]

    def between(self, before: tuple[float, ...], after: tuple[float, ...]) -> float:
        """Joules between two readings less than one turn of the counter apart."""
        turns = zip(before, after, self.wraps, strict=True)
        return sum(end - start + (wrap if end < start else 0.0) for start, end, wrap in turns)


def counter(device: Device, powercap: Path = POWERCAP) -> Counter | str:
    """The meter of a device, or why there is none here."""
    if device.kind == "cpu":
        return rapl(powercap)
    if "nvidia" in device.vendor.lower():
        return nvml(device.name)
    return f"no counter here: none is known for devices of {device.vendor}"


def rapl(powercap: Path) -> Counter | str:
    """All packages of the machine as one meter."""
    # Deeper domains (cores, DRAM on some machines) have a second colon; the package counts them.
    domains = sorted(path for path in powercap.glob("intel-rapl:*") if path.name.count(":") == 1)
    domains = [path for path in domains if _name_of(path).startswith("package")]
    if not domains:
        return f"no counter here: {powercap} has no package"
    try:
        wraps = tuple(_number(path / "max_energy_range_uj") * 1e-6 for path in domains)
        _read(domains)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        return f"no counter here: {domains[0]} cannot be read ({reason})"
    return Counter("RAPL, whole package", lambda: _read(domains), wraps)


def _read(domains: list[Path]) -> tuple[float, ...]:
    return tuple(_number(path / "energy_uj") * 1e-6 for path in domains)


def _name_of(domain: Path) -> str:
    try:
        return (domain / "name").read_text(encoding="utf-8").strip()
    except OSError:
        return ""


def _number(path: Path) -> int:
    return int(path.read_text(encoding="utf-8"))


def nvml(name: str) -> Counter | str:
    """The one NVIDIA GPU of that name."""
    if find_spec("pynvml") is None:
        return "no counter here: pip install nvidia-ml-py reads NVIDIA's"
    pynvml: Any = importlib.import_module("pynvml")
    try:
        pynvml.nvmlInit()
        handles = [pynvml.nvmlDeviceGetHandleByIndex(i) for i in range(pynvml.nvmlDeviceGetCount())]
        named = [handle for handle in handles if _text(pynvml.nvmlDeviceGetName(handle)) == name]
        if len(named) != 1:
            return f"no counter here: NVML knows {len(named)} devices named {name!r}, not one"
        pynvml.nvmlDeviceGetTotalEnergyConsumption(named[0])
    except pynvml.NVMLError as error:
        return f"no counter here: NVML: {error}"

    def read() -> tuple[float, ...]:
        return (pynvml.nvmlDeviceGetTotalEnergyConsumption(named[0]) * 1e-3,)

    return Counter("NVML, whole GPU", read, (0.0,))


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value


def joules(run: Callable[[], object], meter: Counter, seconds: float = SECONDS) -> float:
    """Of one `run`, as the mean over the runs that fit into `seconds`; never negative."""
    begun = perf_counter()
    before = meter.read()
    runs = 0
    while not runs or perf_counter() - begun < seconds:
        run()
        runs += 1
    return max(meter.between(before, meter.read()) / runs, 0.0)
