"""conv_chain: whole chains of 3x3 convolutions by Winograd, a strip a work-item, on CPUs.

Bands of rows roll down a strip and every layer keeps a ring of them, so that memory sees the
picture and the result alone. F(4, 3), or F(2, 3) where `exact` is asked for. How the work is cut:
chain_plan.py; the kernel: conv_chain.cl.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import numpy as np

from tilewright.arrays.array import NDArray
from tilewright.backends.opencl.conv import bound, chain_plan, endings, refusals
from tilewright.backends.opencl.conv.bound import Bound, Lowered, Steps
from tilewright.backends.opencl.conv.chain_plan import Cut
from tilewright.backends.opencl.conv.weights import per_output
from tilewright.engines.conv import ACTIVATIONS, Conv, ConvOperands, ConvWork
from tilewright.engines.winograd import transformed
from tilewright.facts.device import Device
from tilewright.facts.kernel import Defines, Int, Launch, Long, Raw, Scratch
from tilewright.facts.verdict import Proposal

_TYPICAL = 1.6e11  # flops a second of the core that chain_plan's times are of


class Chain:
    """A work-item takes a strip through all layers, so it is for devices of few wide cores."""

    name = "conv_chain"

    def why_not(self, work: ConvWork, device: Device) -> str | None:
        """Other devices than CPUs, other layers than 3x3 of stride 1."""
        why = refusals.why_not(work, device)
        if why is not None or device.kind == "gpu":
            return why or "a work-item runs a whole strip, which is for CPUs"
        return chain_plan.why_not(work)

    def propose(self, work: ConvWork, device: Device) -> Proposal:
        """The cheapest cut, its time scaled by the device's measured peak."""
        cut = chain_plan.cut(work, device)
        scratch = refusals.check_memory(_scratch(work, cut), device)
        peak = device.ceilings.peak("float32") if device.ceilings else None
        core = peak.value / max(1, device.compute_units) if peak else _TYPICAL
        basis = "scaled by the measured peak" if peak else "a typical core; not measured here yet"
        way = "F(2, 3)" if cut.tile == 2 else "F(4, 3)"
        reason = f"{way}, {cut.strips} strips of {cut.strip} columns, {cut.parts} parts; {basis}"
        seconds = cut.seconds * _TYPICAL / core
        return Proposal(self.name, device, seconds, reason, scratch, decisions=(work, cut))

    def bind(self, proposal: Proposal, operands: ConvOperands) -> Bound:
        """Weights transformed, program compiled."""
        work, cut = proposal.decisions
        return bound.bind(work, proposal.device, operands, partial(_lower, work, cut))


def _scratch(work: ConvWork, cut: Cut) -> tuple[Scratch, ...]:
    blocks = sum(chain_plan.block_sizes(work, cut.tile))
    return (
        Scratch("conv_rings", 4 * cut.slots * chain_plan.ring_size(work, cut)),
        Scratch("conv_blocks", 4 * cut.slots * blocks),
    )


def _lower(work: ConvWork, cut: Cut, steps: Mapping[str, Steps]) -> Lowered:
    constants = _constants(work, cut)
    defines = _defines(work, cut)
    v_floats, m_floats = chain_plan.block_sizes(work, cut.tile)
    launches = []
    for first in range(0, cut.items, cut.slots):
        sizes = (first, cut.items, len(work.layers), work.height, work.width)
        cuts = (cut.strips, cut.strip, cut.parts, cut.part, chain_plan.ring_columns(work, cut))
        arguments = (
            *map(Int, (*sizes, *cuts)),
            Long(chain_plan.ring_size(work, cut)),
            Long(v_floats + m_floats),
            Int(v_floats),
            *map(Raw, ("layers", "numbers", "weights", "conv_rings", "conv_blocks")),
            *steps["x"].arguments,
            *steps["out"].arguments,
        )
        size = (cut.slots, 1)
        launches.append(Launch("conv_chain", "conv_chain", defines, size, (1, 1), arguments))
    return Lowered(tuple(launches), _scratch(work, cut), constants)


def _defines(work: ConvWork, cut: Cut) -> Defines:
    kinds = {ACTIVATIONS.index(layer.activation.kind) for layer in work.layers}
    return (
        ("BITS", endings.BITS[work.dtype]),
        ("KINDS", sum(1 << kind for kind in kinds)),
        ("TILE", cut.tile),
        *((f"K{at}", k) for at, k in enumerate(chain_plan.kinds(work))),
    )


def _constants(work: ConvWork, cut: Cut) -> dict[str, NDArray]:
    """`layers`, `numbers` and `weights` of conv_chain.cl."""
    kinds = chain_plan.kinds(work)
    parts: list[NDArray] = []
    facts, numbers, ring = [], [], 0
    for index, layer in enumerate(work.layers):
        stored, few = chain_plan.stored(work, index), chain_plan.is_few(work, index)
        plain = _plain(layer, stored)
        last = index == len(work.layers) - 1
        laid = plain if few else _transformed(layer, stored, cut.tile, last=last)
        both = [per_output(layer.bias, layer, 16), per_output(layer.activation.slopes, layer, 16)]
        at = sum(part.size for part in parts)
        where = (at, at + laid.size, at + laid.size + plain.size)
        parts += [laid, plain, *both]
        kind = ACTIVATIONS.index(layer.activation.kind)
        which = -1 if few else kinds.index(stored)
        facts.append(
            (layer.inputs, stored, layer.outputs, which, kind, layer.shuffle, *where, ring)
        )
        numbers.append((layer.activation.low, layer.activation.high))
        ring += stored
    return {
        "layers": np.array(facts, np.int32),
        "numbers": np.array(numbers, np.float32),
        "weights": np.concatenate(parts).astype(np.float32),
    }


def _plain(layer: Conv, stored: int) -> NDArray:
    """[tap][input][output], outputs up to whole vectors."""
    found = np.zeros((9, stored, -(-layer.outputs // 16) * 16), np.float32)
    taps = layer.weights.reshape(layer.outputs, layer.inputs, 9).transpose(2, 1, 0)
    found[:, : layer.inputs, : layer.outputs] = taps
    return found.ravel()


def _transformed(layer: Conv, stored: int, tile: int, *, last: bool) -> NDArray:
    """[32 outputs][position][input][output], or [position][4 inputs][output][input] of four."""
    positions = (tile + 2) ** 2
    found = np.zeros((positions, stored, -(-layer.outputs // 16) * 16), np.float32)
    moved = transformed(layer.weights, tile)
    found[:, : layer.inputs, : layer.outputs] = moved.transpose(0, 2, 1)
    if last and layer.outputs <= 4:
        four = found[:, :, :4].reshape(positions, stored // 4, 4, 4).swapaxes(2, 3)
        return four.ravel()
    groups = [found[:, :, at : at + 32].ravel() for at in range(0, found.shape[2], 32)]
    return np.concatenate(groups)
