"""`expand_depthwise`: a 1 x 1 convolution and the depthwise one that reads it, as one step.

Networks for phones widen six times, filter channel by channel, and narrow again. What is widened
lies in a ring of a few rows and 32 channels, in a core's nearest cache (`kernels/conv_expand`):
through memory and in steps of their own the two took MobileNetV2 a quarter longer.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from tilewright.arrays.array import NDArray
from tilewright.backends.host import compiled, rates, refusals
from tilewright.backends.host.conv_bind import Layout, described
from tilewright.backends.host.program import DEPTH, EXPAND, FLAT, Program
from tilewright.engines.conv import Conv, ConvOperands, ConvWork
from tilewright.facts.device import Device
from tilewright.facts.verdict import Proposal

# On the core that `rates` counts in: multiply-adds of full tiles, and of sixteen channels by
# themselves in the ring; bytes that another core wrote; bytes of weights and pictures through
# the last cache.
_TILES, _DEPTH, _CROSS, _MOVE = 8.0e10, 4.5e10, 1.0e10, 1.2e10
_TILE, _TASK, _START = 4e-8, 1e-6, 1.5e-5  # seconds of a tile besides its sums; of a task; a step
_WIDTH, _COLUMNS, _SIDE = 32, 7, 4  # channels of a block; pixels that tiles need beside each other
_WINDOWS = ((3, 3), (5, 5))


@dataclass(frozen=True, slots=True)
class ExpandPlan:
    """Both layers, and how the result is cut: `bands` of `band` rows, `parts` of the blocks."""

    work: ConvWork
    bands: int
    band: int
    parts: int
    ring: int
    scratch: int
    seconds: float


class ExpandDepthwise:
    """1 x 1, then 3 x 3 or 5 x 5 channel by channel at steps of 1 or 2; channels last."""

    name = "expand_depthwise"

    def why_not(self, work: ConvWork, device: Device) -> str | None:
        """Numba, float32, and the two layers as the kernel has them."""
        if not compiled.available():
            return compiled.why_none()
        if work.dtype != "float32":
            return refusals.dtype(work, "float32")
        if len(work.layers) != 2:
            return f"{len(work.layers)} layers: takes two, a 1 x 1 and the depthwise one behind it"
        if "channels_first" in (work.source, work.result):
            return "wants pictures channels last"
        return _wide_refusal(work.layers[0]) or _deep_refusal(work)

    def propose(self, work: ConvWork, device: Device) -> Proposal:
        """The cut that finishes first on the core that `rates` counts in, scaled as others."""
        plan, found = planned(work, device.compute_units), rates.of(device)
        seconds = _START + (plan.seconds - _START) * found.factor
        reason = (
            f"{work.flops / 1e6:.3g} MFLOP, what lies between in a core's cache: {plan.bands} bands"
            f" by {plan.parts} parts of the channels; {found.origin}"
        )
        scratch = device.compute_units * plan.scratch
        return Proposal(self.name, device, seconds, reason, scratch, decisions=plan)

    def bind(self, proposal: Proposal, operands: ConvOperands) -> Program:
        """Weights packed, everything by address; two records, of which the first has the tasks."""
        plan: ExpandPlan = proposal.decisions
        steps, keep = _records(plan, operands)
        seconds = proposal.seconds or 0.0
        return Program(steps, plan.scratch, proposal.device.compute_units, seconds, keep)


def _wide_refusal(layer: Conv) -> str | None:
    """What the first layer has that the kernel has not."""
    if layer.kernel != (1, 1) or layer.strides != (1, 1) or any(layer.pads) or layer.groups > 1:
        return "layer 1: computes kernels of 1 x 1 at stride 1 without pads and groups"
    if layer.adds or layer.shuffle > 1:
        return "layer 1: adds no residual and shuffles no pixels"
    return None


def _deep_refusal(work: ConvWork) -> str | None:
    """What the second layer has, or the pictures, that the kernel has not."""
    layer = work.layers[1]
    if layer.groups != layer.outputs or layer.weights.shape[1] != 1:
        return f"layer 2: groups={layer.groups}: wants as many as {layer.outputs} outputs"
    if layer.kernel not in _WINDOWS or layer.strides not in ((1, 1), (2, 2)):
        return f"layer 2: kernel={layer.kernel}, strides={layer.strides}: wants 3 or 5, 1 or 2"
    if layer.dilations != (1, 1) or min(layer.pads) < 0:
        return "layer 2: dilates no windows and cuts no edges"
    if max(layer.pads) >= layer.kernel[0]:
        return f"layer 2: pads={layer.pads}: wants less than {layer.kernel[0]}"
    if layer.adds or layer.shuffle > 1:
        return "layer 2: adds no residual and shuffles no pixels"
    columns = layer.sums(work.height, work.width)[1]
    if work.width < _COLUMNS or columns < _SIDE:
        return f"wants rows of {_COLUMNS} pixels and {_SIDE} results or more"
    return None


def planned(work: ConvWork, cores: int) -> ExpandPlan:
    """The bands and parts that finish first; of equals the fewest tasks."""
    wide, deep = work.layers
    rows = deep.sums(work.height, work.width)[0]
    blocks = math.ceil(wide.outputs / _WIDTH)
    options = [
        (_seconds(work, math.ceil(rows / bands), parts, cores), bands * parts, bands, parts)
        for bands in sorted({1, *(cores * share for share in (1, 2, 4, 6))})
        if bands <= max(1, rows // 2)
        for parts in sorted({math.ceil(blocks / each) for each in range(1, blocks + 1)})
    ]
    seconds, _, bands, parts = min(options)
    band = math.ceil(rows / bands)
    ring = deep.kernel[0] + deep.strides[0] + 1
    line = 4 * _WIDTH * wide_columns(work)
    return ExpandPlan(work, math.ceil(rows / band), band, parts, ring, ring * line, seconds)


def wide_columns(work: ConvWork) -> int:
    """Pixels of a row between the layers, zeros at its sides among them."""
    deep = work.layers[1]
    columns = deep.sums(work.height, work.width)[1]
    return max(deep.pads[1] + work.width, (columns - 1) * deep.strides[1] + deep.kernel[1])


def _seconds(work: ConvWork, band: int, parts: int, cores: int) -> float:
    """A prediction: of whole rounds of tasks, or what memory moves, and what cores pass on."""
    wide, deep = work.layers
    rows, columns = deep.sums(work.height, work.width)
    blocks = math.ceil(wide.outputs / _WIDTH)
    each = math.ceil(blocks / parts)
    bands = math.ceil(rows / band)
    tasks = work.images * bands * math.ceil(blocks / each)
    read = min(work.height, (band - 1) * deep.strides[0] + deep.kernel[0])
    tiles = math.ceil(read / 2) * math.ceil(work.width / _COLUMNS)
    sums = 2 * _COLUMNS * _WIDTH * wide.inputs / _TILES + _TILE
    lanes = math.ceil(band / 2) * 2 * math.ceil(columns / _SIDE) * _SIDE * _WIDTH
    taps = deep.kernel[0] * deep.kernel[1]
    task = _TASK + each * (tiles * sums + lanes * (taps + 6) / _DEPTH)
    passed = 4.0 * work.images * wide.outputs * rows * columns
    alone = 1.0 if work.images * bands >= cores else 0.0
    passed *= (1.0 - alone) * (1.0 - 1.0 / cores)
    moved = work.bytes + 4.0 * (bands - 1) * work.images * wide.weights.size
    # No core begins with the others: the last task of each waits for half of one.
    longest = (math.ceil(tasks / cores) + (0.5 if tasks > 1 else 0.0)) * task
    return _START + passed / _CROSS / cores + max(longest, moved / _MOVE / cores)


def _records(plan: ExpandPlan, operands: ConvOperands) -> tuple[NDArray, list[object]]:
    """Both records, and the arrays that they know by address."""
    work = plan.work
    wide, deep = (replace(work, layers=(layer,)) for layer in work.layers)
    first, kept = described(wide, _layout(FLAT, plan), operands)
    second, also = described(deep, _layout(DEPTH, plan), operands)
    tile = compiled.kernels("conv_tile")
    blocks = int(first["blocks"])
    first["kind"], first["columns"] = EXPAND, work.width
    first["ring"], first["out_pixel"] = plan.ring, 4 * tile.WIDTH
    first["out_row"] = first["out_pixel"] * wide_columns(work)
    first["band"], first["bands"] = plan.band, plan.bands
    first["block_step"] = math.ceil(blocks / plan.parts)
    first["parts"] = math.ceil(blocks / int(first["block_step"]))
    first["tasks"] = work.images * plan.bands * first["parts"]
    second["tasks"] = 0
    return np.stack([first, second]), [*kept, *also]


def _layout(kind: int, plan: ExpandPlan) -> Layout:
    """As a step of its own would be cut, in bands of rows."""
    return Layout(kind, plan.band, 1, copied=False, through=False, scratch=0, copied_bytes=0.0)
