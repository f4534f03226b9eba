"""Convolutions of any shape in Triton: NVIDIA's GPUs and AMD's; a launch a layer, epilogue fused.

    x --kernel--> [N, H, W, C] --kernel--> [N, H, W, C] --kernel--> out

What lies between two layers is channels last: neighbours in memory are neighbours in k.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from tilewright.arrays.array import NDArray
from tilewright.backends.cuda.conv import cost, tiles
from tilewright.backends.cuda.conv.tiles import Tile, is_depthwise, tile_of
from tilewright.backends.cuda.machine.triton_launch import INTERPRETED, Task, reusable
from tilewright.engines.conv import Conv, ConvOperands, ConvWork
from tilewright.facts.device import Device
from tilewright.facts.measured import h200
from tilewright.facts.verdict import Proposal

Launch = Callable[[], None]
Launches = list[Callable[[int], None]]
_MOST = 1 << 31  # tiles and columns are counted in 32 bits


_FEW = 32  # channels that are compiled in


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
        decisions = Decisions(work, tiles_of(work, device.compute_units))
        return Proposal(self.name, device, seconds, reason, scratch, decisions=decisions)

    def bind(self, proposal: Proposal, operands: ConvOperands) -> Launch:
        """Kernels are compiled, weights packed and scratch is taken; launches on torch's stream."""
        import torch

        decisions: Decisions = proposal.decisions
        work, given, residuals = decisions.work, operands.x, iter(operands.residuals)
        launches: Launches = []
        for index, layer in enumerate(work.layers):
            out = operands.out
            if index < len(work.layers) - 1:
                channels, height, width = work.sizes[index + 1]
                flat = torch.empty(
                    (work.images, height, width, channels), dtype=given.dtype, device=given.device
                )
                out = flat.permute(0, 3, 1, 2)
            added = next(residuals) if layer.adds else None
            launches += prepared(layer, decisions.tiles[index], given, out, added)
            given = out
        return _on_stream(tuple(launches), operands.x)


def tiles_of(work: ConvWork, units: int) -> tuple[Tile, ...]:
    """A tile for each layer."""
    found = []
    for layer, (_, height, width) in zip(work.layers, work.sizes, strict=False):
        rows, columns = layer.sums(height, width)
        found.append(tile_of(layer, work.images * rows * columns, max(1, units)))
    return tuple(found)


def packed(layer: Conv) -> NDArray:
    """[groups, taps, channels, outputs of a group]; depthwise [taps, channels]."""
    outputs, channels, height, width = layer.weights.shape
    if is_depthwise(layer):
        return np.ascontiguousarray(layer.weights.reshape(outputs, -1).T)
    shape = (layer.groups, outputs // layer.groups, channels, height * width)
    return np.ascontiguousarray(layer.weights.reshape(shape).transpose(0, 3, 2, 1))


def prepared(layer: Conv, tile: Tile, x: Any, out: Any, added: Any) -> Launches:
    """The launches of a layer, each given a stream: of shares of sums two."""
    at = _Operands(layer, tile, x, out, added)
    return [at.convolved()] if tile.splits == 1 else [at.convolved(), at.finished()]


class _Operands:
    """A layer's tensors, and the numbers that its kernels are given."""

    def __init__(self, layer: Conv, tile: Tile, x: Any, out: Any, added: Any) -> None:
        import torch

        self.layer, self.tile, self.x, self.out = layer, tile, x, out
        rows, columns = layer.sums(*x.shape[2:])
        self.pixels, self.size = x.shape[0] * rows * columns, (columns, rows)
        self.weights = torch.from_numpy(packed(layer)).to(x.device, x.dtype)
        spare, how = self.weights, layer.activation
        self.bias = spare if layer.bias is None else torch.from_numpy(layer.bias).to(x.device)
        self.slopes = spare if how.slopes is None else torch.from_numpy(how.slopes).to(x.device)
        self.added = x if added is None else added
        self.parts = self.bias
        if tile.splits > 1:
            shape = (tile.splits, self.pixels, layer.outputs)
            self.parts = torch.empty(shape, dtype=torch.float32, device=x.device)
        self.limits = (float(how.low), float(how.high))
        beside = (0, 0, 0, 0) if added is None else added.stride()
        self.strides = (*out.stride(), *beside)
        self.ends = {
            "SHUFFLE": layer.shuffle,
            "ADDS": layer.adds,
            "BIASED": layer.bias is not None,
            "HOW": how.kind,
        }

    def convolved(self) -> Callable[[int], None]:
        """The products, and the epilogue where no sum is shared."""
        from tilewright.backends.cuda.kernels.triton.conv import convolve

        layer, tile, deep = self.layer, self.tile, is_depthwise(self.layer)
        groups, channels = (1, 1) if deep else (layer.groups, int(layer.weights.shape[1]))
        tensors = (self.x, self.out, self.weights, self.bias, self.slopes, self.added, self.parts)
        sizes = (*self.x.shape[2:], channels, layer.outputs // groups, tiles.share(layer, tile))
        numbers = (*self.limits, self.pixels, *self.size, *sizes, *self.x.stride(), *self.strides)
        constants = {
            "CHANNELS": channels if channels < _FEW else 0,
            "WHOLE": tiles.whole(layer, tile),
            "GROUPS": groups,
            "KW": layer.kernel[1],
            "TAPS": tiles.taps(layer),
            "STRIDE_Y": layer.strides[0],
            "STRIDE_X": layer.strides[1],
            "DILATION_Y": layer.dilations[0],
            "DILATION_X": layer.dilations[1],
            "TOP": layer.pads[0],
            "LEFT": layer.pads[1],
            **self.ends,
            "DEPTHWISE": deep,
            "SPLITS": tile.splits,
            "TILE_M": tile.m,
            "TILE_N": tile.n,
            "TILE_K": tile.k,
        }
        count = tiles.programs(layer, self.pixels, tile)
        return self._launch(convolve, count, tensors, numbers, constants)

    def finished(self) -> Callable[[int], None]:
        """The epilogue of sums that were shared."""
        from tilewright.backends.cuda.kernels.triton.conv import finish

        tensors = (self.out, self.bias, self.slopes, self.added, self.parts)
        sizes = (self.pixels, *self.size, self.layer.outputs, self.tile.splits)
        constants = {**self.ends, "TILE_M": 4, "TILE_N": 64}
        count = -(-self.pixels // 4) * -(-self.layer.outputs // 64)
        return self._launch(
            finish, count, tensors, (*self.limits, *sizes, *self.strides), constants
        )

    def _launch(
        self,
        kernel: Any,
        count: int,
        tensors: tuple[Any, ...],
        numbers: tuple[Any, ...],
        constants: dict[str, Any],
    ) -> Callable[[int], None]:
        options = {"num_warps": self.tile.warps, "num_stages": self.tile.stages}
        task = Task(kernel, count, (*tensors, *numbers), constants, options)
        run = reusable(task, _ordinal(self.x))
        return lambda stream: run(stream, count, *tensors)


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
