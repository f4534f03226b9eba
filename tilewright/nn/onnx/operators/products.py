"""Convolutions and dense layers: Conv with its Pad, Gemm, MatMul.

They are of bits where the input is, and weights have one magnitude a channel.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tilewright.arrays.array import NDArray
from tilewright.errors import FileError
from tilewright.nn.graph import Node
from tilewright.nn.onnx.drafts import ConvDraft
from tilewright.nn.onnx.importer import Importer, Traced, operator
from tilewright.nn.onnx.windows import pads_of, window_of
from tilewright.nn.window import Window


@operator("Pad", "rows and columns, constant, no axes; read by a Conv", mode=("constant",))
def pad(at: Importer, node: Node) -> Traced:
    """What the next convolution pads; nothing is computed."""
    value = at.plain(node.inputs[0])
    at.image(node)
    given = [at.optional(node, position, "pads") for position in (1, 2, 3)]
    return replace(value, pads=pads_of(node, given))


@operator("Conv", "of images, constant weights")
def conv(at: Importer, node: Node) -> Traced:
    """Images by constant weights; a Pad before it is taken in."""
    value, weights = at.found[node.inputs[0]], at.file.constant(node.inputs[1])
    if weights is None or value.condition is not None:
        raise FileError("weights that depend on the input")
    bias, group = at.optional(node, 2, "a bias"), int(node.attributes["group"])
    window = window_of(node, weights.shape[2:], at.image(node))
    outside = "zero"
    if value.pads is not None:
        pads, number = value.pads
        if any(window.pads) or number not in (0.0, -1.0) or (number and not value.is_bits):
            raise FileError("a Pad before it; accepted are pads of 0, and of -1 round signs")
        window = replace(window, pads=pads)
        outside = "minus_one" if number else "zero"
    rows = weights.transpose(0, 2, 3, 1).astype(np.float64)
    return _product(at, node, value, rows, bias, window, group, outside)


@operator("Gemm", "B constant; C absent or one constant for each column", transA=(0,))
@operator("MatMul", "features by a constant matrix")
def gemm(at: Importer, node: Node) -> Traced:
    """Rows of features by a constant matrix."""
    value, weights = at.plain(node.inputs[0]), at.file.constant(node.inputs[1])
    if weights is None or weights.ndim != 2 or len(at.shape(node)) != 2:
        right = list(at.shape(node, 1))
        raise FileError(
            f"of {list(at.shape(node))} and {right}; accepted are rows of features and a constant"
            " matrix"
        )
    if node.operator == "MatMul":
        rows, shift = weights.T.astype(np.float64), None
    else:
        rows = weights if node.attributes["transB"] else weights.T
        rows = rows.astype(np.float64) * node.attributes["alpha"]
        shift = _columns(at, node, len(rows))
    if value.order is not None:
        rows = rows[:, value.order]
    return _product(at, node, value, rows[:, None, None, :], shift, Window(), 1, "zero")


def _columns(at: Importer, node: Node, count: int) -> NDArray | None:
    """What a Gemm adds to each column."""
    c = at.optional(node, 2, "a C")
    if c is None:
        return None
    if c.ndim > 2 or (c.ndim == 2 and len(c) != 1):
        raise FileError(f"C of {c.shape}; accepted is one constant for each column")
    beta = float(node.attributes["beta"])
    return np.broadcast_to(beta * c.reshape(-1).astype(np.float64), count)


def _product(
    at: Importer,
    node: Node,
    value: Traced,
    weights: NDArray,
    bias: NDArray | None,
    window: Window,
    groups: int,
    outside: str,
) -> Traced:
    """A convolution or a dense layer; of bits, where weights have one magnitude a channel."""
    rows = np.abs(weights).reshape(len(weights), -1)
    size = rows[:, 0]
    one_size = bool(rows.size) and bool((rows == size[:, None]).all() and (size > 0).all())
    if outside == "minus_one" and not one_size:
        raise FileError("weights of more than one magnitude, on an image padded with -1")
    scale = None
    if one_size:
        weights, scale = np.sign(weights), size
    name = at.emit(
        node, ConvDraft, value.draft, weights=weights, window=window, groups=groups,
        binary=one_size and value.is_bits, scale=scale, outside=outside,
        shift=None if bias is None else np.asarray(bias, np.float64),
    )  # fmt: skip
    return Traced(name)
