"""Joins a layer between DequantizeLinear and QuantizeLinear into one of whole numbers.

    DequantizeLinear -> Conv -> Relu or Clip -> QuantizeLinear      one ConvInt8, int8 in and out
    DequantizeLinear -> Conv -> Relu or Clip                        one ConvInt8, float32 out
    DequantizeLinear -> Gemm -> ...                                 one DenseInt8
    DequantizeLinear -> Add -> Relu or Clip -> QuantizeLinear       one AddInt8, if both or either

Weights are DequantizeLinear of a constant, a number for each output or one, zero 0; so is a bias,
int32 of the scale of x times that of the weights. Asks no sizes, so it is the first of all passes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from tilewright.arrays.array import NDArray
from tilewright.engines.conv import Whole
from tilewright.engines.values import Summand
from tilewright.nn.graph import Graph, Node
from tilewright.nn.operators.add_int8 import NAME as ADDED
from tilewright.nn.operators.add_int8 import SumNumbers
from tilewright.nn.operators.conv_int8 import DENSE, NAME, Numbers, is_short
from tilewright.nn.passes.dead import without_dead

_JOINED = {"Conv": NAME, "Gemm": DENSE}
_NUMBERS = {"float32": 1, "uint8": 2, "int8": 3}  # ONNX's of types
_WHOLE = ("uint8", "int8")


def with_int8(graph: Graph) -> Graph:
    """The graph with every such layer joined."""
    if not any(node.operator == "DequantizeLinear" for node in graph.nodes):
        return graph
    at = _Reader(graph)
    gone: set[str] = set()
    kept = []
    for node in graph.nodes:
        if node.outputs[0] in gone:
            continue
        made = at.joined(node, gone) if node.operator in _JOINED else None
        made = at.summed(node, gone) if node.operator == "Add" else made
        kept.append(made or node)
    return without_dead(graph.with_nodes(kept))


class _Reader:
    """What stands before and behind a node."""

    def __init__(self, graph: Graph) -> None:
        self._constants, self._makers = graph.constants, graph.makers()
        self._readers, self._outputs = graph.readers(), set(graph.outputs)

    def joined(self, conv: Node, gone: set[str]) -> Node | None:
        """The layer of whole numbers; `gone` gains the values of what it takes in."""
        numbers = self._numbers(conv)
        if numbers is None:
            return None
        source = self._makers[conv.inputs[0]].inputs[0]
        output, ended = conv.outputs[0], numbers.whole
        reader = self._only_reader(output)
        limits = None if reader is None else self._limits(reader)
        if reader is not None and limits is not None:
            ended = replace(ended, low=limits[0], high=limits[1])
            output = reader.outputs[0]
            gone.add(output)
            reader = self._only_reader(output)
        whole = None if reader is None else self._whole(reader)
        if reader is not None and whole is not None:
            step, zero = whole
            dtype = zero.dtype.name
            ended = replace(ended, step=float(step), shift=int(zero), dtype=dtype)
            output = reader.outputs[0]
            gone.add(output)
        numbers = replace(numbers, whole=ended)
        attributes = {**conv.attributes, "numbers": numbers, "dtype": _NUMBERS[ended.dtype]}
        return Node(_JOINED[conv.operator], 1, (source,), (output,), attributes, conv.name)

    def summed(self, node: Node, gone: set[str]) -> Node | None:
        """A sum of whole numbers that is rounded; `gone` gains the values of what it takes in."""
        makers = [self._makers.get(name) for name in node.inputs]
        found = [None if one is None else self._summand(one) for one in makers]
        output, limits = node.outputs[0], (-math.inf, math.inf)
        reader = self._only_reader(output)
        ends = None if reader is None else self._limits(reader)
        passed = [output]
        if reader is not None and ends is not None:
            limits, output = ends, reader.outputs[0]
            passed.append(output)
            reader = self._only_reader(output)
        whole = None if reader is None else self._whole(reader)
        if reader is None or whole is None or not any(found):
            return None
        a, b = (one or Summand() for one in found)
        inputs = tuple(
            name if one is None or maker is None else maker.inputs[0]
            for name, one, maker in zip(node.inputs, found, makers, strict=True)
        )
        step, zero = whole
        numbers = SumNumbers((a, b), float(step), int(zero), zero.dtype.name, *limits)
        gone.update((*passed[1:], reader.outputs[0]))
        return Node(ADDED, 1, inputs, (reader.outputs[0],), {"numbers": numbers}, node.name)

    def _summand(self, node: Node) -> Summand | None:
        """What a DequantizeLinear by single numbers makes of small whole ones."""
        found = self._parameters(node) if node.operator == "DequantizeLinear" else None
        if found is None or found[0].size != 1 or found[1].dtype.name not in _WHOLE:
            return None
        zero, scale = int(found[1].reshape(-1)[0]), float(found[0].reshape(-1)[0])
        return Summand(found[1].dtype.name, scale, zero) if 0 < scale < math.inf else None

    def _numbers(self, conv: Node) -> Numbers | None:
        """Weights, bias and scales, where all are whole numbers of the kind that joins."""
        x, weights = (self._makers.get(name) for name in conv.inputs[:2])
        given = None if x is None else self._parameters(x)
        share = None if weights is None else self._parameters(weights)
        if given is None or share is None or weights is None or given[0].size != 1:
            return None
        values = self._value(weights.inputs[0])
        if values is None or values.dtype != np.int8 or share[1].any():
            return None
        dtype = given[1].dtype.name
        if dtype not in _WHOLE:
            return None
        axis = weights.attributes.get("axis", 1) % values.ndim
        if conv.operator == "Conv":
            fits, along = values.ndim == 4, 0
        else:
            a = conv.attributes
            fits, along = not a["transA"] and a["alpha"] == a["beta"] == 1, 1 - bool(a["transB"])
        if not fits or share[0].size not in (1, values.shape[along]):
            return None
        if share[0].size > 1 and axis != along:
            return None
        values = np.ascontiguousarray(np.moveaxis(values, along, 0))
        scale = np.float32(given[0].reshape(-1)[0]) * np.broadcast_to(
            share[0].reshape(-1), len(values)
        ).astype(np.float32)
        bias = None
        if len(conv.inputs) > 2 and conv.inputs[2]:
            bias = self._bias(conv.inputs[2], scale)
            if bias is None:
                return None
        zero = int(given[1].reshape(-1)[0])
        whole = Whole(zero, scale, source=dtype)
        return Numbers(values, bias, whole, is_short(values, bias, zero, dtype))

    def _bias(self, name: str, scale: NDArray) -> NDArray | None:
        """An int32 bias of the scale of the sums."""
        maker = self._makers.get(name)
        found = None if maker is None else self._parameters(maker)
        if maker is None or found is None or found[1].any():
            return None
        value = self._value(maker.inputs[0])
        same = np.array_equal(np.broadcast_to(found[0].reshape(-1), scale.shape), scale)
        return value if value is not None and value.dtype == np.int32 and same else None

    def _parameters(self, node: Node) -> tuple[NDArray, NDArray] | None:
        """Scale and zero of a DequantizeLinear or QuantizeLinear whose both are constants."""
        if node.operator not in ("DequantizeLinear", "QuantizeLinear"):
            return None
        scale = self._value(node.inputs[1])
        if scale is None or scale.dtype != np.float32 or node.attributes.get("block_size"):
            return None
        if len(node.inputs) < 3 or not node.inputs[2]:
            return scale, np.zeros(scale.shape, np.uint8)
        zero = self._value(node.inputs[2])
        return None if zero is None else (scale, zero)

    def _whole(self, node: Node) -> tuple[NDArray, NDArray] | None:
        """Step and zero of a QuantizeLinear to int8 or uint8 by single numbers."""
        found = self._parameters(node) if node.operator == "QuantizeLinear" else None
        if found is None or found[0].size != 1 or found[1].dtype.name not in _WHOLE:
            return None
        return found[0].reshape(-1)[0], found[1].reshape(-1)[0]

    def _limits(self, node: Node) -> tuple[float, float] | None:
        """Those of a Relu, or of a Clip whose limits are constants."""
        if node.operator == "Relu":
            return 0.0, math.inf
        if node.operator != "Clip":
            return None
        if node.version < 11:
            return node.attributes["min"], node.attributes["max"]
        ends = [-math.inf, math.inf]
        for at, name in enumerate(node.inputs[1:]):
            value = self._value(name) if name else None
            if name and value is None:
                return None
            ends[at] = ends[at] if value is None else float(value.reshape(-1)[0])
        return ends[0], ends[1]

    def _only_reader(self, name: str) -> Node | None:
        """The one node that reads a value, if that is all that becomes of it."""
        readers = self._readers[name]
        alone = len(readers) == 1 and name not in self._outputs
        return readers[0] if alone and readers[0].inputs[0] == name else None

    def _value(self, name: str) -> NDArray | None:
        constants: Mapping[str, object] = self._constants
        return self._constants[name].value if name in constants else None
