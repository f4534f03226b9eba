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
from tilewright.nn.onnx.drafts import Draft
from tilewright.nn.onnx.read import Graph, Node
from tilewright.nn.onnx.values import Facts
from tilewright.nn.onnx.windows import pads_of, window_of
from tilewright.nn.window import Window

NDArray = npt.NDArray[Any]
_KEEPS, _HALF = (1, 11), 10  # element types: float32 and float64; float16
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
    """Turns nodes into drafts, one after another.

    signs   by the name of a value of bits: the value of the graph whose sign it is, and the cut
    """

    def __init__(self, graph: Graph, facts: Facts) -> None:
        self.graph, self.facts = graph, facts
        self.found = {graph.input: _Value("input")}
        self.made: list[Draft] = []
        self.signs: dict[str, tuple[str, NDArray]] = {}

    def drafts(self) -> list[Draft]:
        """All of them; the last one gives the output."""
        for node in self.graph.nodes:
            self.facts.learn(node)
            if node.output not in self.facts.constants:
                self.found[node.output] = self._converted(node)
        last = self.found.get(self.graph.output)
        if last is None or last.condition is not None or last.pads is not None or not self.made:
            raise FileError(f"{self.graph.label}: the output does not depend on the input")
        if last.order is not None or self.made[-1].name != last.draft:
            raise FileError(
                f"{self.graph.label}: the output {self.graph.output!r} must be the last node's, and"
                " no flattened image"
            )
        return self.made

    def _converted(self, node: Node) -> _Value:
        convert = _CONVERTERS.get(node.op)
        if convert is None:
            raise self.graph.refuse(node, "of values that depend on the input")
        try:
            value = convert(self, node)
        except (FileError, ValueError, TypeError, IndexError, KeyError) as error:
            raise self.graph.refuse(node, str(error)) from None
        sizes = self.facts.shape(node.output)
        if len(sizes) not in (2, 4) or sizes[0] != self.facts.batch:
            raise self.graph.refuse(
                node,
                f"gives {list(sizes)}; accepted are images and rows of features,"
                f" {self.facts.batch} of them as of the input",
            )
        return value

    def sources(self) -> dict[str, tuple[str, NDArray | None]]:
        """By our name of a value, the graph's, and which of ONNX's features each of ours is."""
        found: dict[str, tuple[str, NDArray | None]] = {}
        for name, value in self.found.items():
            found.setdefault(value.draft, (name, value.order))
        return found

    # What converters use

    def constant(self, name: str) -> NDArray | None:
        """A constant's value, or None for what depends on the input."""
        return self.facts.constants.get(name)

    def optional(self, node: Node, position: int, what: str) -> NDArray | None:
        """A constant that need not be there."""
        name = node.inputs[position] if position < len(node.inputs) else ""
        found = self.constant(name)
        if name and found is None:
            raise FileError(f"{what} that depends on the input")
        return found

    def shape(self, node: Node, position: int = 0) -> tuple[int, ...]:
        """Sizes of an input, the batch first."""
        return self.facts.shape(node.inputs[position])

    def image(self, node: Node) -> tuple[int, int]:
        """Height and width of the first input. Raises FileError for features."""
        sizes = self.shape(node)
        if len(sizes) != 4:
            raise FileError(f"of {list(sizes)}; accepted are images")
        return sizes[2], sizes[3]

    def plain(self, name: str) -> _Value:
        """An input that is no comparison and has nothing around it."""
        value = self.found[name]
        if value.condition is not None or value.pads is not None:
            raise FileError(f"of {name!r}, a comparison or a padded image, this is")
        return value

    def emit(self, node: Node, kind: str, *inputs: str, **fields: Any) -> str:
        """Add a draft under the name of the node's value."""
        name: str = fields.pop("name", node.output if node.output != "input" else "input, later")
        self.made.append(Draft(kind=kind, name=name, inputs=inputs, title=node.title, **fields))
        return name

    def channels(self, node: Node, array: NDArray, value: _Value, position: int = 0) -> NDArray:
        """A constant that is added or multiplied, as a vector over our channels."""
        shape = self.shape(node, position)
        if len(array.shape) > len(shape):
            raise FileError(f"a constant of shape {array.shape}; the value's is {list(shape)}")
        wide = array.reshape((1,) * (len(shape) - array.ndim) + array.shape)
        if any(size != 1 for axis, size in enumerate(wide.shape) if axis != 1):
            raise FileError(f"a constant of shape {array.shape}; accepted is one for each channel")
        if wide.shape[1] not in (1, shape[1]):
            raise FileError(f"a constant of shape {array.shape} makes {shape[1]} channels more")
        vector = np.broadcast_to(wide.reshape(-1), shape[1]).astype(np.float64)
        return vector if value.order is None else vector[value.order]


def _conv(at: Importer, node: Node) -> _Value:
    value, weights = at.found[node.inputs[0]], at.constant(node.inputs[1])
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
    outputs, depth = weights.shape[:2]
    if depth * group != at.shape(node)[1] or outputs % group:
        raise FileError(f"group={group}, weights {weights.shape}, {at.shape(node)[1]} channels")
    rows = weights.transpose(0, 2, 3, 1).astype(np.float64)
    return _product(at, node, value, rows, bias, window, group, outside)


def _gemm(at: Importer, node: Node) -> _Value:
    """Gemm, MatMul: rows of features by a constant matrix."""
    value, weights = at.plain(node.inputs[0]), at.constant(node.inputs[1])
    if weights is None or weights.ndim != 2 or len(at.shape(node)) != 2:
        right = list(at.shape(node, 1))
        raise FileError(
            f"of {list(at.shape(node))} and {right}; accepted are rows of features and a constant"
            " matrix"
        )
    if node.op == "MatMul":
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
    """A batch norm as scale and shift of each channel."""
    value, parts = at.plain(node.inputs[0]), [at.constant(name) for name in node.inputs[1:]]
    sizes = at.shape(node)
    if any(part is None or part.shape != sizes[1:2] for part in parts):
        raise FileError(f"accepted are constants, one for each of {sizes[1]} channels")
    gamma, beta, mean, variance = (np.asarray(part, np.float64) for part in parts)
    with np.errstate(all="ignore"):
        scale = gamma / np.sqrt(variance + node.attributes["epsilon"])
    if not np.isfinite(scale).all():
        raise FileError("a variance below 0")
    around = (-1, *[1] * (len(sizes) - 2))
    scale, shift = (
        at.channels(node, v.reshape(around), value) for v in (scale, beta - mean * scale)
    )
    return _Value(at.emit(node, "affine", value.draft, scale=scale, shift=shift), value.order)


def _arithmetic(at: Importer, node: Node) -> _Value:
    """Add, Sub, Mul, Div: with a constant an affine, of two values only Add."""
    left, right = (at.constant(name) for name in node.inputs)
    if left is None and right is None:
        first, second = (at.plain(name) for name in node.inputs)
        if node.op != "Add" or first.order is not None or second.order is not None:
            raise FileError("of two values that depend on the input")
        shapes = [at.shape(node, position) for position in (0, 1)]
        if shapes[0] != shapes[1]:
            raise FileError(f"of {shapes[0]} and {shapes[1]}; accepted are equal shapes")
        return _Value(at.emit(node, "add", first.draft, second.draft))
    constant, position = (right, 0) if left is None else (left, 1)
    value = at.plain(node.inputs[position])
    assert constant is not None
    vector = at.channels(node, constant, value, position)
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
    at.signs[node.output] = (node.inputs[0], np.zeros(()))
    return _Value(at.emit(node, "sign", value.draft), value.order, is_bits=True)


def _compare(at: Importer, node: Node) -> _Value:
    left, right = (at.constant(name) for name in node.inputs)
    if (left is None) == (right is None):
        raise FileError("accepted is a value beside a constant")
    constant, position = (right, 0) if left is None else (left, 1)
    value = at.plain(node.inputs[position])
    flipped, strict = _COMPARISONS[node.op]
    assert constant is not None
    cut = at.channels(node, constant, value, position)
    at.signs[node.output] = (node.inputs[position], constant)
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
        name = f"{node.output}, negated"
        draft = at.emit(node, "affine", draft, name=name, scale=-ones, shift=0 * ones)
        cut = -cut
    plain = 0.0 if not cut.any() else cut
    at.signs[node.output] = at.signs[node.inputs[0]]
    name = at.emit(node, "sign", draft, cut=plain, strict=strict)
    return _Value(name, value.order, is_bits=True)


def _clamp(at: Importer, node: Node) -> _Value:
    value = at.plain(node.inputs[0])
    low, high = 0.0, np.inf
    if node.op == "Clip":
        get = node.attributes.get
        limits = [at.optional(node, position, "a limit") for position in (1, 2)]
        if any(limit is not None and limit.size != 1 for limit in limits):
            raise FileError("limits that are no single numbers")
        low = float(get("min", -np.inf) if limits[0] is None else limits[0].reshape(()))
        high = float(get("max", np.inf) if limits[1] is None else limits[1].reshape(()))
    return _Value(at.emit(node, "clamp", value.draft, low=low, high=high), value.order)


def _pool(at: Importer, node: Node) -> _Value:
    value, size = at.plain(node.inputs[0]), at.image(node)
    if node.op == "ReduceMean":
        axes = node.attributes.get("axes")
        given = at.optional(node, 1, "axes") if axes is None else np.asarray(axes)
        if given is None or sorted(int(axis) % 4 for axis in given.reshape(-1)) != [2, 3]:
            raise FileError(f"axes={None if given is None else given.tolist()}; accepted are 2, 3")
    if node.op in ("GlobalAveragePool", "ReduceMean"):
        return _Value(at.emit(node, "mean", value.draft, window=None))
    window = window_of(node, node.attributes["kernel_shape"], size)
    if node.op == "MaxPool":
        return _Value(at.emit(node, "max", value.draft, window=window), is_bits=value.is_bits)
    every = bool(node.attributes["count_include_pad"])
    if every and node.attributes.get("ceil_mode", 0):
        raise FileError("ceil_mode with count_include_pad")
    return _Value(at.emit(node, "mean", value.draft, window=window, count_padding=every))


def _flatten(at: Importer, node: Node) -> _Value:
    value, shape = at.plain(node.inputs[0]), at.shape(node)
    rows = (shape[0], int(np.prod(shape[1:])))
    if at.facts.shape(node.output) != rows:
        given = at.optional(node, 1, "a shape") if node.op != "Flatten" else None
        asked = node.attributes.get("axis" if node.op == "Flatten" else "axes")
        name = "shape" if node.op == "Reshape" else "axis" if node.op == "Flatten" else "axes"
        asked = asked if given is None else given.tolist()
        raise FileError(
            f"{name}={asked} makes {list(at.facts.shape(node.output))} of {list(shape)}; accepted"
            f" is {list(rows)}, a row for each of {shape[0]} images"
        )
    if len(shape) == 2:
        return value
    name = at.emit(node, "flatten", value.draft)
    order = np.arange(rows[1]).reshape(shape[1:]).transpose(1, 2, 0).reshape(-1)
    kept = None if shape[2:] == (1, 1) else order
    return _Value(name, kept, is_bits=value.is_bits)


def _pad(at: Importer, node: Node) -> _Value:
    value = at.plain(node.inputs[0])
    at.image(node)
    given = [at.optional(node, position, "pads") for position in (1, 2, 3)]
    return replace(value, pads=pads_of(node, given))


def _cast(at: Importer, node: Node) -> _Value:
    value, to = at.plain(node.inputs[0]), node.attributes["to"]
    if to not in _KEEPS and not (to == _HALF and value.is_bits):
        raise FileError(
            f"to={to}, which rounds; accepted are 1 (float32), 11 (float64), and 10 (float16) of"
            " signs"
        )
    return value


def _dropout(at: Importer, node: Node) -> _Value:
    training = at.optional(node, 2, "training_mode")
    if training is not None and bool(training.any()):
        raise FileError("training_mode=True; accepted are trained networks")
    return at.plain(node.inputs[0])


def _same(at: Importer, node: Node) -> _Value:
    return at.plain(node.inputs[0])


_CONVERTERS: dict[str, Callable[[Importer, Node], _Value]] = {
    "Add": _arithmetic,
    "AveragePool": _pool,
    "BatchNormalization": _norm,
    "Cast": _cast,
    "Clip": _clamp,
    "Conv": _conv,
    "Div": _arithmetic,
    "Dropout": _dropout,
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
