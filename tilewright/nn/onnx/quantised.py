"""Operators of whole numbers that onnxruntime's quantiser writes, as the nodes they stand for.

    QLinearAdd(a, b) -> DequantizeLinear(a), DequantizeLinear(b), Add, QuantizeLinear

In its format `QOperator` they are of the domain com.microsoft, but for QLinearConv and
QLinearMatMul, which are ONNX's own. A pass joins what stands round a convolution again
(`passes/int8.py`), so that both formats of one network bind alike.
"""

from __future__ import annotations

from collections.abc import Callable, MutableMapping
from typing import Any

import numpy as np

from tilewright.errors import FileError
from tilewright.nn.graph import Tensor

DOMAIN = "com.microsoft"
_BY_CHANNEL = 13  # the opset from which DequantizeLinear has an axis
_Constants = MutableMapping[str, Tensor]


def expanded(proto: Any, constants: _Constants, opset: int) -> list[Any]:
    """The nodes that a node stands for; itself where it is of ONNX's own that no pass joins.

    Scales of biases are added to the constants. Raises FileError naming what is not taken.
    """
    if proto.domain == DOMAIN:
        make = _MAKERS.get(proto.op_type)
        if make is None:
            raise FileError(f"domain {DOMAIN!r}; accepted of it are {', '.join(sorted(_MAKERS))}")
    elif proto.op_type == "QLinearConv" and proto.domain in ("", "ai.onnx"):
        make = _conv
    else:
        return [proto]
    return make(_Node(proto, constants, opset)) or [proto]


class _Node:
    """A node being taken apart: names of its inputs, and nodes made so far."""

    def __init__(self, proto: Any, constants: _Constants, opset: int) -> None:
        self.made: list[Any] = []
        self.inputs, self.opset = list(proto.input), opset
        self._proto, self._constants = proto, constants
        self._output = proto.output[0] if proto.output else ""

    def at(self, place: int) -> str:
        """The name of an input, "" where it is absent."""
        return self.inputs[place] if place < len(self.inputs) else ""

    def real(self, place: int, axis: int | None = None) -> str:
        """A value of inputs (value, scale, zero) as float32."""
        name = f"{self._output}, input {place} as float32"
        given = [self.inputs[place], *map(self._single, self.inputs[place + 1 : place + 3])]
        self._add("DequantizeLinear", given, name, {} if axis is None else {"axis": axis})
        return name

    def computed(self, operator: str, given: list[str], scale: int, **others: Any) -> list[Any]:
        """An operator with this node's attributes and others, and its result in whole numbers.

        scale: the place of the result's scale; where there is none it stays float32.
        """
        plain = self.at(scale) == ""
        name = self._output if plain else f"{self._output}, as float32"
        node = self._add(operator, given, name, others)
        for attribute in self._proto.attribute:
            if attribute.name == "channels_last":
                if attribute.i:
                    raise FileError("channels_last=1; accepted is 0")
            elif attribute.name not in ("opset", *others):
                node.attribute.append(attribute)
        if not plain:
            ends = [name, self._single(self.at(scale)), self._single(self.at(scale + 1))]
            self._add("QuantizeLinear", ends, self._output, {})
        return self.made

    def bias(self, place: int, x: int, weights: int) -> str:
        """An int32 bias as float32: its scale is that of x times that of the weights."""
        x_scale, w_scale = self.value(self.at(x)), self.value(self.at(weights))
        if x_scale is None or w_scale is None:
            raise FileError("scales are no constants; accepted are constants")
        scale = np.float32(x_scale.reshape(-1)[0]) * w_scale.reshape(-1).astype(np.float32)
        name = f"{self._output}, scale of the bias"
        scale = scale[0] if scale.size == 1 else scale
        self._constants[name] = Tensor(np.shape(scale), "float32", np.asarray(scale))
        real = f"{self._output}, input {place} as float32"
        axis = {"axis": 0} if np.ndim(scale) else {}
        self._add("DequantizeLinear", [self.at(place), name], real, axis)
        return real

    def value(self, name: str) -> Any:
        """What a constant holds; None of what is none."""
        known = self._constants.get(name)
        return None if known is None else known.value

    def attribute(self, name: str, default: Any) -> Any:
        """A whole number among the attributes."""
        return next((a.i for a in self._proto.attribute if a.name == name), default)

    def _single(self, name: str) -> str:
        """The name of a scale or zero, of one number without dimensions."""
        value = self.value(name)
        if value is None or value.shape != (1,):
            return name
        single = f"{name}, alone"
        self._constants[single] = Tensor((), self._constants[name].dtype, value.reshape(()))
        return single

    def _add(self, operator: str, given: list[str], made: str, attributes: dict[str, Any]) -> Any:
        from onnx import helper

        while given and not given[-1]:
            given = given[:-1]
        own = self._proto.name or self._output
        name = own if made == self._output else f"{own}, {operator}"
        self.made.append(helper.make_node(operator, given, [made], name=name, **attributes))
        return self.made[-1]


def _of_one(operator: str) -> Callable[[_Node], list[Any]]:
    """x, its scale and zero, those of the result."""
    return lambda node: node.computed(operator, [node.real(0)], 3)


def _of_two(operator: str) -> Callable[[_Node], list[Any]]:
    """a and b, each with scale and zero, and those of the result."""
    return lambda node: node.computed(operator, [node.real(0), node.real(3)], 6)


def _joined(node: _Node) -> list[Any]:
    """The result's scale and zero first, then each operand with its own."""
    given = [node.real(at) for at in range(2, len(node.inputs), 3)]
    return node.computed("Concat", given, 0)


def _product(node: _Node) -> list[Any]:
    """A and B with their scales, C in whole numbers of both, and the result's scale."""
    across = 0 if node.attribute("transB", 0) else 1
    scale = node.value(node.at(4))
    many = scale is not None and scale.size > 1
    given = [node.real(0), node.real(3, across if many else None)]
    if node.at(6):
        given.append(node.bias(6, 1, 4))
    return node.computed("Gemm", given, 7, beta=1.0)


def _softmax(node: _Node) -> list[Any]:
    if min(node.attribute("opset", 0), node.opset) < _BY_CHANNEL:
        raise FileError(f"opset {node.attribute('opset', 0)}; accepted is {_BY_CHANNEL} and more")
    return node.computed("Softmax", [node.real(0)], 3)


def _conv(node: _Node) -> list[Any]:
    """Where scales and weights are constants, whose zeros are 0; else it stays as it is."""
    known = [node.value(node.at(at)) for at in (1, 2, 3, 4, 5, 6, 7)]
    if any(value is None for value in known) or known[4].any() or known[2].dtype != np.int8:
        return []
    many = known[3].size > 1
    if many and node.opset < _BY_CHANNEL:
        return []
    given = [node.real(0), node.real(3, 0 if many else None)]
    if node.at(8):
        given.append(node.bias(8, 1, 4))
    return node.computed("Conv", given, 6)


_MAKERS: dict[str, Callable[[_Node], list[Any]]] = {
    "QGemm": _product,
    "QLinearAdd": _of_two("Add"),
    "QLinearAveragePool": _of_one("AveragePool"),
    "QLinearConcat": _joined,
    "QLinearGlobalAveragePool": _of_one("GlobalAveragePool"),
    "QLinearLeakyRelu": _of_one("LeakyRelu"),
    "QLinearMul": _of_two("Mul"),
    "QLinearSigmoid": _of_one("Sigmoid"),
    "QLinearSoftmax": _softmax,
}
