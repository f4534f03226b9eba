"""Chains of 3x3 convolutions as one kernel on Hopper, or as few as shared memory allows.

    x --copy, if of many channels--> planes --part--> planes --part--> out

A network of 1 -> 32, 4 x 32 -> 32, 32 -> 4 channels spends its time in memory where each layer is a
kernel of its own; here nothing between the layers of a part leaves the multiprocessor.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tilewright.backends.cuda.conv import chain_launch, chain_plan
from tilewright.backends.cuda.conv.chain_plan import Part
from tilewright.backends.cuda.machine import nvrtc
from tilewright.engines.conv import ConvOperands, ConvWork
from tilewright.facts.device import Device
from tilewright.facts.verdict import Proposal

Launch = Callable[[], None]
_LONGEST = 1 << 30  # rows of all strips, and columns: counted in 32 bits


@dataclass(frozen=True, slots=True, eq=False)
class Decisions:
    """The work, its parts, and how many multiprocessors there are."""

    work: ConvWork
    parts: tuple[Part, ...]
    units: int


@dataclass(frozen=True, slots=True)
class Chained:
    """kernels/conv/chain_wgmma.cu."""

    name: str = "chain"

    def why_not(self, work: ConvWork, device: Device) -> str | None:
        """Halves, 3x3 layers of at most 64 channels, Hopper."""
        if not device.has("wgmma"):
            return f"needs wgmma, which {device.name} does not have"
        if work.dtype not in ("float16", "bfloat16"):
            return f"dtype={work.dtype!r}: takes float16 and bfloat16"
        return unfit(work) or nvrtc.missing()

    def propose(self, work: ConvWork, device: Device) -> Proposal:
        """As many layers a kernel as shared memory holds."""
        parts = chain_plan.cut(work.layers)
        said = " + ".join(str(len(part.layers)) for part in parts)
        reason = f"layers a kernel: {said}; between them nothing is written"
        decisions = Decisions(work, parts, max(1, device.compute_units))
        scratch = sum(_bytes(work, part) for part in parts if not part.inputs)
        return Proposal(self.name, device, None, reason, scratch, decisions=decisions)

    def bind(self, proposal: Proposal, operands: ConvOperands) -> Launch:
        """Kernels are compiled, weights packed, scratch is taken; launches on torch's stream."""
        decisions: Decisions = proposal.decisions
        work, launches, given = decisions.work, [], operands.x
        reach = [chain_plan.strips(part, work.width) * part.useful for part in decisions.parts]
        for index, part in enumerate(decisions.parts):
            if not part.inputs and index == 0:
                given = chain_launch.planes(work, part.channels[0], reach[0], operands.x)
                launches.append(_copy(given, operands.x))
            last = index == len(decisions.parts) - 1
            out = operands.out
            if not last:
                out = chain_launch.planes(work, part.channels[-1], reach[index + 1], operands.x)
            added = operands.residuals[0] if last and work.layers[-1].adds else None
            launches.append(chain_launch.prepared(part, work, given, out, added, decisions.units))
            given = out
        return launches[0] if len(launches) == 1 else _in_turn(tuple(launches))


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
    if work.images * work.height * max(64, work.width) >= 64 * _LONGEST or work.width >= _LONGEST:
        return f"{work.images} x {work.height} x {work.width}: rows are counted in 32 bits"
    return None


def _bytes(work: ConvWork, part: Part) -> int:
    reach = chain_plan.strips(part, work.width) * part.useful
    rows, planes, columns, eight = chain_launch.planes_shape(work, part.channels[0], reach)
    return 2 * rows * planes * columns * eight


def _copy(planes: chain_launch.Planes, x: Any) -> Launch:
    return lambda: planes.copy_(x)


def _in_turn(launches: tuple[Launch, ...]) -> Launch:
    def launch() -> None:
        for one in launches:
            one()

    return launch
