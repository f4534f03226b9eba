"""Engines of single convolutions on the host: `direct`, which takes any, `pointwise`, `depthwise`.

What each predicts is its tiles, as they are computed, at the rate of the registers, what it copies,
and what memory moves. Bound, a work is a program of one step (`program.py`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from tilewright.backends.host import compiled, rates, refusals
from tilewright.backends.host.conv_bind import Layout, bound, layout
from tilewright.backends.host.program import DEPTH, DIRECT, FLAT, Program
from tilewright.engines.conv import Conv, ConvOperands, ConvWork
from tilewright.facts.device import Device
from tilewright.facts.verdict import Proposal

# On the core that `rates` counts in: multiply-adds of full tiles, and of channels by themselves;
# bytes copied within the caches; bytes of weights, pictures and results through the last cache.
_TILES, _DEPTH, _COPY, _MOVE = 8.0e10, 6.0e10, 1.5e10, 1.2e10
_TAPS = 1.8e10  # of channels by themselves under windows that are not 3 across
_TILE = 4e-8  # seconds a tile takes besides its sums
START = 1.5e-5  # seconds until a program of one step runs on all cores
_PIXELS, _ROWS, _COLUMNS, _WIDTH, _HALF = 14, 2, 7, 32, 16


@dataclass(frozen=True, slots=True)
class Decided:
    """What a proposal will do: the work, its kind of step, and how it is cut."""

    work: ConvWork
    layout: Layout


class _Single:
    """What the engines of one layer have in common."""

    name = ""
    kind = DIRECT

    def why_not(self, work: ConvWork, device: Device) -> str | None:
        """Numba, float32, one layer, and what the kind of step wants."""
        if not compiled.available():
            return compiled.why_none()
        if (why := refusals.but_one_of_floats(work)) is not None:
            return why
        layer = work.layers[0]
        if layer.adds and layer.shuffle > 1:
            return "adds no residual before a pixel shuffle"
        return self.misfit(work, layer)

    def misfit(self, work: ConvWork, layer: Conv) -> str | None:
        """What else it cannot take."""
        return None

    def propose(self, work: ConvWork, device: Device) -> Proposal:
        """Seconds on the core that `rates` counts in, scaled by the device's own peak."""
        cores, found = device.compute_units, rates.of(device)
        computed = self.computing(work, work.layers[0])
        plan = layout(work, self.kind, cores, computed)
        copied = plan.copied_bytes / _COPY
        busy = max((computed + copied) / cores, work.bytes / _MOVE / cores)
        seconds = START + busy * found.factor
        return Proposal(
            self.name,
            device,
            seconds,
            f"{work.flops / 1e6:.3g} MFLOP, {found.origin}",
            scratch=cores * plan.scratch,
            decisions=Decided(work, plan),
        )

    def computing(self, work: ConvWork, layer: Conv) -> float:
        """Seconds that one core computes: tiles at the edges are as long as others."""
        rows, columns = layer.sums(work.height, work.width)
        groups = layer.groups
        if layer.shuffle > 1 and groups == 1 and work.result == "channels_last":
            groups = layer.shuffle
        each = layer.outputs // groups
        full, rest = divmod(each, _WIDTH)
        wide = full * _WIDTH + (0 if not rest else _HALF if rest <= _HALF else _WIDTH)
        blocks = math.ceil(each / _WIDTH) * groups
        if self.kind == FLAT:
            tiles = math.ceil(work.images * rows * columns / _PIXELS)
        else:
            tiles = work.images * math.ceil(rows / _ROWS) * math.ceil(columns / _COLUMNS)
        floats = layer.weights.size // layer.outputs
        sums = float(tiles * _PIXELS * floats * wide * groups)
        return sums / _TILES + tiles * blocks * _TILE

    def bind(self, proposal: Proposal, operands: ConvOperands) -> Program:
        """Weights packed, everything by address; float32 arrays in the formats of the work."""
        decided: Decided = proposal.decisions
        seconds = proposal.seconds or 0.0
        cores = proposal.device.compute_units
        return bound(decided.work, decided.layout, operands, cores, seconds)


class Direct(_Single):
    """Any kernel, stride, dilation, padding, groups; both formats."""

    name = "direct"
    kind = DIRECT


class Pointwise(_Single):
    """1 x 1 at stride 1: every pixel for itself, so that tiles pass from row to row."""

    name = "pointwise"
    kind = FLAT

    def misfit(self, work: ConvWork, layer: Conv) -> str | None:
        """Pixels must follow each other in memory, at least a tile of them."""
        if layer.kernel != (1, 1) or layer.strides != (1, 1) or any(layer.pads):
            return "computes kernels of 1 x 1 at stride 1 without pads"
        if layer.shuffle > 1 or work.source == "channels_first":
            return "wants pictures channels last and no pixel shuffle"
        if work.result == "channels_first" and work.images > 1:
            return "writes several images channels last alone"
        if work.images * work.height * work.width < _PIXELS:
            return f"wants {_PIXELS} pixels or more"
        return None


class Depthwise(_Single):
    """Every channel by itself."""

    name = "depthwise"
    kind = DEPTH

    def misfit(self, work: ConvWork, layer: Conv) -> str | None:
        """Channels last alone: they are the lanes."""
        if layer.groups != layer.outputs or layer.weights.shape[1] != 1:
            return f"groups={layer.groups}: wants as many as {layer.outputs} outputs and inputs"
        if layer.shuffle > 1 or "channels_first" in (work.source, work.result):
            return "wants pictures channels last and no pixel shuffle"
        return None

    def computing(self, work: ConvWork, layer: Conv) -> float:
        """Sixteen channels of a pixel at a time."""
        rows, columns = layer.sums(work.height, work.width)
        lanes = math.ceil(layer.outputs / _HALF) * _HALF
        taps = layer.kernel[0] * layer.kernel[1]
        rate = _DEPTH if layer.kernel[1] == 3 else _TAPS
        return work.images * rows * columns * lanes * (taps + 6) / rate


SINGLE_ENGINES = (Pointwise(), Depthwise(), Direct())
