"""ONNX nodes as drafts of layers: one converter an operator, which says no by the node's name.

A value of the graph is a draft's value, and sometimes more: in what order its features lie, whether
it is bits for certain, what was padded round it, or that it is a comparison a Where will use.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from tilewright.errors import FileError
from tilewright.onebit.drafts import Draft
from tilewright.onebit.float_graph import (
    Evaluation,
    limits_of,
    norm_of,
    pads_of,
    unsupported,
    window_of,
)
from tilewright.onebit.onnx_model import Graph, Node
from tilewright.onebit.window import Window

NDArray = npt.NDArray[Any]
_COMPARISONS = {
    "Greater": (False, True),  # flipped, strict
    "GreaterOrEqual": (False, False),
    "Less": (True, True),
    "LessOrEqual": (True, False),
}


@dataclass(frozen=True, slots=True)
class _Value:
    """What a value of the graph is in the network.

    order     for features that were images: which of ONNX's each of ours is, else None
    is_bits   -1 and +1 for certain
    pads      what a Pad node put around it, and the number
    condition of a comparison: input, cut, and whether it is flipped and strict
    """

    draft: str
    order: NDArray | None = None
    is_bits: bool = False
    pads: tuple[tuple[int, int, int, int], float] | None = None
    condition: tuple[NDArray, bool, bool] | None = None


class Importer:
    """Turns nodes into drafts, one after another."""

    def __init__(self, graph: Graph, evaluation: Evaluation) -> None:
        self.graph, self.evaluation = graph, evaluation
        self.found = {graph.input: _Value("input")}
        self.made: list[Draft] = []

    def drafts(self) -> list[Draft]:
        """All of them; the last one gives the output."""
        for node in self.graph.nodes:
            if node.outputs[0] in self.evaluation.constants:
                continue
            convert = _CONVERTERS.get(node.op)
            if convert is None:
                raise unsupported(self.graph, node, "of values that depend on the input")
            try:
                self.found[node.outputs[0]] = convert(self, node)
            except (FileError, ValueError, TypeError, IndexError, KeyError) as error:
                if isinstance(error, FileError) and str(error).startswith(self.graph.label):
                    raise
                raise unsupported(self.graph, node, str(error)) from None
        last = self.found.get(self.graph.output)
        if last is None or last.condition is not None or last.pads is not None or not self.made:
            raise FileError(f"{self.graph.label}: the output does not depend on the input")
        if last.order is not None or self.made[-1].name != last.draft:
            raise FileError(
                f"{self.graph.label}: the output {self.graph.output!r} must be the last node's, and"
                " no flattened image"
            )
        return self.made

    def truth(self) -> dict[str, NDArray]:
        """The float graph's values under our names, features in our order."""
        values = self.evaluation.values
        return {
            name: values[name] if value.order is None else values[name][:, value.order]
            for name, value in self.found.items()
            if value.draft == name
        }

    # What converters use

    def constant(self, name: str) -> NDArray | None:
        """A constant's value, or None for what depends on the input."""
        known = name in self.evaluation.constants
        return np.asarray(self.evaluation.values[name]) if known else None

    def given(self, node: Node) -> list[Any]:
        """The values of all inputs, as the float graph has them."""
        return [self.evaluation.values[name] if name else None for name in node.inputs]

    def plain(self, name: str) -> _Value:
        """An input that is no comparison and has nothing around it."""
        value = self.found[name]
        if value.condition is not None or value.pads is not None:
            raise FileError(f"of {name!r}, a comparison or a padded image, this is")
        return value

    def emit(self, node: Node, kind: str, *inputs: str, **fields: Any) -> str:
        """Add a draft under the name of the node's value."""
        name: str = fields.pop("name", node.outputs[0])
        self.made.append(Draft(kind=kind, name=name, inputs=inputs, title=node.title, **fields))
        return name

    def channels(self, node: Node, array: NDArray, value: _Value) -> NDArray:
        """A constant that is added or multiplied, as a vector over our channels."""
        shape = self.evaluation.values[node.outputs[0]].shape
        wide = array.reshape((1,) * (len(shape) - array.ndim) + array.shape)
        if any(size != 1 for axis, size in enumerate(wide.shape) if axis != 1):
            raise FileError(f"a constant of shape {array.shape}; accepted is one for each channel")
        vector = np.broadcast_to(wide.reshape(-1), shape[1]).astype(np.float64)
        return vector if value.order is None else vector[value.order]


def _conv(at: Importer, node: Node) -> _Value:
    value, weights = at.found[node.inputs[0]], at.constant(node.inputs[1])
    if weights is None or value.condition is not None:
        raise FileError("weights that depend on the input")
    bias = at.constant(node.inputs[2]) if len(node.inputs) > 2 and node.inputs[2] else None
    size = at.given(node)[0].shape[2:]
    window = window_of(node, weights.shape[2:], size)
    outside = "zero"
    if value.pads is not None:
        pads, number = value.pads
        if any(window.pads) or number not in (0.0, -1.0) or (number and not value.is_bits):
            raise FileError("a Pad before it; accepted are pads of 0, and of -1 round signs")
        window = replace(window, pads=pads)
        outside = "minus_one" if number else "zero"
    rows = weights.transpose(0, 2, 3, 1).astype(np.float64)
    group = int(node.attributes.get("group", 1))
    return _product(at, node, value, rows, bias, window, group, outside)


def _gemm(at: Importer, node: Node) -> _Value:
    value, weights = at.plain(node.inputs[0]), at.constant(node.inputs[1])
    if weights is None or weights.ndim != 2:
        raise FileError("a second matrix that depends on the input")
    get = node.attributes.get
    bias = at.constant(node.inputs[2]) if len(node.inputs) > 2 and node.inputs[2] else None
    rows = weights if node.op == "Gemm" and get("transB", 0) else weights.T
    alpha, beta = (get("alpha", 1.0), get("beta", 1.0)) if node.op == "Gemm" else (1.0, 1.0)
    rows = rows.astype(np.float64) * alpha
    if value.order is not None:
        rows = rows[:, value.order]
    shift = None if bias is None else np.broadcast_to(beta * bias.reshape(-1), len(rows))
    return _product(at, node, value, rows[:, None, None, :], shift, Window(), 1, "zero")


def _product(
    at: Importer,
    node: Node,
    value: _Value,
    weights: NDArray,
    bias: NDArray | None,
    window: Window,
    groups: int,
    outside: str,
) -> _Value:
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
        node, "conv", value.draft, weights=weights, window=window, groups=groups,
        binary=one_size and value.is_bits, scale=scale, outside=outside,
        shift=None if bias is None else np.asarray(bias, np.float64),
    )  # fmt: skip
    return _Value(name)


def _norm(at: Importer, node: Node) -> _Value:
    value = at.plain(node.inputs[0])
    scale, shift = norm_of(node, at.given(node))
    scale, shift = (
        at.channels(node, v.reshape(-1, *_ones(at, node)), value) for v in (scale, shift)
    )
    return _Value(at.emit(node, "affine", value.draft, scale=scale, shift=shift), value.order)


def _ones(at: Importer, node: Node) -> tuple[int, ...]:
    return (1,) * (at.evaluation.values[node.outputs[0]].ndim - 2)


def _arithmetic(at: Importer, node: Node) -> _Value:
    """Add, Sub, Mul, Div: with a constant an affine, of two values only Add."""
    left, right = (at.constant(name) for name in node.inputs)
    if left is None and right is None:
        first, second = (at.plain(name) for name in node.inputs)
        if node.op != "Add" or first.order is not None or second.order is not None:
            raise FileError("of two values that depend on the input")
        shapes = [array.shape for array in at.given(node)]
        if shapes[0] != shapes[1]:
            raise FileError(f"of {shapes[0]} and {shapes[1]}; accepted are equal shapes")
        return _Value(at.emit(node, "add", first.draft, second.draft))
    constant = right if left is None else left
    value = at.plain(node.inputs[0 if left is None else 1])
    assert constant is not None
    vector = at.channels(node, constant, value)
    ones, zeros = np.ones_like(vector), np.zeros_like(vector)
    if node.op == "Div" and (left is not None or not vector.all()):
        raise FileError("a division by a value, or by 0")
    scale, shift = {
        "Add": (ones, vector),
        "Sub": (ones, -vector) if left is None else (-ones, vector),
        "Mul": (vector, zeros),
        "Div": (1 / np.where(vector == 0, 1, vector), zeros),
    }[node.op]
    return _Value(at.emit(node, "affine", value.draft, scale=scale, shift=shift), value.order)


def _sign(at: Importer, node: Node) -> _Value:
    value = at.plain(node.inputs[0])
    return _Value(at.emit(node, "sign", value.draft), value.order, is_bits=True)


def _compare(at: Importer, node: Node) -> _Value:
    left, right = (at.constant(name) for name in node.inputs)
    if (left is None) == (right is None):
        raise FileError("accepted is a value beside a constant")
    value = at.plain(node.inputs[0 if left is None else 1])
    flipped, strict = _COMPARISONS[node.op]
    constant = right if left is None else left
    assert constant is not None
    cut = at.channels(node, constant, value)
    return replace(value, condition=(cut, flipped == (left is None), strict))


def _where(at: Importer, node: Node) -> _Value:
    value = at.found.get(node.inputs[0])
    chosen = [at.constant(name) for name in node.inputs[1:]]
    if value is None or value.condition is None or any(c is None or c.size != 1 for c in chosen):
        raise FileError("accepted is Where(comparison with a constant, -1, 1) or (…, 1, -1)")
    numbers = tuple(float(np.asarray(c).reshape(-1)[0]) for c in chosen)
    if numbers not in ((1.0, -1.0), (-1.0, 1.0)):
        raise FileError(f"of {numbers}; accepted are 1 and -1")
    cut, flipped, strict = value.condition
    if numbers[0] < 0:  # the other branch: not (x > t) is x <= t
        flipped, strict = not flipped, not strict
    draft = value.draft
    if flipped:
        ones = np.ones_like(cut)
        name = f"{node.outputs[0]}, negated"
        draft = at.emit(node, "affine", draft, name=name, scale=-ones, shift=0 * ones)
        cut = -cut
    plain = 0.0 if not cut.any() else cut
    name = at.emit(node, "sign", draft, cut=plain, strict=strict)
    return _Value(name, value.order, is_bits=True)


def _clamp(at: Importer, node: Node) -> _Value:
    value = at.plain(node.inputs[0])
    if any(at.constant(name) is None for name in node.inputs[1:] if name):
        raise FileError("limits that depend on the input")
    low, high = limits_of(node, at.given(node))
    return _Value(at.emit(node, "clamp", value.draft, low=low, high=high), value.order)


def _pool(at: Importer, node: Node) -> _Value:
    value = at.plain(node.inputs[0])
    if value.order is not None:
        raise FileError("of features")
    if node.op in ("GlobalAveragePool", "ReduceMean"):
        return _Value(at.emit(node, "mean", value.draft, window=None))
    size = at.given(node)[0].shape[2:]
    window = window_of(node, node.attributes["kernel_shape"], size)
    if node.op == "MaxPool":
        return _Value(at.emit(node, "max", value.draft, window=window), is_bits=value.is_bits)
    every = bool(node.attributes.get("count_include_pad", 0))
    return _Value(at.emit(node, "mean", value.draft, window=window, count_padding=every))


def _flatten(at: Importer, node: Node) -> _Value:
    value = at.plain(node.inputs[0])
    shape = at.given(node)[0].shape
    if len(shape) == 2:
        return value
    name = at.emit(node, "flatten", value.draft)
    order = np.arange(np.prod(shape[1:])).reshape(shape[1:]).transpose(1, 2, 0).reshape(-1)
    kept = None if shape[2:] == (1, 1) else order
    return _Value(name, kept, is_bits=value.is_bits)


def _pad(at: Importer, node: Node) -> _Value:
    value = at.plain(node.inputs[0])
    return replace(value, pads=pads_of(node, at.given(node)))


def _same(at: Importer, node: Node) -> _Value:
    return at.plain(node.inputs[0])


_CONVERTERS: dict[str, Callable[[Importer, Node], _Value]] = {
    "Add": _arithmetic,
    "AveragePool": _pool,
    "BatchNormalization": _norm,
    "Cast": _same,
    "Clip": _clamp,
    "Conv": _conv,
    "Div": _arithmetic,
    "Dropout": _same,
    "Flatten": _flatten,
    "Gemm": _gemm,
    "GlobalAveragePool": _pool,
    "Greater": _compare,
    "GreaterOrEqual": _compare,
    "Identity": _same,
    "Less": _compare,
    "LessOrEqual": _compare,
    "MatMul": _gemm,
    "MaxPool": _pool,
    "Mul": _arithmetic,
    "Pad": _pad,
    "ReduceMean": _pool,
    "Relu": _clamp,
    "Reshape": _flatten,
    "Sign": _sign,
    "Squeeze": _flatten,
    "Sub": _arithmetic,
    "Where": _where,
}
