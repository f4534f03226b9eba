"""3x3 convolutions of stride 1 in float32 by Winograd, a kernel a layer (kernels/conv/winograd.cu).

    F(4, 3)   4 times fewer products than the plain sum, about twice its error
    F(2, 3)   2.25 times fewer, no more error: `exact` asks for it; where results are few as well

Of halves there is none: on tensor cores transforms take longer than the products that they save.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tilewright.backends.cuda.bits.engines import capability
from tilewright.backends.cuda.conv import winograd_launch
from tilewright.backends.cuda.conv.layered import given, on_stream
from tilewright.backends.cuda.conv.winograd_launch import Shape
from tilewright.backends.cuda.machine import nvrtc
from tilewright.engines.conv import Conv, ConvOperands, ConvWork
from tilewright.facts.device import Device
from tilewright.facts.measured import h200
from tilewright.facts.measured.scale import scale
from tilewright.facts.verdict import Proposal

Launch = Callable[[], None]
_AMPERE = 80
_MOST = 1 << 31  # blocks and columns are counted in 32 bits


@dataclass(frozen=True, slots=True, eq=False)
class Decisions:
    """The work, what a block of each layer computes, and how many multiprocessors there are."""

    work: ConvWork
    shapes: tuple[Shape, ...]
    units: int


@dataclass(frozen=True, slots=True)
class WinogradConv:
    """Takes chains of such layers, any pads, activations, residuals and shuffles."""

    name: str = "winograd"

    def why_not(self, work: ConvWork, device: Device) -> str | None:
        """Other types, windows and groups; GPUs without cp.async or the shared memory."""
        if work.dtype != "float32":
            return f"dtype={work.dtype!r}: takes float32"
        if (capability(device) or 0) < _AMPERE:
            return f"needs sm_{_AMPERE} and later, {device.name} is {device.version or 'another'}"
        least = Shape(4, 4).shared
        if device.local_memory < least:
            return f"needs {least} shared bytes, {device.name} has {device.local_memory}"
        for index, layer in enumerate(work.layers):
            why = unfit(layer)
            if why is not None:
                return f"layers[{index}]: {why}"
        pixels = max(work.images * h * w for _, h, w in work.sizes)
        if pixels * max(c for c, _, _ in work.sizes) >= 64 * _MOST:
            return f"{pixels} pixels: blocks are counted in 32 bits"
        return nvrtc.missing()

    def propose(self, work: ConvWork, device: Device) -> Proposal:
        """F(2, 3) or F(4, 3) for each layer, whichever is done first."""
        shapes = tuple(shape_of(work, index, device) for index in range(len(work.layers)))
        total = sum(seconds(work, index, one, device) for index, one in enumerate(shapes))
        scratch = sum(4 * work.images * c * h * w for c, h, w in work.sizes[1:-1])
        said = ", ".join(dict.fromkeys(f"F({one.tile}, 3)" for one in shapes))
        reason = f"{said}: {work.flops / products(work, shapes):.1f} times fewer products"
        decisions = Decisions(work, shapes, max(1, device.compute_units))
        return Proposal(self.name, device, total, reason, scratch, decisions=decisions)

    def bind(self, proposal: Proposal, operands: ConvOperands) -> Launch:
        """Kernels are compiled, weights transformed; launches on torch's stream."""
        decisions: Decisions = proposal.decisions
        work = decisions.work
        calls, held = [], []
        kinds = ["float32"] * (len(work.layers) - 1)
        each = zip(given(work, operands, kinds), decisions.shapes, strict=True)
        for (layer, x, out, added), shape in each:
            call, needed = winograd_launch.prepared(layer, shape, x, out, added, decisions.units)
            calls.append(call)
            held.append(needed)
        enqueue = nvrtc.launcher(*calls)

        def launch(stream: int, _held: object = held) -> None:
            enqueue(stream)

        return on_stream((launch,), operands.x)


def unfit(layer: Conv) -> str | None:
    """Why a layer is none of those that it takes."""
    facts = (
        ("kernel", layer.kernel, (3, 3)),
        ("strides", layer.strides, (1, 1)),
        ("dilations", layer.dilations, (1, 1)),
        ("groups", layer.groups, 1),
    )
    for name, value, accepted in facts:
        if value != accepted:
            return f"{name}={value}: takes {accepted}"
    return None


def shape_of(work: ConvWork, index: int, device: Device) -> Shape:
    """What a block computes: of a layer's shapes that which is predicted to be done first."""
    tiles = (2,) if work.exact else (4, 2)
    found = []
    for tile in tiles:
        shapes = (Shape(tile, chunk) for chunk in (8, 4))
        found.append(next(one for one in shapes if one.shared <= device.local_memory))
    return min(found, key=lambda one: seconds(work, index, one, device))


def products(work: ConvWork, shapes: tuple[Shape, ...]) -> float:
    """Flops of the products alone, as many as the tiles need."""
    total = 0.0
    for layer, shape, size in zip(work.layers, shapes, work.sizes, strict=False):
        rows, columns = layer.sums(*size[1:])
        tiles = -(-rows // shape.tile) * -(-columns // shape.tile)
        total += 2.0 * tiles * shape.positions * layer.inputs * layer.outputs
    return total * work.images


def seconds(work: ConvWork, index: int, shape: Shape, device: Device) -> float:
    """Predicted of a layer: rounds of blocks, one a multiprocessor, each of so many chunks."""
    layer, rates = work.layers[index], h200.CONV_WINOGRAD[shape.tile]
    down, across = shape.grid(*layer.sums(*work.sizes[index][1:]))
    blocks = work.images * down * across * shape.blocks(layer)
    scaled = scale(device, "float32")
    rounds = -(-blocks // max(1, device.compute_units))
    each = rates.block + rates.channel * shape.chunk * shape.chunks(layer)
    return rates.launch + rounds * each / scaled.multiply
