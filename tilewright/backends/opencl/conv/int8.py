"""conv_int8: convolutions of whole numbers of eight bits by conv_direct's program, in exact floats.

x - zero and weights are whole floats, and sums of them are exact as far as 2^24: further ones join
sums of int. So any device runs them at the rate of its floats, with the bits of the definition.
Between layers such floats lie in blocks: of four bytes on CPUs, which multiply a broadcast number
as it lies, halves on GPUs. Tried on two AVX-512 cores, Gop/s: dot products of
cl_khr_integer_dot_product 13, widened to int 42, to pairs of short 75, exact floats 117 to 190.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import numpy as np

from tilewright.arrays.array import NDArray
from tilewright.backends.opencl.conv import bound, refusals, weights
from tilewright.backends.opencl.conv.bound import Bound, Lowered, Steps
from tilewright.backends.opencl.conv.direct import (
    TURNS,
    launch_of,
    propose,
    scratch_of,
    shape_of,
    sizes_of,
)
from tilewright.backends.opencl.conv.endings import BITS, stored
from tilewright.backends.opencl.lowering import grid, round_up
from tilewright.backends.opencl.rules import preferences
from tilewright.engines.conv import Conv, ConvOperands, ConvWork, Whole
from tilewright.facts.device import Device
from tilewright.facts.dtypes import VALUES
from tilewright.facts.kernel import Int, Launch, Long, Raw, Scalar
from tilewright.facts.verdict import Proposal

_EXACT = 1 << 24  # whole numbers that float32 holds
_TYPES = {"uint8": 1, "int8": 2, "float32": 3}  # SOURCE and KEPT of the kernels
_STEPS = (1e-30, 1e30)  # of rounding, so that 1 / step is a normal number


class Int8:
    """Any layers of whole numbers, chains of them too."""

    name = "conv_int8"

    def why_not(self, work: ConvWork, device: Device) -> str | None:
        """Floats, residuals, sums past 32 bits, steps that have no reciprocal."""
        if device.backend != "opencl":
            return "it runs on OpenCL devices"
        wholes = [layer.whole for layer in work.layers]
        if work.dtype not in ("uint8", "int8") or None in wholes:
            return "it multiplies whole numbers of eight bits"
        if any(layer.adds for layer in work.layers):
            return "a layer that adds a residual"
        lanes, _ = shape_of(work, device)
        for layer in work.layers:
            if _most(layer, bias=True) >= 1 << 31:
                return "sums of more than 32 bits"
            if _fold(layer, lanes) and weights.mode_of(layer, lanes) == weights.ANY:
                return "groups that lie across blocks of channels, and sums past 2^24"
        steps = [step for one in wholes if one for step in (one.step, one.taken) if step]
        if any(not _STEPS[0] < step < _STEPS[1] for step in steps):
            return f"steps of rounding outside {_STEPS}"
        return refusals.why_no_sizes(work)

    def propose(self, work: ConvWork, device: Device) -> Proposal:
        """As conv_direct of the floats that it multiplies."""
        lanes, _ = shape_of(work, device)
        item = VALUES[_between(device)]
        scratch = refusals.check_memory(scratch_of(work, lanes, item), device)
        return propose(self.name, work, device, lanes, item, scratch)

    def bind(self, proposal: Proposal, operands: ConvOperands) -> Bound:
        """Weights packed, programs compiled."""
        work, device = proposal.decisions, proposal.device
        return bound.bind(work, device, operands, partial(_lower, work, device))


def _between(device: Device) -> str:
    """The float type of what lies between layers; 255 less 0 fits each."""
    return "float32" if device.kind == "cpu" else "float16"


def _lower(work: ConvWork, device: Device, steps: Mapping[str, Steps]) -> Lowered:
    lanes, pixels = shape_of(work, device)
    kind = _between(device)
    scratch = scratch_of(work, lanes, VALUES[kind])
    constants = {"numbers": _taken(work)}
    launches = [_lay_in(work, device, steps["x"], lanes)]
    # fma() and a * b + c give exact sums, whatever mad() does.
    multiply_add = ("MULTIPLY_ADD", 2 * int(preferences(device).multiply_add == 2))
    for index, layer in enumerate(work.layers):
        whole, last = _whole(layer), index == len(work.layers) - 1
        constants[f"weights{index}"] = weights.packed(layer, lanes, kind)
        constants[f"bias{index}"] = _bias(layer, lanes)
        constants[f"worth{index}"] = _worth(work, index, lanes)
        defines = (
            *(("BITS", BITS[kind]), multiply_add, ("KINDS", 1), ("LANES", lanes)),
            *(("PIXELS", pixels), ("MODE", weights.mode_of(layer, lanes))),
            *(("PACKED", int(not last)), ("STRIDE", layer.strides[1]), ("WHOLE", 1)),
            *(("FOLD", _fold(layer, lanes)), ("ROUND", int(whole.step is not None))),
            ("KEPT", _TYPES[whole.dtype] if last else 0),
        )
        arguments = (
            *sizes_of(work, index, inputs=True),
            *(Raw(TURNS[index % 2]), Raw(f"weights{index}")),
            Long(constants[f"weights{index}"].size - lanes),
            *(Raw(f"bias{index}"), Raw(f"worth{index}"), Int(0)),
            *(Scalar(float(whole.low)), Scalar(float(whole.high)), Int(0)),
            *Steps("x").arguments,
            *stored(layer, steps["out"] if last else Steps(TURNS[(index + 1) % 2])),
        )
        shape = (lanes, pixels)
        launches.append(launch_of("conv_direct", work, index, device, defines, arguments, shape))
    return Lowered(tuple(launches), scratch, constants)


def _lay_in(work: ConvWork, device: Device, x: Steps, lanes: int) -> Launch:
    """x into blocks of channels, rounded where it comes as floats."""
    channels, height, width = work.sizes[0]
    blocks = -(-channels // lanes)
    size, local = grid((width * blocks, work.images * height), device)
    sizes = (channels, height, width, work.images * height)
    arguments = (*map(Int, sizes), *x.arguments, Raw("numbers"), Raw(TURNS[0]))
    defines = (
        *(("BITS", BITS[_between(device)]), ("LANES", lanes)),
        ("SOURCE", _TYPES[work.source_dtype]),
    )
    return Launch("conv_int8_in", "conv_int8_in", defines, size, local, arguments)


def edges(step: float, shift: int, dtype: str) -> NDArray:
    """The least float32 y for each result but the least: saturated(round(y / step) + shift).

    [256] float32, -inf first; found by halving, by the definition itself.
    """
    least, most = np.iinfo(dtype).min, np.iinfo(dtype).max
    wanted = np.arange(least + 1, most + 1)

    def value(keys: NDArray) -> NDArray:
        """float32 in order: a key below 0 stands for the number of its distance, negative."""
        return np.where(keys < 0, -keys | 0x80000000, keys).astype(np.uint32).view(np.float32)

    infinity = int(np.float32(np.inf).view(np.uint32))
    below = np.full(wanted.shape, -infinity, np.int64)
    above = np.full(wanted.shape, infinity, np.int64)
    with np.errstate(over="ignore"):
        while (above - below > 1).any():
            middle = (below + above) // 2
            ratio = np.round(value(middle) / np.float32(step)) + np.float32(shift)
            there = np.clip(ratio, least, most) >= wanted
            above, below = np.where(there, middle, above), np.where(there, below, middle)
    return np.concatenate([np.full(1, -np.inf, np.float32), value(above)])


def _rounding(step: float | None, shift: int, dtype: str, zero: int) -> NDArray:
    """`numbers` of conv_whole.clh; `zero` is what the next layer takes off."""
    table, least = np.zeros(256, np.float32), 0
    if step is not None:
        table, least = edges(step, shift, dtype), np.iinfo(dtype).min
    more = (1 / np.float32(step or 1), shift, least, zero)
    return np.concatenate([table, np.asarray(more, np.float32)])


def _taken(work: ConvWork) -> NDArray:
    whole = _whole(work.layers[0])
    return _rounding(whole.taken, whole.zero, whole.source, whole.zero)


def _worth(work: ConvWork, index: int, lanes: int) -> NDArray:
    """A scale for each output, then how its values are rounded for who reads them."""
    layer = work.layers[index]
    whole, last = _whole(layer), index == len(work.layers) - 1
    zero = 0 if last else _whole(work.layers[index + 1]).zero
    scale = np.zeros(round_up(layer.outputs, lanes), np.float32)
    scale[: layer.outputs] = np.broadcast_to(whole.scale, layer.outputs)
    return np.concatenate([scale, _rounding(whole.step, whole.shift, whole.dtype, zero)])


def _bias(layer: Conv, lanes: int) -> NDArray:
    found = np.zeros(round_up(layer.outputs, lanes), np.int32)
    if layer.bias is not None:
        found[: layer.outputs] = layer.bias
    return found


def _most(layer: Conv, *, bias: bool) -> int:
    """What no sum passes, in whatever order."""
    most = np.abs(layer.weights.astype(np.int64)).reshape(layer.outputs, -1).sum(axis=1)
    most *= _furthest(layer)
    if bias and layer.bias is not None:
        most += np.abs(layer.bias.astype(np.int64))
    return int(most.max(initial=0))


def _furthest(layer: Conv) -> int:
    """The largest x - zero."""
    whole = _whole(layer)
    ends = np.iinfo(whole.source)
    return max(int(whole.zero) - int(ends.min), int(ends.max) - int(whole.zero))


def _fold(layer: Conv, lanes: int) -> int:
    """Taps of a block of channels whose sums are exact for certain; 0 where all sums are."""
    if _most(layer, bias=False) <= _EXACT:
        return 0
    channels = 1 if weights.mode_of(layer, lanes) == weights.DEPTHWISE else lanes
    return _EXACT // (128 * _furthest(layer) * channels)


def _whole(layer: Conv) -> Whole:
    assert layer.whole is not None
    return layer.whole
