"""Layers of bits as operators: one layer alone, a pass of several, and its values unpacked.

Values of layers are [N, height, width, channels], as those of `tilewright.onebit`; bits are int8 -1
and +1. Between passes they are as the host's kernels read them (`buffers.shape_of`): bits 64 a word
with a border, reals with channels up to a multiple of 32.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright.arrays.array import NDArray
from tilewright.nn.buffers import buffer_of, shape_of
from tilewright.nn.graph import Node, Shape, Tensor
from tilewright.nn.joined import Pass
from tilewright.nn.layers.base import Layer, evaluate
from tilewright.nn.operators.base import Given, Operator
from tilewright.nn.value import Value

LAYER, PASS, UNPACKED = "LayerOfBits", "PassOfBits", "UnpackedBits"


class LayerOfBits(Operator):
    """attributes: `layer`, a record of nn/layers/; `values`, kinds and sizes of what it touches."""

    name = LAYER
    versions = (1,)
    dtypes = ("float16", "bfloat16", "float32", "int8")

    def types(self, node: Node, given: Sequence[str]) -> tuple[str, ...]:
        """int8 of bits, float32 of reals."""
        return (_logical(_result(node)),)

    def shapes(self, node: Node, given: Given) -> tuple[Shape, ...]:
        """As many pictures as given."""
        assert given[0] is not None
        return (_sizes(_result(node), given[0].shape[0]),)

    def compute(self, xp: Any, node: Node, *given: Any) -> Any:
        """The layer's own definition, in NumPy."""
        arrays = [_four(_numpy(array)) for array in given]
        return _there(xp, node.attributes["layer"].compute(*arrays), given[0])

    def flops(self, node: Node, given: Given, made: Sequence[Tensor]) -> float:
        """As the layer counts."""
        layer: Layer = node.attributes["layer"]
        return made[0].shape[0] * layer.flops(_result(node))


class PassOfBits(Operator):
    """attributes: `pass`, and `parts`, the names of the nodes that it does."""

    name = PASS
    versions = (1,)
    dtypes = ("float16", "bfloat16", "float32", "int8", "uint64")

    def types(self, node: Node, given: Sequence[str]) -> tuple[str, ...]:
        """As the values lie."""
        return tuple(kind for _, kind in self._made(node, 0))

    def shapes(self, node: Node, given: Given) -> tuple[Shape, ...]:
        """As the values lie."""
        assert given[0] is not None
        return tuple(shape for shape, _ in self._made(node, given[0].shape[0]))

    def compute(self, xp: Any, node: Node, *given: Any) -> Any:
        """Layer by layer, in NumPy."""
        item: Pass = node.attributes["pass"]
        arrays = zip(item.reads, map(_numpy, given), strict=True)
        values = {name: buffer_of(array, item.values[name]).values() for name, array in arrays}
        found = evaluate(item.layers, values)
        made = []
        for name, (shape, kind) in zip(item.stores, self._made(node, len(given[0])), strict=True):
            array = np.zeros(shape, kind)
            buffer_of(array, item.values[name]).put(found[name])
            made.append(_there(xp, array, given[0]))
        return tuple(made)

    def flops(self, node: Node, given: Given, made: Sequence[Tensor]) -> float:
        """As its layers count."""
        item: Pass = node.attributes["pass"]
        each = sum(layer.flops(item.values[layer.name]) for layer in item.layers)
        return made[0].shape[0] * each

    def _made(self, node: Node, images: int) -> list[tuple[Shape, str]]:
        item: Pass = node.attributes["pass"]
        return [shape_of(item.values[n], images, item.borders.get(n, 0)) for n in item.stores]


class UnpackedBits(Operator):
    """A value of a pass as all other nodes read it. attributes: `value`, its kind and sizes."""

    name = UNPACKED
    versions = (1,)
    dtypes = ("float32", "uint64")

    def types(self, node: Node, given: Sequence[str]) -> tuple[str, ...]:
        """int8 of bits, float32 of reals."""
        return (_logical(node.attributes["value"]),)

    def shapes(self, node: Node, given: Given) -> tuple[Shape, ...]:
        """[N, height, width, channels]."""
        assert given[0] is not None
        return (_sizes(node.attributes["value"], given[0].shape[0]),)

    def compute(self, xp: Any, node: Node, *given: Any) -> Any:
        """Without borders and absent channels."""
        values = buffer_of(_numpy(given[0]), node.attributes["value"]).values()
        return _there(xp, values, given[0])


def layers_of(node: Node) -> tuple[Layer, ...]:
    """The layers of bits that a node does; none of other nodes."""
    if node.operator == PASS:
        item: Pass = node.attributes["pass"]
        return item.layers
    return (node.attributes["layer"],) if node.operator == LAYER else ()


def _result(node: Node) -> Value:
    """What a layer gives."""
    value: Value = node.attributes["values"][node.attributes["layer"].name]
    return value


def _logical(value: Value) -> str:
    return "int8" if value.kind == "bits" else "float32"


def _sizes(value: Value, images: int) -> Shape:
    return images, value.height, value.width, value.channels


def _numpy(array: Any) -> NDArray:
    """In the host's memory; bits are computed there."""
    if isinstance(array, np.ndarray):
        return array
    host = array.detach().cpu()
    return np.asarray(host.float() if host.dtype.is_floating_point else host)


def _four(array: NDArray) -> NDArray:
    """Rows of features as pictures of one pixel."""
    return array if array.ndim == 4 else array.reshape(len(array), 1, 1, -1)


def _there(xp: Any, made: NDArray, like: Any) -> Any:
    """Back where the input lay."""
    return made if xp is np else xp.asarray(np.ascontiguousarray(made), device=like.device)


OPERATORS = (LayerOfBits(), PassOfBits(), UnpackedBits())
