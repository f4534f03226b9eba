"""Launches of kernels/conv/winograd.cu: its tiles, its parameters field by field, its weights."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import Any

import numpy as np

from tilewright.arrays.array import NDArray
from tilewright.backends.cuda.machine import nvrtc
from tilewright.engines.conv import ACTIVATIONS, Conv
from tilewright.engines.winograd import transformed

Call = tuple[nvrtc.Function, int, int, nvrtc.Arguments]
_ACROSS, _DOWN = 8, 4  # tiles of a block
_PITCH = 36
_WARPS, _OUTPUTS = {2: 8, 4: 12}, {2: 64, 4: 32}


@dataclass(frozen=True, slots=True)
class Shape:
    """What a block computes: tiles of tile x tile results, `chunk` channels at a time."""

    tile: int
    chunk: int = 8

    @property
    def outputs(self) -> int:
        """Of a block."""
        return _OUTPUTS[self.tile]

    @property
    def threads(self) -> int:
        """Of a block."""
        return 32 * _WARPS[self.tile]

    @property
    def positions(self) -> int:
        """Of a tile, transformed."""
        return (self.tile + 2) ** 2

    @property
    def shared(self) -> int:
        """Bytes of a block: tiles, weights and staged pixels, each of two chunks."""
        staged = (_DOWN * self.tile + 2) * 9 * self.tile
        return 8 * self.chunk * (self.positions * (_PITCH + self.outputs) + staged)

    def grid(self, rows: int, columns: int) -> tuple[int, int]:
        """Blocks of a picture's results: down and across."""
        return -(-rows // (_DOWN * self.tile)), -(-columns // (_ACROSS * self.tile))

    def chunks(self, layer: Conv) -> int:
        """Of a layer's channels."""
        return -(-layer.inputs // self.chunk)

    def blocks(self, layer: Conv) -> int:
        """Of a layer's outputs."""
        return -(-layer.outputs // self.outputs)


class Steps(ctypes.Structure):
    """`struct Steps` of kernels/conv/winograd_layout.cuh."""

    _fields_ = [(name, ctypes.c_longlong) for name in ("image", "channel", "row", "column")]


class Winograd(ctypes.Structure):
    """`struct Winograd` there."""

    _fields_ = [
        *(
            (name, ctypes.c_void_p)
            for name in ("x", "out", "added", "weights", "plain", "bias", "slopes")
        ),
        *((name, Steps) for name in ("at_x", "at_out", "at_added")),
        *((name, ctypes.c_int) for name in ("channels", "outputs", "chunks", "blocks")),
        *((name, ctypes.c_int) for name in ("height", "width", "rows", "columns")),
        *((name, ctypes.c_int) for name in ("top", "left", "across", "down")),
        *((name, ctypes.c_float) for name in ("low", "high")),
        *((name, ctypes.c_uint) for name in ("count", "unused")),
    ]


def packed(layer: Conv, shape: Shape) -> NDArray:
    """Transformed weights: [blocks of outputs, chunks, positions, channels, outputs], float32."""
    blocks, chunks = shape.blocks(layer), shape.chunks(layer)
    sizes = (shape.positions, blocks * shape.outputs, chunks * shape.chunk)
    full = np.zeros(sizes, np.float32)
    full[:, : layer.outputs, : layer.inputs] = transformed(layer.weights, shape.tile)
    split = full.reshape(shape.positions, blocks, shape.outputs, chunks, shape.chunk)
    return np.ascontiguousarray(split.transpose(1, 3, 0, 4, 2))


def wide(x: Any) -> bool:
    """Whether four channels of x are sixteen aligned bytes."""
    image, channel, row, column = x.stride()
    steps = (image, row, column, x.shape[1])
    return bool(channel == 1 and x.data_ptr() % 16 == 0 and not any(s % 4 for s in steps))


def far_apart(x: Any) -> bool:
    """Whether pixels of a picture are too far from each other to be counted in 32 bits."""
    last = (step * (size - 1) for step, size in zip(x.stride()[1:], x.shape[1:], strict=True))
    return bool(sum(last) >= 1 << 31)


def macros(layer: Conv, shape: Shape, x: Any) -> nvrtc.Defines:
    """What is compiled in."""
    values = {
        "TILE": shape.tile,
        "CHUNK": shape.chunk,
        "WIDE": int(wide(x)),
        "FAR_APART": int(far_apart(x)),
        "SHUFFLE": layer.shuffle,
        "ADDS": int(layer.adds),
        "HOW": ACTIVATIONS.index(layer.activation.kind),
    }
    return tuple(values.items())


def parameters(layer: Conv, shape: Shape, x: Any, out: Any, added: Any, held: Any) -> Winograd:
    """The kernel's, of tensors [N, C, H, W]; `held`: weights, plain, bias, slopes or None."""
    rows, columns = layer.sums(*x.shape[2:])
    down, across = shape.grid(rows, columns)
    weights, plain, bias, slopes = held
    return Winograd(
        x=x.data_ptr(),
        out=out.data_ptr(),
        added=None if added is None else added.data_ptr(),
        weights=weights.data_ptr(),
        plain=plain.data_ptr(),
        bias=bias.data_ptr(),
        slopes=None if slopes is None else slopes.data_ptr(),
        at_x=Steps(*x.stride()),
        at_out=Steps(*out.stride()),
        at_added=Steps() if added is None else Steps(*added.stride()),
        channels=layer.inputs,
        outputs=layer.outputs,
        chunks=shape.chunks(layer),
        blocks=shape.blocks(layer),
        height=x.shape[2],
        width=x.shape[3],
        rows=rows,
        columns=columns,
        top=layer.pads[0],
        left=layer.pads[1],
        across=across,
        down=down,
        low=layer.activation.low,
        high=layer.activation.high,
        count=x.shape[0] * down * across * shape.blocks(layer),
    )


def held_of(layer: Conv, shape: Shape, device: Any) -> tuple[Any, ...]:
    """The layer's numbers on the GPU: transformed and plain weights, bias, slopes or None."""
    import torch

    bias = np.zeros(layer.outputs, np.float32) if layer.bias is None else layer.bias
    arrays = (packed(layer, shape), layer.weights, bias, layer.activation.slopes)
    return tuple(
        None
        if array is None
        else torch.tensor(np.ascontiguousarray(array, np.float32), device="cpu").to(device)
        for array in arrays
    )


def prepared(
    layer: Conv, shape: Shape, x: Any, out: Any, added: Any, units: int
) -> tuple[Call, Any]:
    """The kernel for these tensors, and what must live as long: a block for each of `units`.

    Raises BuildError or DeviceError.
    """
    held = held_of(layer, shape, x.device)
    filled = parameters(layer, shape, x, out, added, held)
    defines = macros(layer, shape, x)
    kernel = nvrtc.function("winograd", defines, x.device.index, shared=shape.shared)
    blocks = min(filled.count, units)
    return (kernel, blocks, shape.threads, nvrtc.Arguments((filled,))), (held, x, out, added)
