"""MatMul and Gemm as passes leave them: one product with what stands before and behind it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tilewright.engines.conv import Activation
from tilewright.nn.graph import Node, Shape, Tensor
from tilewright.nn.operators.activate import activate
from tilewright.nn.operators.base import NUMBERS, Given, Operator
from tilewright.nn.operators.products import product_shape

NAME = "Product"


@dataclass(frozen=True, slots=True)
class Ends:
    """What is done to A, B and the product: activation(alpha * A @ B + beta * C + bias).

    turns      the orders of the axes in which A and B are read; None as they come
    bias       whether a vector, one number a column, is among the inputs, behind A and B
    added      whether C is, behind it
    operator   what the file has, for whoever counts and prints
    """

    operator: str = "MatMul"
    turns: tuple[tuple[int, ...] | None, tuple[int, ...] | None] = (None, None)
    alpha: float = 1.0
    beta: float = 0.0
    bias: bool = False
    added: bool = False
    activation: str = "none"


def product_node(
    name: str, ends: Ends, inputs: tuple[str, ...], output: str, parts: tuple[str, ...]
) -> Node:
    """A product as a node; `parts` are names of the file's nodes that it does."""
    return Node(NAME, 1, inputs, (output,), {"ends": ends, "parts": (parts,)}, name)


class Product(Operator):
    """activation(alpha * A @ B + beta * C + bias); leading dimensions broadcast."""

    name = NAME
    versions = (1,)
    dtypes = NUMBERS

    def shapes(self, node: Node, given: Given) -> tuple[Shape, ...]:
        """As NumPy's matmul."""
        return (product_shape(*turned(node, given)),)

    def compute(self, xp: Any, node: Node, *given: Any) -> Any:
        """The library's product, then one operation after another."""
        ends: Ends = node.attributes["ends"]
        a, b, *rest = given
        result = xp.matmul(*(_turned(xp, x, t) for x, t in zip((a, b), ends.turns, strict=True)))
        result = result if ends.alpha == 1 else ends.alpha * result
        if ends.added:
            result = result + (rest[-1] if ends.beta == 1 else ends.beta * rest[-1])
        if ends.bias:
            result = result + rest[0]
        return activate(xp, result, Activation(ends.activation))

    def flops(self, node: Node, given: Given, made: Sequence[Tensor]) -> float:
        """Two for each element of a row and each element of the result."""
        a, _ = turned(node, given)
        return 2.0 * made[0].size * a.shape[-1]


def turned(node: Node, given: Given) -> tuple[Tensor, Tensor]:
    """Sizes of A and B in the order in which they are multiplied."""
    found = []
    for tensor, turn in zip(given, node.attributes["ends"].turns, strict=False):
        assert tensor is not None
        shape = tensor.shape if turn is None else tuple(tensor.shape[axis] for axis in turn)
        found.append(Tensor(shape, tensor.dtype))
    return found[0], found[1]


def _turned(xp: Any, x: Any, turn: tuple[int, ...] | None) -> Any:
    return x if turn is None else xp.permute_dims(x, turn)


OPERATORS = (Product(),)
