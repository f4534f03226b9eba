"""Launches of a layer's Triton kernels: tensors, numbers and what is compiled in, by the tile.

kernels/triton/conv.py         floats
kernels/triton/conv_int8.py    small whole numbers
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from tilewright.arrays.array import NDArray
from tilewright.backends.cuda.conv import tiles
from tilewright.backends.cuda.conv.layered import ordinal_of
from tilewright.backends.cuda.conv.tiles import Tile, is_depthwise
from tilewright.backends.cuda.machine.triton_launch import Task, reusable
from tilewright.engines.conv import Conv
from tilewright.errors import KernelError

Launches = list[Callable[[int], None]]
_FEW = 32  # channels that are compiled in
_FINISHED = (4, 64)  # results and outputs that a program adds up
_LIMITS = {"uint8": (0, 255), "int8": (-128, 127), "float32": (0, 0)}


def prepared(layer: Conv, tile: Tile, x: Any, out: Any, added: Any) -> Launches:
    """The launches of a layer, each given a stream: of shares of sums two."""
    make = _Floats if layer.whole is None else _Wholes
    at = make(layer, tile, x, out, added)
    return [at.convolved()] if tile.splits == 1 else [at.convolved(), at.finished()]


class _Layer:
    """What both kinds of kernels are given."""

    def __init__(self, layer: Conv, tile: Tile, x: Any, out: Any) -> None:
        self.layer, self.tile, self.x, self.out = layer, tile, x, out
        rows, columns = layer.sums(*x.shape[2:])
        self.pixels, self.size = x.shape[0] * rows * columns, (columns, rows)

    def shared(self, kind: Any) -> Any:
        """Memory for the shares of sums."""
        import torch

        shape = (self.tile.splits if self.tile.splits > 1 else 0, self.pixels, self.layer.outputs)
        return torch.empty(shape, dtype=kind, device=self.x.device)

    def sizes(self) -> tuple[int, ...]:
        """Of x, of a group, and how much of k a program has."""
        layer, deep = self.layer, is_depthwise(self.layer)
        groups, channels = (1, 1) if deep else (layer.groups, int(layer.weights.shape[1]))
        share = tiles.share(layer, self.tile)
        return (*self.x.shape[2:], channels, layer.outputs // groups, share)

    def constants(self) -> dict[str, Any]:
        """What is compiled in."""
        layer, tile, deep = self.layer, self.tile, is_depthwise(self.layer)
        channels = 1 if deep else int(layer.weights.shape[1])
        return {
            "CHANNELS": channels if channels < _FEW else 0,
            "WHOLE": tiles.whole(layer, tile),
            "GROUPS": 1 if deep else layer.groups,
            "KW": layer.kernel[1],
            "TAPS": math.prod(layer.kernel),
            "STRIDE_Y": layer.strides[0],
            "STRIDE_X": layer.strides[1],
            "DILATION_Y": layer.dilations[0],
            "DILATION_X": layer.dilations[1],
            "TOP": layer.pads[0],
            "LEFT": layer.pads[1],
            "SHUFFLE": layer.shuffle,
            "DEPTHWISE": deep,
            "SPLITS": tile.splits,
            "TILE_M": tile.m,
            "TILE_N": tile.n,
            "TILE_K": tile.k,
        }

    def launch(
        self, kernel: Any, count: int, tensors: Any, numbers: Any, constants: dict[str, Any]
    ) -> Callable[[int], None]:
        """So many programs of a kernel, given a stream."""
        options = {"num_warps": self.tile.warps, "num_stages": self.tile.stages}
        task = Task(kernel, count, (*tensors, *numbers), constants, options)
        run = reusable(task, ordinal_of(self.x))
        return lambda stream: run(stream, count, *tensors)

    def finishing(self) -> int:
        """Programs that add the shares up."""
        rows, outputs = _FINISHED
        return int(-(-self.pixels // rows) * -(-self.layer.outputs // outputs))


class _Floats(_Layer):
    """Sums in float32; bias, residual and activation behind them."""

    def __init__(self, layer: Conv, tile: Tile, x: Any, out: Any, added: Any) -> None:
        import torch

        super().__init__(layer, tile, x, out)
        self.weights = torch.tensor(packed(layer), device="cpu").to(x.device, x.dtype)
        spare, how = self.weights, layer.activation
        self.bias = (
            spare if layer.bias is None else torch.tensor(layer.bias, device="cpu").to(x.device)
        )
        self.slopes = (
            spare if how.slopes is None else torch.tensor(how.slopes, device="cpu").to(x.device)
        )
        self.added, self.parts = x if added is None else added, self.shared(torch.float32)
        self.limits = (float(how.low), float(how.high))
        self.strides = (*out.stride(), *((0, 0, 0, 0) if added is None else added.stride()))
        self.ends = {"ADDS": layer.adds, "BIASED": layer.bias is not None, "HOW": how.kind}
        self.precision = {"PRECISION": "ieee"}

    def convolved(self) -> Callable[[int], None]:
        """The products, and the epilogue where no sum is shared."""
        from tilewright.backends.cuda.kernels.triton.conv import convolve

        tensors = (self.x, self.out, self.weights, self.bias, self.slopes, self.added, self.parts)
        where = (*self.x.stride(), *self.strides)
        numbers = (*self.limits, self.pixels, *self.size, *self.sizes(), *where)
        count = tiles.programs(self.layer, self.pixels, self.tile)
        constants = self.constants() | self.ends | self.precision
        return self.launch(convolve, count, tensors, numbers, constants)

    def finished(self) -> Callable[[int], None]:
        """The epilogue of sums that were shared."""
        from tilewright.backends.cuda.kernels.triton.conv import finish

        tensors = (self.out, self.bias, self.slopes, self.added, self.parts)
        sizes = (self.pixels, *self.size, self.layer.outputs, self.tile.splits)
        numbers = (*self.limits, *sizes, *self.strides)
        rows, outputs = _FINISHED
        constants = {"SHUFFLE": self.layer.shuffle, **self.ends, "TILE_M": rows, "TILE_N": outputs}
        return self.launch(finish, self.finishing(), tensors, numbers, constants)


class _Wholes(_Layer):
    """Sums in int32, what they are worth behind them."""

    def __init__(self, layer: Conv, tile: Tile, x: Any, out: Any, added: Any) -> None:
        import torch

        super().__init__(layer, tile, x, out)
        whole = layer.whole
        if whole is None or added is not None:
            raise KernelError("a layer of whole numbers that adds a residual: there is none")
        zero = whole.zero - 128 if whole.source == "uint8" else whole.zero  # as int8
        self.weights = torch.tensor(packed_whole(layer), device="cpu").to(x.device)
        self.bias = torch.tensor(whole_bias(layer, zero), device="cpu").to(x.device)
        self.scale = torch.tensor(whole.scale, device="cpu").to(x.device)
        self.parts = self.shared(torch.int32)
        self.limits = (float(whole.low), float(whole.high), whole.step or 1.0, float(whole.shift))
        self.reading = (zero, float(whole.taken or 1.0))
        low, high = _LIMITS["float32" if whole.step is None else whole.dtype]
        self.ends = {"LOWEST": low, "HIGHEST": high}

    def convolved(self) -> Callable[[int], None]:
        """The products, and what they are worth where no sum is shared."""
        from tilewright.backends.cuda.kernels.triton.conv_int8 import convolve_int8

        tensors = (self.x, self.out, self.weights, self.bias, self.scale, self.parts)
        where = (*self.x.stride(), *self.out.stride())
        numbers = (*self.limits, *self.reading, self.pixels, *self.size, *self.sizes(), *where)
        count = tiles.programs(self.layer, self.pixels, self.tile)
        return self.launch(convolve_int8, count, tensors, numbers, self.constants() | self.ends)

    def finished(self) -> Callable[[int], None]:
        """What sums are worth that were shared."""
        from tilewright.backends.cuda.kernels.triton.conv_int8 import finish_int8

        tensors = (self.out, self.bias, self.scale, self.parts)
        sizes = (self.pixels, *self.size, self.layer.outputs, self.tile.splits)
        numbers = (*self.limits, *sizes, *self.out.stride())
        rows, outputs = _FINISHED
        constants = {"SHUFFLE": self.layer.shuffle, **self.ends, "TILE_M": rows, "TILE_N": outputs}
        return self.launch(finish_int8, self.finishing(), tensors, numbers, constants)


def packed(layer: Conv) -> NDArray:
    """[groups, taps, channels, outputs of a group]; depthwise [taps, channels]."""
    outputs, channels, height, width = layer.weights.shape
    if is_depthwise(layer):
        return np.ascontiguousarray(layer.weights.reshape(outputs, -1).T)
    shape = (layer.groups, outputs // layer.groups, channels, height * width)
    return np.ascontiguousarray(layer.weights.reshape(shape).transpose(0, 3, 2, 1))


def packed_whole(layer: Conv) -> NDArray:
    """[groups, outputs of a group, taps, channels] int8; depthwise [taps, channels]."""
    outputs, channels, height, width = layer.weights.shape
    if is_depthwise(layer):
        return np.ascontiguousarray(layer.weights.reshape(outputs, -1).T)
    taps = layer.weights.reshape(outputs, channels, height * width)
    return np.ascontiguousarray(taps.transpose(0, 2, 1))


def whole_bias(layer: Conv, zero: int) -> NDArray:
    """What each sum of x * weights lacks, int32: the bias, less `zero` times the weights' sum."""
    sums = layer.weights.reshape(layer.outputs, -1).astype(np.int32).sum(axis=1, dtype=np.int32)
    bias = 0 if layer.bias is None else layer.bias.astype(np.int32)
    made: NDArray = (bias - np.int32(zero) * sums).astype(np.int32)
    return made
