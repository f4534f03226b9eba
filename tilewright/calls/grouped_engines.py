"""Who multiplies a batch of the host's arrays: engines of the host and of OpenCL, compared.

    native   micro-kernels that Numba compiles for this processor        backends/host/grouped.py
    opencl   the grouped kernels of a device's driver                    backends/opencl/grouped.py

A device that the caller names has its own engine alone. Where none can, a batch is a loop of
NumPy's; where a loop would end first, calls/grouped_run_host.py says so when it binds.
"""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.arrays.addresses import Column
from tilewright.backends.host import compiled, rates
from tilewright.backends.host import grouped as native
from tilewright.engines.choose import choose
from tilewright.engines.contract import Planner
from tilewright.facts.device import Device
from tilewright.facts.limits import why_too_long
from tilewright.facts.verdict import Proposal, Verdict
from tilewright.inputs.devices import backend_of, host, host_for
from tilewright.planning.grouped import lay_out


@dataclass(frozen=True, slots=True)
class Batch:
    """Sizes of a batch and what was asked for it.

    `at_once`: an engine whose machine code is not there yet is not for it. Who binds waits for the
    compiler; a call has it run beside itself. OpenCL's for processors takes 4 s: where the host's
    own engine is there or comes, no call waits for that.
    """

    m: Column
    n: Column
    k: Column
    dtype: str
    order: str
    at_once: bool


@dataclass(frozen=True, slots=True)
class GroupedEngine:
    """The grouped kernel of one device, as `choose` asks engines."""

    name: str
    home: Device
    waits: bool = False  # whether a call that would wait for this one's compiler has another engine

    def why_not(self, work: Batch, device: Device) -> str | None:
        """A kernel that is not there, or not yet."""
        kernel = backend_of(self.home).grouped(self.home, work.dtype)
        if kernel is None:
            return _why_none(self.home, work.dtype)
        if (too_long := why_too_long(work.k, self.home)) is not None:
            return too_long
        if self.name != "native":
            built = not (work.at_once and self.waits) or kernel.is_built
            return None if built else "its program is not built yet; a bound plan builds it"
        if work.at_once:
            return native.why_not_yet(self.home, work.dtype)
        return native.why_never(work.dtype)

    def propose(self, work: Batch, device: Device) -> Proposal:
        """The planner's layout and its prediction."""
        kernel = backend_of(self.home).grouped(self.home, work.dtype)
        assert kernel is not None
        layout = lay_out(work.m, work.n, work.k, kernel.tiles, kernel.slots, work.order)
        seconds = kernel.launch + layout.seconds * _slower(self.home)
        return Proposal(self.name, self.home, seconds, layout.reason, decisions=layout)


def is_ready(device: Device, dtype: str) -> bool:
    """Whether a call on arrays of the host, for which no device was named, has a kernel by now."""
    kernel = backend_of(device).grouped(device, dtype)
    if kernel is None or kernel.is_built or device.kind != "cpu":
        return kernel is not None
    if device.backend != "host" and not native.is_coming(dtype):
        return True  # it has no other
    return native.why_not_yet(host(), dtype) is None


def _why_none(home: Device, dtype: str) -> str:
    if home.backend == "host" and dtype in native.DTYPES:
        return compiled.why_none()
    return f"no grouped kernel for {dtype} on {home.id!r}"


def _slower(home: Device) -> float:
    """Rates of OpenCL's tiles on processors are those of a core whose peak this one may not have;
    the host's own are shares of what was measured here."""
    on_processor = home.backend != "host" and home.kind == "cpu"
    return rates.of(host()).factor if on_processor else 1.0


def _known(device: Device, work: Batch) -> Device:
    """The host with the ceilings that predictions go by, measured now for who can wait."""
    return device if work.at_once or device.ceilings else host_for()


def chosen(work: Batch, device: Device, wanted: str | None, *, alone: bool) -> Verdict:
    """What the engines say; `alone`: only the device's own are asked.

    Raises KernelError where `wanted` is none of them.
    """
    engines: list[Planner[Batch]] = []
    on_host = device.backend == "host"
    if on_host or (not alone and device.kind == "cpu"):
        engines.append(GroupedEngine("native", _known(device if on_host else host(), work)))
    if not on_host:
        waits = bool(engines) and native.is_coming(work.dtype)
        engines.append(GroupedEngine(device.backend, device, waits))
    return choose(work, device, engines, wanted)
