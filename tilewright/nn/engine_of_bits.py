"""The engine of passes over layers of bits: the host's compiled kernels, bound once for each pass.

Pass --Layer.bind (layers/), binding_host.py--> tables, weights laid out --> a call
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from tilewright.arrays.array import NDArray
from tilewright.backends.host import compiled, native, rates
from tilewright.facts.device import Device
from tilewright.facts.verdict import Proposal
from tilewright.nn.binding_host import Binding
from tilewright.nn.buffers import Buffer, buffer_of
from tilewright.nn.joined import Pass
from tilewright.nn.layers.bit_conv import BitConv

# Shares of a core's measured rates that convolutions reach, 3x3 of 64 to 512 channels: of one-bit
# products for bits, of the float32 peak for reals. Seconds of an element beside them on the core
# that `rates` counts in, and of starting.
_BITS, _REALS, _ELEMENT, _START = 0.7, 0.66, 5e-11, 3e-6


@dataclass(frozen=True, slots=True, eq=False)
class PassWork:
    """A pass for so many pictures; `dtype` of the reals that it reads."""

    made_of: Pass
    images: int
    dtype: str = "float32"


@dataclass(frozen=True, slots=True, eq=False)
class PassOperands:
    """Arrays as `buffers.shape_of` has them, in the order of `Pass.reads` and of `Pass.stores`."""

    given: tuple[NDArray, ...]
    made: tuple[NDArray, ...]


class PassOnHost:
    """Numba's kernels on all cores, one after another."""

    name = "bits"

    def why_not(self, work: PassWork, device: Device) -> str | None:
        """Why it cannot take a pass there."""
        if device.backend == "cuda":
            return "its kernels are the host's"
        if not compiled.available():
            return compiled.why_none()
        return None if work.dtype == "float32" else f"reals are {work.dtype}; it takes float32"

    def propose(self, work: PassWork, device: Device) -> Proposal:
        """Operations and elements at shares of this processor's rates; measures nothing."""
        seconds, origin = _core_seconds(work, device)
        seconds = _START + seconds / device.compute_units
        reason = f"bits by words, on all cores; {origin}"
        return Proposal(self.name, device, seconds, reason, decisions=work)

    def bind(self, proposal: Proposal, operands: PassOperands) -> BoundPass:
        """Tables and weights. Values of bits begin as zeros, so that their borders are."""
        work: PassWork = proposal.decisions
        item = work.made_of
        named = (*zip(item.reads, operands.given, strict=True),)
        named += (*zip(item.stores, operands.made, strict=True),)
        buffers = {name: buffer_of(array, item.values[name]) for name, array in named}
        for name in item.stores:
            if item.values[name].kind == "bits":
                buffers[name].data[...] = 0
        return self.bound(work, buffers)

    def bound(self, work: PassWork, buffers: Mapping[str, Buffer]) -> BoundPass:
        """A pass over values that lie in memory already."""
        host = Binding(work.made_of.values, work.images, buffers)
        with compiled.LOCK:
            work.made_of.layers[0].bind(host, work.made_of.ending)
        return BoundPass(tuple(host.calls), host.bytes)


def _core_seconds(work: PassWork, device: Device) -> tuple[float, str]:
    """What a pass takes one core, its sums, then every element that it reads or stores; and by
    whose rates."""
    item, found = work.made_of, rates.of(device)
    first = item.layers[0]
    rate, origin = _REALS * rates.PEAK / found.factor, found.origin
    if isinstance(first, BitConv):
        share, origin = native.rate_of(device)
        rate = _BITS * share
    sums = first.flops(item.values[first.name]) / rate
    elements = sum(item.values[name].size for name in (*item.reads, *item.stores))
    return work.images * (sums + elements * _ELEMENT * found.factor), origin


class BoundPass:
    """A pass as it is run: nothing to pass in, nothing to allocate."""

    def __init__(self, calls: tuple[Callable[[], object], ...], size: int) -> None:
        self._calls = calls
        self.bytes = size  # of tables, weights and copies

    def and_then(self, other: object) -> BoundPass | None:
        """Both as one call."""
        if not isinstance(other, BoundPass):
            return None
        return BoundPass((*self._calls, *other._calls), self.bytes + other.bytes)

    def __call__(self) -> None:
        """One kernel after another, while no other thread is in Numba's pool."""
        with compiled.LOCK:
            for call in self._calls:
                call()


ENGINE = PassOnHost()
ENGINES = (ENGINE,)
