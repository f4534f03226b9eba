"""Weights as conv_direct's kernels read them: outputs in lanes, zeros past the last channel."""

from __future__ import annotations

import numpy as np

from tilewright.arrays.array import NDArray
from tilewright.engines.conv import Conv

FULL, DEPTHWISE, ANY = range(3)  # MODE of conv_direct.cl


def mode_of(layer: Conv, lanes: int) -> int:
    """How a layer's groups lie in blocks of so many channels."""
    each_in, each_out = layer.inputs // layer.groups, layer.outputs // layer.groups
    if layer.groups == 1 or (each_in % lanes == 0 and each_out % lanes == 0):
        return FULL
    return DEPTHWISE if each_in == each_out == 1 else ANY


def packed(layer: Conv, lanes: int, dtype: str) -> NDArray:
    """In a row, with `lanes` zeros behind: what lies outside a picture is read there.

    FULL        [block of outputs][block of inputs][tap][input lane][output lane]
    DEPTHWISE   [block][tap][lane]
    ANY         [output][input of its group][tap]
    """
    mode = mode_of(layer, lanes)
    if mode == ANY:
        laid = layer.weights
    elif mode == DEPTHWISE:
        laid = _filled(layer, lanes, 1)[:, 0].reshape(-1, lanes, _taps(layer)).swapaxes(1, 2)
    else:
        whole = _filled(layer, lanes, lanes)
        blocks = (whole.shape[0] // lanes, lanes, whole.shape[1] // lanes, lanes, _taps(layer))
        laid = whole.reshape(blocks).transpose(0, 2, 4, 3, 1)
    found = np.zeros(laid.size + lanes, dtype)
    found[: laid.size].reshape(laid.shape)[...] = laid
    return found


def texels(layer: Conv, dtype: str) -> NDArray:
    """As an image [rows, columns, 4] of conv_direct_image.cl: texel = 4 outputs."""
    if mode_of(layer, 4) == DEPTHWISE:
        whole = _filled(layer, 4, 1).reshape(-1, 4, _taps(layer))
        return np.ascontiguousarray(whole.swapaxes(1, 2), dtype)
    whole = _filled(layer, 4, 4)
    outputs, inputs = whole.shape[:2]
    laid = whole.reshape(outputs // 4, 4, inputs, _taps(layer)).transpose(0, 3, 2, 1)
    return np.ascontiguousarray(laid.reshape(-1, inputs, 4), dtype)


def per_output(values: NDArray | None, layer: Conv, multiple: int) -> NDArray:
    """A number an output in float32, zeros past the last and where there are none."""
    found = np.zeros(-(-layer.outputs // multiple) * multiple, np.float32)
    if values is not None:
        found[: layer.outputs] = np.asarray(values).ravel()
    return found


def _taps(layer: Conv) -> int:
    return layer.kernel[0] * layer.kernel[1]


def _filled(layer: Conv, outputs: int, inputs: int) -> NDArray:
    """The weights with zeros up to whole multiples of outputs and of inputs."""
    given = layer.weights
    sizes = [-(-given.shape[0] // outputs) * outputs, -(-given.shape[1] // inputs) * inputs]
    found = np.zeros((*sizes, *given.shape[2:]), np.float32)
    found[: given.shape[0], : given.shape[1]] = given
    return found
