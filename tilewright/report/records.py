"""Records of a measured ladder, and the figures that follow from them."""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.facts.ceilings import Rate
from tilewright.facts.device import Device
from tilewright.facts.dtypes import sums_of
from tilewright.facts.kernel import Config
from tilewright.report.peers import NUMPY, SERIAL
from tilewright.report.sampling import Samples
from tilewright.tuning.trial import allowed_error

KERNEL, PEER = "kernel", "peer"


@dataclass(frozen=True, slots=True)
class Rung:
    """One kernel or peer, measured.

    `size` is the one it ran at, smaller than its ladder's where its time was scaled up. `error` is
    the largest one against float64, relative to the largest magnitude there; NaN where elements
    were never written. `end_to_end` is one `matmul` on NumPy arrays, transfers included, on devices
    that do not share the host's memory. `joules` is the energy of one product, where there is a
    counter.
    """

    name: str
    kind: str
    size: int
    samples: Samples
    clock: str
    error: float
    config: Config | None = None
    end_to_end: float | None = None
    joules: float | None = None

    @property
    def seconds(self) -> float:
        """Of one product at `size`, by the clock that is believed."""
        event = self.samples.event
        return event if self.clock == "events" and event is not None else self.samples.wall

    @property
    def gflops(self) -> float:
        """Billions of multiplications and additions a second."""
        return 2 * self.size**3 / self.seconds / 1e9

    @property
    def settings(self) -> dict[str, int]:
        """The tunables of the configuration that differ from their defaults."""
        return {} if self.config is None else self.config.changed


@dataclass(frozen=True, slots=True)
class Skipped:
    """A kernel or peer that could not run, and why."""

    name: str
    reason: str


@dataclass(frozen=True, slots=True)
class MemoryWay:
    """One of the three host-pointer ways; seconds of each stage, bytes that each has to copy."""

    way: str
    create: float
    run: float
    map_back: float
    create_bytes: int
    map_back_bytes: int
    error: float


@dataclass(frozen=True, slots=True)
class Ladder:
    """Everything measured at one size, the slowest rung first.

    `energy` names the counter that joules are from, or says why there is none; `busy` the rungs
    during which something else had a part of the processor.
    """

    device: Device
    size: int
    dtype: str
    rungs: tuple[Rung, ...]
    skipped: tuple[Skipped, ...] = ()
    memory: tuple[MemoryWay, ...] = ()
    energy: str = ""
    busy: tuple[str, ...] = ()

    def rung(self, name: str) -> Rung | None:
        """The rung of that name, if it was measured."""
        return next((rung for rung in self.rungs if rung.name == name), None)

    def speedup(self, rung: Rung, over: str) -> float | None:
        """How many times the rate of the peer `over`; None where that was not measured."""
        peer = self.rung(over)
        return rung.gflops / peer.gflops if peer else None

    @property
    def ceiling(self) -> Rate | None:
        """The device's measured peak for this type, if it is known."""
        ceilings = self.device.ceilings
        return ceilings.peak(self.dtype) if ceilings else None

    def percent(self, rung: Rung) -> float | None:
        """Of the device's measured peak; None where that is unknown or the rung ran elsewhere."""
        on_host = self.device.backend == "host" and rung.name in (NUMPY, SERIAL)
        if self.ceiling is None or not (rung.kind == KERNEL or on_host):
            return None
        return 1e11 * rung.gflops / self.ceiling.value

    def scaled(self, rung: Rung) -> bool:
        """Whether its time was measured at a smaller size and scaled."""
        return rung.size != self.size

    def seconds(self, rung: Rung, measured: float) -> float:
        """A measured time at this ladder's size."""
        return measured * (self.size / rung.size) ** 3

    def right(self, rung: Rung) -> bool:
        """Whether a kernel's error is rounding and nothing else; NaN never is.

        Peers are shown as they are: einsum sums float16 in float16, and that is not ours to judge.
        """
        numpy = self.rung(NUMPY)
        allowed = allowed_error(sums_of(self.dtype), self.size, numpy.error if numpy else 0.0)
        return rung.kind == PEER or rung.error <= allowed

    @property
    def winner(self) -> Rung | None:
        """The fastest kernel whose result is right; None where no kernel ran."""
        able = [rung for rung in self.rungs if rung.kind == KERNEL and self.right(rung)]
        return max(able, key=lambda rung: rung.gflops, default=None)

    @property
    def wrong(self) -> tuple[str, ...]:
        """Names of kernels whose result is not right."""
        return tuple(rung.name for rung in self.rungs if not self.right(rung))
