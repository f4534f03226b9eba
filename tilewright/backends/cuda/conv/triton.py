"""Convolutions of any shape in Triton: NVIDIA's GPUs and AMD's; a launch a layer, epilogue fused.

    x --kernel--> [N, H, W, C] --kernel--> [N, H, W, C] --kernel--> out

What lies between two layers is channels last: neighbours in memory are neighbours in k.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from tilewright.arrays.array import NDArray
from tilewright.backends.cuda.conv import cost
from tilewright.backends.cuda.machine.triton_launch import INTERPRETED, Task, reusable
from tilewright.engines.conv import Conv, ConvOperands, ConvWork
from tilewright.facts.device import Device
from tilewright.facts.measured import h200
from tilewright.facts.verdict import Proposal

Launch = Callable[[], None]
_MOST = 1 << 31  # tiles and columns are counted in 32 bits


@dataclass(frozen=True, slots=True)
class Tile:
    """What a program computes, and with how many warps; `k` at a time."""

    m: int
    n: int
    k: int
    warps: int
    stages: int


def is_depthwise(layer: Conv) -> bool:
    """Whether each output has one input of its own."""
    return layer.groups > 1 and layer.weights.shape[1] == 1 and layer.outputs == layer.groups


def tile_of(layer: Conv) -> Tile:
    """As many outputs as the layer has, up to 128, beside 64 or 128 pixels."""
    if is_depthwise(layer):
        return Tile(32, min(64, _power(layer.outputs)), 16, 4, 1)
    outputs = layer.outputs // layer.groups
    n = min(128, max(16, _power(outputs)))
    depth = layer.weights[0].size
    k = 32 if depth >= 32 else 16
    return Tile(128 if n <= 64 else 64, n, k, 4, 3)


@dataclass(frozen=True, slots=True)
class TritonConv:
    """kernels/triton/conv.py."""

    name: str = "triton"

    def why_not(self, work: ConvWork, device: Device) -> str | None:
        """Every element type that the device has, every shape."""
        if work.dtype not in device.dtypes:
            return f"dtype={work.dtype!r}: {device.name} has {', '.join(device.dtypes)}"
        pixels = max(work.images * h * w for _, h, w in work.sizes)
        channels = max(c for c, _, _ in work.sizes)
        if pixels >= _MOST or pixels * channels // 256 >= _MOST:
            return f"{pixels} pixels of {channels} channels: tiles are counted in 32 bits"
        return None

    def propose(self, work: ConvWork, device: Device) -> Proposal:
        """A launch a layer."""
        width = 4 if work.dtype == "float32" else 2
        between = [c * h * w for c, h, w in work.sizes[1:-1]]
        scratch = width * work.images * sum(between)
        reason = f"{len(work.layers)} launches, activations in memory between them"
        seconds = cost.seconds(work, device, h200.CONV_TRITON, along=32)
        return Proposal(self.name, device, seconds, reason, scratch, decisions=work)

    def bind(self, proposal: Proposal, operands: ConvOperands) -> Launch:
        """Kernels are compiled, weights packed and scratch is taken; launches on torch's stream."""
        import torch

        work: ConvWork = proposal.decisions
        given, launches, residuals = operands.x, [], iter(operands.residuals)
        for index, layer in enumerate(work.layers):
            out = operands.out
            if index < len(work.layers) - 1:
                channels, height, width = work.sizes[index + 1]
                flat = torch.empty(
                    (work.images, height, width, channels), dtype=given.dtype, device=given.device
                )
                out = flat.permute(0, 3, 1, 2)
            added = next(residuals) if layer.adds else None
            launches.append(_prepared(layer, given, out, added))
            given = out
        one = _on_stream(tuple(launches), operands.x)
        return one


def packed(layer: Conv) -> NDArray:
    """[groups, taps, channels, outputs of a group]; depthwise [taps, channels]."""
    outputs, channels, height, width = layer.weights.shape
    if is_depthwise(layer):
        return np.ascontiguousarray(layer.weights.reshape(outputs, -1).T)
    shape = (layer.groups, outputs // layer.groups, channels, height * width)
    return np.ascontiguousarray(layer.weights.reshape(shape).transpose(0, 3, 2, 1))


def _prepared(layer: Conv, x: Any, out: Any, added: Any) -> Callable[[int], None]:
    """The launch of a layer, given a stream."""
    import torch

    from tilewright.backends.cuda.kernels.triton.conv import convolve

    images, _, height, width = x.shape
    rows, columns = layer.sums(height, width)
    pixels, tile, deep = images * rows * columns, tile_of(layer), is_depthwise(layer)
    weights = torch.from_numpy(packed(layer)).to(x.device, x.dtype)
    bias = weights if layer.bias is None else torch.from_numpy(layer.bias).to(x.device)
    how = layer.activation
    slopes = bias if how.slopes is None else torch.from_numpy(how.slopes).to(x.device)
    tensors = (x, out, weights, bias, slopes, x if added is None else added)
    strides = (*x.stride(), *out.stride(), *((0, 0, 0, 0) if added is None else added.stride()))
    groups = 1 if deep else layer.groups
    constants = {
        "CHANNELS": 1 if deep else layer.weights.shape[1],
        "OUTPUTS": layer.outputs // groups,
        "GROUPS": groups,
        "KW": layer.kernel[1],
        "TAPS": math.prod(layer.kernel),
        "STRIDE_Y": layer.strides[0],
        "STRIDE_X": layer.strides[1],
        "DILATION_Y": layer.dilations[0],
        "DILATION_X": layer.dilations[1],
        "TOP": layer.pads[0],
        "LEFT": layer.pads[1],
        "SHUFFLE": layer.shuffle,
        "ADDS": added is not None,
        "BIASED": layer.bias is not None,
        "HOW": how.kind,
        "DEPTHWISE": deep,
        "TILE_M": tile.m,
        "TILE_N": tile.n,
        "TILE_K": tile.k,
    }
    programs = -(-pixels // tile.m) * -(-(layer.outputs // groups) // tile.n) * groups
    numbers = (float(how.low), float(how.high), pixels, columns, rows, height, width, *strides)
    options = {"num_warps": tile.warps, "num_stages": tile.stages}
    task = Task(convolve, programs, (*tensors, *numbers), constants, options)
    run = reusable(task, _ordinal(x))
    return lambda stream: run(stream, programs, *tensors)


def _on_stream(launches: tuple[Callable[[int], None], ...], x: Any) -> Launch:
    """All of them on torch's current stream of the GPU."""
    import torch

    if _ordinal(x) == INTERPRETED:

        def interpret() -> None:
            for one in launches:
                one(0)

        return interpret
    ordinal = x.device.index

    def launch() -> None:
        with torch.cuda.device(ordinal):
            stream = torch.cuda.current_stream(ordinal).cuda_stream
            for one in launches:
                one(stream)

    return launch


def _ordinal(x: Any) -> int:
    return x.device.index if x.is_cuda else INTERPRETED


def _power(number: int) -> int:
    return 1 << (number - 1).bit_length()
