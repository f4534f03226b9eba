"""The one-bit engines of NVIDIA GPUs and what is known of their speed.

wgmma      Hopper's tensor cores from shared memory (kernels/bits/bits_wgmma.cu), sm_90 alone
mma        tensor cores of sm_80 to sm_90 from registers (kernels/bits/bits_mma.cu)
popcount   population count on the ALUs (kernels/bits/bits_popc.cu), every GPU

Which is chosen follows from `RATES`: what each instruction did in registers and what whole products
reached, measured on an H200 (facts/measured/h200.py) and scaled to other GPUs by their number of
multiprocessors, and by their memory where `tilewright peak` measured it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, partial

from tilewright.backends.cuda.bits import launch
from tilewright.backends.cuda.bits.launch import Launch
from tilewright.backends.cuda.machine import nvrtc
from tilewright.engines.bits import BitProblem, BitWork
from tilewright.facts.device import Device
from tilewright.facts.measured import h200
from tilewright.facts.measured.scale import scale
from tilewright.facts.verdict import Proposal

_MEASURED_ON = "an H200"
MOST = (1 << 31) - 1024  # rows: whole tiles of them are numbered in 32 bits
LONGEST = 1 << 28  # elements a row: 4 popcounts and a threshold still fit an int32


@dataclass(frozen=True, slots=True)
class Rate:
    """Operations a second, a multiply-add counted as two.

    `peak` is the instruction's on registers; the others are of 8192 cubed, to numbers and to bits.
    """

    peak: float
    numbers: float
    bits: float

    def whole(self, problem: BitProblem) -> float:
        """Of products with such a result."""
        return self.bits if problem.out == "bits" else self.numbers


RATES = {name: Rate(*rates) for name, rates in h200.BITS.items()}


@dataclass(frozen=True, slots=True)
class CudaBits:
    """One kernel: its tile, the GPUs that have its instruction, how it is launched."""

    name: str
    tile: tuple[int, int, int]
    first: int
    last: int
    prepare: Callable[[BitWork], Launch]
    needs_counts: bool = True

    def why_not(self, problems: Sequence[BitProblem], device: Device) -> str | None:
        """The instruction must be there, a row short enough to be counted in 32 bits."""
        number = capability(device)
        if number is None:
            return f"is CUDA C++, and {device.name} is {device.version or 'of another kind'}"
        if not self.first <= number <= self.last:
            span = f"sm_{self.first}" if self.first == self.last else f"sm_{self.first} and later"
            span += "" if self.last in (self.first, _NEWEST) else f" up to sm_{self.last}"
            return f"needs {span}, this is sm_{number}"
        for problem in problems:
            if problem.k >= LONGEST:
                return f"k={problem.k}: takes rows of less than {LONGEST} elements"
            if max(problem.m, problem.n) > MOST:
                return f"m={problem.m}, n={problem.n}: takes sides of at most {MOST}"
            if problem.k == 0 and self.name != "popcount":
                return "k=0: there is nothing to multiply"
        return nvrtc.missing()

    def propose(self, problems: Sequence[BitProblem], device: Device) -> Proposal:
        """As long as the products take one after another."""
        rate, units = RATES[self.name], max(1, device.compute_units)
        bandwidth = h200.BITS_MEMORY * scale(device, "float32").bandwidth
        seconds = sum(self._seconds(problem, units, bandwidth) for problem in problems)
        where = f"{_MEASURED_ON}, {rate.peak / 1e12:,.0f} TOP/s in registers"
        scaled = "" if capability(device) == 90 else f", scaled to {units} multiprocessors"
        whole = rate.whole(problems[0]) / 1e12
        reason = f"{whole:,.0f} TOP/s for 8192 cubed on {where}{scaled}"
        return Proposal(self.name, device, seconds, reason)

    def _seconds(self, problem: BitProblem, units: int, bandwidth: float) -> float:
        """Whole tiles in rounds over the multiprocessors, or the memory's time if that is more."""
        rows, columns, depth = self.tile
        tiles = -(-problem.m // rows) * -(-problem.n // columns)
        work = 2 * rows * columns * -(-problem.k // depth) * depth
        products = -(-tiles // units) * work / (RATES[self.name].whole(problem) / h200.UNITS)
        return h200.BITS_LAUNCH + max(products, problem.traffic / bandwidth)

    def bind(self, proposal: Proposal, works: Sequence[BitWork]) -> Launch:
        """Enqueues every product on torch's current stream."""
        return partial(self._enqueue, works)

    def _enqueue(self, works: Sequence[BitWork]) -> None:
        for work in works:
            if work.problem.m and work.problem.n:
                self.prepare(work)()


_NEWEST = 999
ENGINES = (
    CudaBits("wgmma", (64, 256, 1024), 90, 90, launch.prepare_wgmma),
    CudaBits("mma", (128, 128, 512), 80, 90, launch.prepare_mma),
    CudaBits("popcount", (64, 64, 1024), 50, _NEWEST, launch.prepare_popc),
)


@cache
def capability(device: Device) -> int | None:
    """Compute capability as a number, 90 for sm_90; None for what is no NVIDIA GPU."""
    kind, _, number = device.version.partition("sm_")
    return int(number) if kind == "" and number.isdecimal() else None
