"""Convolutions of any shape in Triton: NVIDIA's GPUs and AMD's; a launch a layer, epilogue fused.

    x --kernel--> [N, H, W, C] --kernel--> [N, H, W, C] --kernel--> out

What lies between two layers is channels last: neighbours in memory are neighbours in k.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tilewright.backends.cuda.conv import cost
from tilewright.backends.cuda.conv.layered import given, on_stream
from tilewright.backends.cuda.conv.tiles import Tile, tile_of
from tilewright.backends.cuda.conv.triton_launches import Launches, prepared
from tilewright.engines.conv import ConvOperands, ConvWork
from tilewright.facts.device import Device
from tilewright.facts.dtypes import VALUES
from tilewright.facts.verdict import Proposal

Launch = Callable[[], None]
_MOST = 1 << 31  # tiles and columns are counted in 32 bits


@dataclass(frozen=True, slots=True, eq=False)
class Decisions:
    """The work, and a tile for each layer."""

    work: ConvWork
    tiles: tuple[Tile, ...]


@dataclass(frozen=True, slots=True)
class TritonConv:
    """kernels/triton/conv.py."""

    name: str = "triton"

    def why_not(self, work: ConvWork, device: Device) -> str | None:
        """Every element type that the device has, whole numbers, every shape."""
        if work.layers[0].whole is None and work.dtype not in device.dtypes:
            return f"dtype={work.dtype!r}: {device.name} has {', '.join(device.dtypes)}"
        pixels = max(work.images * h * w for _, h, w in work.sizes)
        channels = max(c for c, _, _ in work.sizes)
        if pixels >= _MOST or pixels * channels // 256 >= _MOST:
            return f"{pixels} pixels of {channels} channels: tiles are counted in 32 bits"
        return None

    def propose(self, work: ConvWork, device: Device) -> Proposal:
        """A launch a layer."""
        between = zip(_between(work), work.sizes[1:-1], strict=True)
        scratch = sum(VALUES[kind] * work.images * c * h * w for kind, (c, h, w) in between)
        reason = f"{len(work.layers)} launches, activations in memory between them"
        chosen = tiles_of(work, device)
        seconds = cost.in_triton(work, device, chosen)
        decisions = Decisions(work, chosen)
        return Proposal(self.name, device, seconds, reason, scratch, decisions=decisions)

    def bind(self, proposal: Proposal, operands: ConvOperands) -> Launch:
        """Kernels are compiled, weights packed and scratch is taken; launches on torch's stream."""
        decisions: Decisions = proposal.decisions
        launches: Launches = []
        each = zip(
            given(decisions.work, operands, _between(decisions.work)), decisions.tiles, strict=True
        )
        for (layer, x, out, added), tile in each:
            launches += prepared(layer, tile, x, out, added)
        return on_stream(tuple(launches), operands.x)


def _between(work: ConvWork) -> list[str]:
    """The element type of each value between two layers."""
    layers = work.layers[:-1]
    return [work.dtype if layer.whole is None else layer.whole.dtype for layer in layers]


def tiles_of(work: ConvWork, device: Device) -> tuple[Tile, ...]:
    """A tile for each layer."""
    units, rates = max(1, device.compute_units), cost.tile_rates(work, device)
    found = []
    for index, layer in enumerate(work.layers):
        width = VALUES[work.dtype if layer.whole is None else layer.whole.source]
        found.append(tile_of(layer, cost.pixels_of(work, index), units, width, rates))
    return tuple(found)
