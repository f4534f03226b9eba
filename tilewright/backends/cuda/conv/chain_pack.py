"""Weights and biases of a part of a chain as they lie in the kernel's shared memory.

layer       [dx][8 inputs][row below, own, above][outputs][input of the 8]      halves
source      [8 of k][outputs][k of the 8]       k = input * 9 + dy * 3 + dx, zeros behind
biases      float32, zeros behind; slopes of PReLU, and scales of whole numbers, as well
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tilewright.arrays.array import NDArray
from tilewright.backends.cuda.conv.chain_plan import Part
from tilewright.engines.conv import Conv


def packed(part: Part, dtype: str) -> Any:
    """A torch tensor of bytes in the host's memory, `places["BLOB"]` long."""
    import torch

    kind = torch.float16 if part.layers[0].whole else getattr(torch, dtype)
    blob = torch.zeros(part.places["BLOB"], dtype=torch.uint8, device="cpu")

    def put(name: str, values: NDArray, as_type: Any) -> None:
        data = torch.from_numpy(np.ascontiguousarray(values)).to(as_type).flatten()
        at = part.places[name]
        raw = data.view(torch.uint8)
        blob[at : at + raw.numel()] = raw

    if part.inputs:
        put("WEIGHTS0", first(part.layers[0], part.window, part.channels[0]), kind)
    for i, layer in enumerate(part.products, 1):
        put(f"WEIGHTS{i}", rows(layer, part.channels[i - 1], part.channels[i]), kind)
    for i, layer in part.stages:
        for name, values in (("BIAS", layer.bias), ("SLOPES", layer.activation.slopes)):
            if values is not None:
                put(f"{name}{i}", values, torch.float32)
        if layer.whole is not None:
            put(f"SLOPES{i}", layer.whole.scale, torch.float32)
    return blob


def first(layer: Conv, window: int, outputs: int) -> NDArray:
    """The source's weights: [window / 8, outputs, 8]."""
    full = np.zeros((outputs, window), np.float32)
    full[: layer.outputs, : 9 * layer.inputs] = layer.weights.reshape(layer.outputs, -1)
    return full.reshape(outputs, -1, 8).transpose(1, 0, 2)


def rows(layer: Conv, inputs: int, outputs: int) -> NDArray:
    """A layer's weights: [3, inputs / 8, 3, outputs, 8]."""
    full = np.zeros((outputs, inputs, 3, 3), np.float32)
    full[: layer.outputs, : layer.inputs] = layer.weights
    tiles = full.reshape(outputs, inputs // 8, 8, 3, 3)
    return tiles.transpose(4, 1, 3, 0, 2)[:, :, ::-1]
