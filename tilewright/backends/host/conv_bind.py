"""Cuts a convolution into tasks, and writes down what its step of a program needs."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from tilewright.arrays.array import NDArray
from tilewright.backends.host import compiled, conv_constants
from tilewright.backends.host.kernels.step_table import STEP
from tilewright.backends.host.program import DEPTH, FLAT, Program
from tilewright.engines.conv import ACTIVATIONS, Conv, ConvOperands, ConvWork

_BUFFER = 4 * 14 * 32  # bytes of a tile on its way to results that lie otherwise
_ROOM = 384 << 10  # bytes of a band's rows: with the weights of a block they stay in a core's cache
_TASK = 5e-6  # least seconds of a task
_OVER = 14  # pixels that a tile may read beyond a row


@dataclass(frozen=True, slots=True)
class Layout:
    """How a work is cut. A task is `band` rows (of "flat" pixels) and one of `parts` of blocks."""

    kind: int
    band: int
    parts: int
    copied: bool
    through: bool
    scratch: int
    copied_bytes: float


def layout(work: ConvWork, kind: int, cores: int, seconds: float) -> Layout:
    """A few tasks for each core; bands by the cache, and parts where weights are heavy.

    seconds   what computing takes one core
    """
    layer = work.layers[0]
    rows, columns = layer.sums(work.height, work.width)
    copied = kind not in (FLAT, DEPTH) and (
        any(layer.pads) or work.source == "channels_first" or columns < 7
    )
    through = kind != DEPTH and (
        work.result == "channels_first" or (layer.shuffle > 1 and layer.groups > 1)
    )
    wanted = max(1, min(6 * cores, int(seconds / _TASK)))
    blocks = 1 if kind == DEPTH else math.ceil(layer.outputs / 32)
    whole, unit, images = rows, 1 if kind == DEPTH else 2, work.images
    if kind == FLAT:
        whole, unit, images = work.images * rows * columns, 14, 1
    heavy = layer.weights.nbytes > 4 * whole * images * layer.inputs * (
        1 if kind == FLAT else columns
    )
    parts = min(blocks, wanted) if heavy else 1
    band = math.ceil(math.ceil(whole * images * parts / wanted) / unit) * unit
    band = min(band, math.ceil(whole / unit) * unit)
    line = _wide(layer, columns) * 4 * layer.inputs
    if copied:
        most = (_ROOM // line - _reach(layer, 0)) // layer.strides[0] + 1
        band = min(band, max(unit, most // unit * unit))
    bands = math.ceil(whole / band)
    if bands * images * parts < wanted:
        parts = min(blocks, math.ceil(wanted / (bands * images)))
    high = (band - 1) * layer.strides[0] + _reach(layer, 0)
    scratch = _BUFFER + (high * line + 4 * layer.inputs * _OVER * layer.strides[1] if copied else 0)
    moved = float(bands * images * parts * high * line) if copied else 0.0
    return Layout(kind, band, parts, copied, through, scratch, moved)


def _reach(layer: Conv, axis: int) -> int:
    """Pixels from a window's first to its last."""
    return layer.dilations[axis] * (layer.kernel[axis] - 1) + 1


def _wide(layer: Conv, columns: int) -> int:
    """Pixels of a row that windows read."""
    return (columns - 1) * layer.strides[1] + _reach(layer, 1)


def bound(
    work: ConvWork, plan: Layout, operands: ConvOperands, cores: int, seconds: float
) -> Program:
    """The program of one step."""
    step, keep = described(work, plan, operands)
    return Program(step.reshape(1), plan.scratch, cores, seconds, keep)


def described(work: ConvWork, plan: Layout, operands: ConvOperands) -> tuple[np.void, list[object]]:
    """The record of a step, and the arrays that it knows by address."""
    tile = compiled.kernels("conv_tile")
    layer = work.layers[0]
    step = np.zeros(1, STEP)[0]
    pictures_of(step, work, layer, operands)
    _window(step, work, layer, plan)
    if layer.shuffle > 1 and not plan.through:
        layer = conv_constants.row_by_row(layer)
    keep: list[object] = [operands, *_constants(step, layer, plan, tile.WIDTH, tile.LANES)]
    keep += activation_of(step, layer, later=plan.through)
    _tasks(step, work, plan)
    _results(step, work, layer, plan, operands)
    return step, keep


def _strides(array: NDArray, form: str) -> tuple[int, int, int, int]:
    """Bytes from one image, row, pixel, channel to the next, as the format has it.

    Not the array's own: those of an axis of one element may be anything.
    """
    _, channels, height, width = array.shape
    if form == "channels_last":
        return 4 * height * width * channels, 4 * width * channels, 4 * channels, 4
    return 4 * channels * height * width, 4 * width, 4, 4 * height * width


def pictures_of(step: np.void, work: ConvWork, layer: Conv, operands: ConvOperands) -> None:
    """Where x and out lie, and their sizes."""
    names = ("image", "row", "pixel", "channel")
    for side, array, form in (
        ("x", operands.x, work.source),
        ("out", operands.out, work.result),
    ):
        step[side] = array.ctypes.data
        for name, stride in zip(names, _strides(array, form), strict=True):
            step[f"{side}_{name}"] = stride
    step["height"], step["width"] = work.height, work.width
    step["rows"], step["columns"] = layer.sums(work.height, work.width)
    step["outputs"] = layer.outputs


def _window(step: np.void, work: ConvWork, layer: Conv, plan: Layout) -> None:
    """Kernel, strides, pads, and the rows as they are read."""
    step["kind"] = plan.kind
    step["top"], step["left"] = layer.pads[:2]
    step["y_stride"], step["x_stride"] = layer.strides
    step["taps_down"], step["taps_across"] = layer.kernel
    step["dilation_down"], step["dilation_across"] = layer.dilations
    step["reach"] = _reach(layer, 1 if plan.kind == DEPTH else 0)
    step["copied"] = plan.copied
    step["line"], step["pixel"] = step["x_row"], step["x_pixel"]
    if plan.copied:
        step["wide"] = _wide(layer, int(step["columns"]))
        step["pixel"] = 4 * layer.inputs
        step["line"] = step["wide"] * step["pixel"]


def _constants(step: np.void, layer: Conv, plan: Layout, width: int, lanes: int) -> list[NDArray]:
    """Weights, biases and pieces; returns the arrays, which the step knows by address."""
    if plan.kind == DEPTH:
        packed = conv_constants.depth_weights(layer, lanes)
        bias = conv_constants.of_channels(
            np.zeros(layer.outputs, np.float32) if layer.bias is None else layer.bias, lanes
        )
        step["weights"], step["bias"] = packed.ctypes.data, bias.ctypes.data
        return [packed, bias]
    table = conv_constants.pieces(layer, int(step["line"]), int(step["pixel"]))
    split = layer  # into groups, whose outputs are tiled by themselves
    if layer.shuffle > 1 and not plan.through:
        split = replace(layer, groups=layer.shuffle)
    packed, step["block_bytes"] = conv_constants.weights(split, width, lanes)
    bias = conv_constants.of_blocks(layer.bias, split, width)
    step["pieces"], step["count"] = table.ctypes.data, len(table)
    step["weights"], step["bias"] = packed.ctypes.data, bias.ctypes.data
    step["groups"], step["group_outputs"] = split.groups, layer.outputs // split.groups
    step["group_bytes"] = 0 if split is not layer else 4 * (layer.inputs // layer.groups)
    step["group_out"] = step["out_row"] if split is not layer else 4 * step["group_outputs"]
    step["blocks"] = packed.shape[1]
    return [table, packed, bias]


def activation_of(step: np.void, layer: Conv, *, later: bool) -> list[NDArray]:
    """Two bounds, or the number of what is more; returns the arrays that the step knows.

    later: the bounds wait for what is added to the plain sums, or moves them.
    """
    chosen = layer.activation
    bounds = {"none": (-np.inf, np.inf), "relu": (0.0, np.inf), "clip": (chosen.low, chosen.high)}
    step["least"], step["most"] = -np.inf, np.inf
    step["low"], step["high"] = bounds.get(chosen.kind, (chosen.low, chosen.high))
    if chosen.kind not in bounds:
        step["curved"] = ACTIVATIONS.index(chosen.kind)
    elif not later:
        step["least"], step["most"] = step["low"], step["high"]
    if chosen.slopes is None:
        return []
    slopes = conv_constants.of_channels(chosen.slopes, 16)
    step["slopes"] = slopes.ctypes.data
    return [slopes]


def _tasks(step: np.void, work: ConvWork, plan: Layout) -> None:
    """How many, and what each takes."""
    blocks = max(1, int(step["groups"] * step["blocks"]))
    whole, images = int(step["rows"]), work.images
    if plan.kind == FLAT:
        whole, images = work.images * int(step["rows"] * step["columns"]), 1
        step["columns"] = whole
    step["band"], step["bands"] = plan.band, math.ceil(whole / plan.band)
    step["block_step"] = math.ceil(blocks / plan.parts)
    step["parts"] = math.ceil(blocks / int(step["block_step"]))
    step["tasks"] = step["bands"] * images * step["parts"]


def _results(
    step: np.void, work: ConvWork, layer: Conv, plan: Layout, operands: ConvOperands
) -> None:
    """Residual, shuffle, and results that lie otherwise."""
    r = layer.shuffle
    step["through"], step["shuffle"] = plan.through, r
    if layer.adds:
        step["residual"] = operands.residuals[0].ctypes.data - operands.out.ctypes.data
    step["fine_row"], step["fine_pixel"] = step["out_row"], step["out_pixel"]
    step["out_row"], step["out_pixel"] = r * step["out_row"], r * step["out_pixel"]
