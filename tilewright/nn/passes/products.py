"""Makes one product of each MatMul and Gemm, with the nodes round it that a product takes in.

    Transpose                  before B, and before A where B is no constant: other steps in memory
    Gemm's alpha, beta, C      C as a bias where it is one number a column, else as what C holds
    Add of a vector            the bias, one number a column
    Relu, Gelu                 the activation

Products of whole numbers stay with their definitions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from tilewright.nn.graph import Graph, Node, Tensor
from tilewright.nn.operators.base import FLOATS
from tilewright.nn.operators.product import Ends, product_node

Turn = tuple[int, ...] | None


def with_products(graph: Graph, tensors: Mapping[str, Tensor], *, fuse: bool = True) -> Graph:
    """The graph with such nodes as products; without `fuse` each stays alone."""
    at = _Products(graph, tensors, fuse)
    products: dict[str, Node] = {}  # by the value that each gives at present
    kept: list[Node] = []
    for node in graph.nodes:
        made = at.product(node)
        if made is None:
            old = next((products[name] for name in node.inputs if name in products), None)
            made = None if old is None else at.ended(old, node)
            if made is not None and old is not None:
                kept = [one for one in kept if one is not old]
                del products[old.outputs[0]]
        kept.append(made or node)
        if made is not None:
            products[made.outputs[0]] = made
    return graph.with_nodes(kept, at.constants)


class _Products:
    """What stands before and behind products; constants gain what C becomes."""

    def __init__(self, graph: Graph, tensors: Mapping[str, Tensor], fuse: bool) -> None:
        self.constants = dict(graph.constants)
        self._tensors, self._fuse = tensors, fuse
        self._makers, self._readers = graph.makers(), graph.readers()
        self._outputs = set(graph.outputs)

    def product(self, node: Node) -> Node | None:
        """A MatMul or Gemm of real numbers as a product; None for other nodes."""
        if node.operator not in ("MatMul", "Gemm"):
            return None
        a, b, *rest = node.inputs
        if self._tensors[a].dtype not in FLOATS:
            return None
        ends, more = Ends(node.operator), tuple[str, ...]()
        if node.operator == "Gemm":
            turns = tuple((1, 0) if node.attributes[n] else None for n in ("transA", "transB"))
            alpha = float(node.attributes["alpha"])
            ends = replace(ends, turns=(turns[0], turns[1]), alpha=alpha)
            ends, more = self._with_c(node, ends, rest[0] if rest else "")
        parts = [node.name]
        if self._fuse:
            b, turn = self._turned(b, ends.turns[1], parts)
            ends = replace(ends, turns=(ends.turns[0], turn))
            if b not in self.constants:
                a, turn = self._turned(a, ends.turns[0], parts)
                ends = replace(ends, turns=(turn, ends.turns[1]))
        return product_node(node.name, ends, (a, b, *more), node.outputs[0], tuple(parts))

    def ended(self, product: Node, node: Node) -> Node | None:
        """A product with the node behind it taken in, where only that reads it; else None."""
        name, ends = product.outputs[0], product.attributes["ends"]
        alone = len(self._readers[name]) == 1 and name not in self._outputs
        if not self._fuse or not alone or ends.activation != "none":
            return None
        inputs = product.inputs
        if node.operator == "Add" and not ends.bias:
            other = node.inputs[1] if node.inputs[0] == name else node.inputs[0]
            if not self._is_bias(other, product, node):
                return None
            ends, inputs = replace(ends, bias=True), (*inputs[:2], other, *inputs[2:])
        elif node.operator == "Relu":
            ends = replace(ends, activation="relu")
        elif node.operator == "Gelu" and node.attributes.get("approximate", "none") == "none":
            ends = replace(ends, activation="gelu")
        else:
            return None
        parts = (*product.attributes["parts"][0], node.name)
        return product_node(product.name, ends, inputs, node.outputs[0], parts)

    def _is_bias(self, name: str, product: Node, added: Node) -> bool:
        """Whether a value is one number a column of a product of matrices."""
        vector, value = self._tensors[name], self._tensors[product.outputs[0]]
        matrices = all(len(self._tensors[source].shape) > 1 for source in product.inputs[:2])
        whole = self._tensors[added.outputs[0]].shape == value.shape
        return matrices and whole and _is_row(vector, value.shape[-1])

    def _with_c(self, node: Node, ends: Ends, name: str) -> tuple[Ends, tuple[str, ...]]:
        """What Gemm adds: a bias, or what C holds; and the names of it."""
        beta = float(node.attributes["beta"])
        if not name or beta == 0:
            return ends, ()
        c, columns = self._tensors[name], self._tensors[node.outputs[0]].shape[-1]
        row = _is_row(c, columns)
        if row and beta == 1:
            return replace(ends, bias=True), (name,)
        if c.value is None or c.size not in (1, columns) or not (row or c.size == 1):
            return replace(ends, added=True, beta=beta), (name,)
        made = f"{node.outputs[0]}, bias"
        scaled = np.asarray(c.value, np.float64).reshape(-1) * beta
        value = np.ascontiguousarray(np.broadcast_to(scaled, (columns,))).astype(c.value.dtype)
        self.constants[made] = Tensor((columns,), c.dtype, value)
        return replace(ends, bias=True), (made,)

    def _turned(self, name: str, turn: Turn, parts: list[str]) -> tuple[str, Turn]:
        """The value that a Transpose reads, and the axes in the order in which it is multiplied."""
        maker = self._makers.get(name)
        if maker is None or maker.operator != "Transpose":
            return name, turn
        rank = len(self._tensors[name].shape)
        perm: Sequence[int] = maker.attributes.get("perm") or tuple(range(rank))[::-1]
        order = tuple(perm[axis] for axis in (turn or range(rank)))
        if rank < 2 or rank - 1 not in order[-2:]:  # no library reads what has no dense axis
            return name, turn
        if len(self._readers[name]) == 1 and name not in self._outputs:
            parts.insert(0, maker.name)
        return maker.inputs[0], order


def _is_row(tensor: Tensor, columns: int) -> bool:
    """Whether it is one number a column."""
    return tensor.size == columns and tensor.shape[-1:] == (columns,)
