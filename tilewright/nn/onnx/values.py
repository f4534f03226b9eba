"""Finds the sizes, element types and constants of a graph's values before any input is there.

A node whose inputs are all constants is a constant itself; it is computed by another's
implementation of ONNX, and only once its size is known to fit. Values that depend on the input are
not computed here: sizes are all that the importer needs of them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from tilewright.arrays.array import NDArray
from tilewright.errors import FileError
from tilewright.nn.onnx.graph import Graph, Node
from tilewright.nn.onnx.others import Sizes, folded, sizes_of
from tilewright.nn.onnx.tensors import content_of_constant

FREE_BATCH = 2  # images of a graph that takes any number: what joins them shows in the sizes
_FLOAT = 1


@dataclass(slots=True)
class Facts:
    """Of every value by name: sizes and ONNX's element type; and the constants themselves."""

    graph: Graph
    memory: int  # bytes that constants which nodes give may take
    batch: int
    types: dict[str, tuple[Sizes, int]] = field(default_factory=dict)
    constants: dict[str, NDArray] = field(default_factory=dict)
    held: int = 0  # bytes of constants that nodes gave

    def shape(self, name: str) -> Sizes:
        """Sizes of a value, the batch first."""
        return self.types[name][0]

    def learn(self, node: Node) -> None:
        """What is to be known of a node's value. Raises FileError that names the node."""
        if node.op == "Constant":
            _keep(self, node.output, _number(self.graph, node))
            return
        sizes, kind = sizes_of(self.graph, node, self.types, self.constants)
        self.types[node.output] = (sizes, kind)
        if all(name in self.constants for name in node.inputs if name):
            _room(self, node, sizes)
            given = {name: self.constants[name] for name in node.inputs if name}
            _keep(self, node.output, folded(self.graph, node, given))
            self.held += self.constants[node.output].nbytes


def facts_of(graph: Graph, memory: int) -> Facts:
    """What is known before any node: the initializers and the input."""
    facts = Facts(graph, memory, graph.batch or FREE_BATCH)
    for name, array in graph.constants.items():
        _keep(facts, name, array)
    facts.types[graph.input] = ((facts.batch, *graph.input_shape), _FLOAT)
    return facts


def _room(facts: Facts, node: Node, sizes: Sizes) -> None:
    """Raise where a constant that a node computes would not fit beside those before it."""
    needed = facts.held + 8 * math.prod(sizes)
    if needed > facts.memory:
        raise facts.graph.refuse(
            node,
            f"a constant of {list(sizes)} brings the graph's to {needed} bytes;"
            f" memory={facts.memory} is what they may take",
        )


def _keep(facts: Facts, name: str, array: NDArray) -> None:
    from onnx import helper

    facts.constants[name] = array
    facts.types[name] = (array.shape, int(helper.np_dtype_to_tensor_dtype(array.dtype)))


def _number(graph: Graph, node: Node) -> NDArray:
    """What a Constant node holds."""
    try:
        found = content_of_constant(node.attributes)
    except FileError as error:
        raise graph.refuse(node, str(error)) from None
    if found.dtype.kind == "f" and not np.isfinite(found).all():
        raise graph.refuse(node, "NaN or infinities; accepted are numbers")
    return found


def peak(graph: Graph, facts: Facts, readers: Mapping[str, int]) -> tuple[int, Node]:
    """Most bytes of values at once when each goes after its last reader, and at which node.

    readers: the position of the last node after which a value is still wanted.
    """
    live = {graph.input: _bytes(facts, graph.input)}
    most, where = 0, graph.nodes[0]
    for position, node in enumerate(graph.nodes):
        if node.output in facts.constants:
            continue
        live[node.output] = _bytes(facts, node.output)
        # Beside the values, a comparison holds a few arrays of the sizes that it compares.
        work = sum(_bytes(facts, n) for n in {*node.inputs, node.output} if n in live)
        if sum(live.values()) + 4 * work > most:
            most, where = sum(live.values()) + 4 * work, node
        live = {name: size for name, size in live.items() if readers.get(name, 0) > position}
    return most, where


def _bytes(facts: Facts, name: str) -> int:
    """Bytes of a value, its element taken as a float32 or more."""
    return 4 * math.prod(facts.shape(name))


def check_memory(graph: Graph, needed: int, memory: int, what: str) -> None:
    """Raise FileError where `what` needs more than `memory` bytes."""
    if needed > memory:
        raise FileError(
            f"{graph.label}: {what} takes about {needed} bytes; memory={memory} is what it may take"
        )
