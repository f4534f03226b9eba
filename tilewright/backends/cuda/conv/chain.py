"""Chains of 3x3 convolutions as one kernel, or as few as shared memory allows.

    x --copy, where its strides are odd--> planes --part--> planes --part--> out

Whole numbers of eight bits run as halves, which hold them exactly, as float32 holds their sums
(chain_whole.py).

A network of 1 -> 32, 4 x 32 -> 32, 32 -> 4 channels spends its time in memory where each layer is a
kernel of its own; here nothing between the layers of a part leaves the multiprocessor.

chain       kernels/conv/chain_wgmma.cu, Hopper
chain_mma   kernels/conv/chain_mma.cu, tensor cores since Ampere's
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from tilewright.backends.cuda.bits.engines import capability
from tilewright.backends.cuda.conv import chain_launch, chain_plan, chain_whole
from tilewright.backends.cuda.conv.chain_plan import Machine, Part
from tilewright.backends.cuda.machine import nvrtc
from tilewright.engines.conv import ConvOperands, ConvWork
from tilewright.facts.device import Device
from tilewright.facts.measured import h200
from tilewright.facts.measured.scale import scale
from tilewright.facts.verdict import Proposal

Launch = Callable[[], None]
_MOST = 1 << 31  # rows of all strips, and columns, are counted in 32 bits
_AMPERE = 80


@dataclass(frozen=True, slots=True, eq=False)
class Decisions:
    """The work, its parts, and how many multiprocessors there are."""

    work: ConvWork
    parts: tuple[Part, ...]
    units: int


@dataclass(frozen=True, slots=True)
class Chained:
    """One of the two kernels."""

    name: str
    kernel: str

    def why_not(self, work: ConvWork, device: Device) -> str | None:
        """Halves, 3x3 layers of at most 64 channels, tensor cores."""
        if self.kernel == "chain_wgmma" and not device.has("wgmma"):
            return f"needs wgmma, which {device.name} does not have"
        if (capability(device) or 0) < _AMPERE:
            return f"needs sm_{_AMPERE} and later, {device.name} is {device.version or 'another'}"
        if work.layers[0].whole is None and work.dtype not in ("float16", "bfloat16"):
            return f"dtype={work.dtype!r}: takes float16, bfloat16 and whole numbers"
        return unfit(work) or chain_whole.unfit(work) or nvrtc.missing()

    def propose(self, work: ConvWork, device: Device) -> Proposal:
        """As few kernels as shared memory allows, or one more where strips get wider so."""
        machine = self.machine(device)
        parts = chain_plan.cut(work, machine)
        said = " + ".join(str(len(part.layers)) for part in parts)
        reason = f"layers a kernel: {said}; between them nothing is written"
        decisions = Decisions(work, parts, machine.units)
        between = [_bytes(work, part.channels[0]) for part in parts if not part.inputs]
        seconds = sum(chain_plan.seconds(part, work, machine) for part in parts)
        if not parts[0].inputs and not _side_by_side(work):
            seconds += between[0] / h200.CHAIN_COPY
        return Proposal(self.name, device, seconds, reason, sum(between), decisions=decisions)

    def machine(self, device: Device) -> Machine:
        """The device, with an H200's rates scaled to it."""
        scaled = scale(device, "float16")
        one, two = (each / scaled.multiply for each in h200.CHAIN_PRODUCT[self.name])
        units, shared = max(1, device.compute_units), device.local_memory
        written = h200.CHAIN_WRITTEN * scaled.bandwidth
        whole = h200.CHAIN_WHOLE[self.name]
        return Machine(
            units, shared, h200.CHAIN_LAUNCH, (one, two), h200.CHAIN_HANDING, written, whole
        )

    def bind(self, proposal: Proposal, operands: ConvOperands) -> Launch:
        """Kernels are compiled, weights packed, scratch is taken; launches on torch's stream."""
        decisions: Decisions = proposal.decisions
        work, given = decisions.work, operands.x
        copied = None
        if not decisions.parts[0].inputs and not chain_launch.readable(given):
            given = copied = chain_launch.planes(work, work.layers[0].inputs, operands.x)
        calls, held = [], []
        for part in decisions.parts:
            out, added = operands.out, None
            if part.planes:
                out = chain_launch.planes(work, part.channels[-1], operands.x)
            elif part.layers[-1].adds:
                added = operands.residuals[0]
            call, needed = chain_launch.prepared(
                self.kernel, part, work, given, out, added, decisions.units
            )
            calls.append(call)
            held.append(needed)
            given = out
        return partial(_run, nvrtc.launcher(*calls), operands.x, copied, held)


CHAIN = Chained("chain", "chain_wgmma")
CHAIN_MMA = Chained("chain_mma", "chain_mma")


def unfit(work: ConvWork) -> str | None:
    """Why the layers are no such chain."""
    if len(work.layers) < 2 and work.layers[0].inputs <= chain_plan.FEW:
        return f"{len(work.layers)} layers: takes two and more"
    for index, layer in enumerate(work.layers):
        why = chain_plan.unfit(layer)
        if why is not None:
            return f"layers[{index}]: {why}"
    for index, layer in enumerate(work.layers[:-1]):
        if layer.adds or layer.shuffle != 1:
            return f"layers[{index}]: takes residuals and shuffles at the end of a chain alone"
    if not work.images * work.height * work.width:
        return "there is nothing to compute"
    narrowest = 64 - 2 * chain_plan.MOST_LAYERS
    rows = work.images * work.height * -(-work.width // narrowest)
    if rows >= _MOST // 2 or work.width >= _MOST // 2:
        return f"{work.images} x {work.height} x {work.width}: rows are counted in 32 bits"
    return None


def _side_by_side(work: ConvWork) -> bool:
    """Whether x will be read as it lies."""
    return work.source == "channels_last" and work.layers[0].inputs % 8 == 0


def _bytes(work: ConvWork, channels: int) -> int:
    images, rows, planes, columns, eight = chain_launch.planes_shape(work, channels)
    return 2 * images * rows * planes * columns * eight


def _run(
    enqueue: Callable[[int], None], x: Any, copied: chain_launch.Planes | None, held: object
) -> None:
    """On torch's current stream of the GPU where x lies; `held` is what the kernels read."""
    import torch

    ordinal = x.device.index
    with torch.cuda.device(ordinal):
        if copied is not None:
            copied.copy_(x)
        enqueue(torch.cuda.current_stream(ordinal).cuda_stream)
