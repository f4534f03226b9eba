"""Products of matrices: MatMul, Gemm, and Einsum, which is any of them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from tilewright.errors import ShapeError
from tilewright.nn.graph import Node, Shape, Tensor
from tilewright.nn.operators.base import NUMBERS, Given, Operator, broadcast


class MatMul(Operator):
    """Products of the last two axes; the others broadcast, and vectors are rows or columns."""

    name = "MatMul"
    versions = (1, 9, 13)
    dtypes = NUMBERS

    def shapes(self, node: Node, given: Given) -> tuple[Shape, ...]:
        """As NumPy's matmul."""
        return (product_shape(given[0], given[1]),)

    def compute(self, xp: Any, node: Node, *given: Any) -> Any:
        """The library's."""
        return xp.matmul(*given)

    def flops(self, node: Node, given: Given, made: Sequence[Tensor]) -> float:
        """Two for each element of a row and each element of the result."""
        assert given[0] is not None
        return 2.0 * made[0].size * given[0].shape[-1]


class Gemm(Operator):
    """alpha * A * B + beta * C, A and B transposed or not, C broadcast."""

    name = "Gemm"
    versions = (7, 9, 11, 13)
    dtypes = NUMBERS

    def shapes(self, node: Node, given: Given) -> tuple[Shape, ...]:
        """[rows of A, columns of B]."""
        a, b = given[:2]
        assert a is not None
        assert b is not None
        if len(a.shape) != 2 or len(b.shape) != 2:
            raise ShapeError(f"A {list(a.shape)}, B {list(b.shape)}; accepted are matrices")
        rows, inner = reversed(a.shape) if node.attributes["transA"] else a.shape
        depth, columns = reversed(b.shape) if node.attributes["transB"] else b.shape
        if inner != depth:
            raise ShapeError(f"A {list(a.shape)}, B {list(b.shape)}: {inner} columns, {depth} rows")
        c = given[2] if len(given) > 2 else None
        if c is not None and broadcast(c.shape, (rows, columns)) != (rows, columns):
            raise ShapeError(f"C {list(c.shape)}; accepted are what broadcasts to a result")
        return ((rows, columns),)

    def compute(self, xp: Any, node: Node, *given: Any) -> Any:
        """The library's product."""
        a, b, c = (*given, None)[:3]
        alpha, beta = node.attributes["alpha"], node.attributes["beta"]
        a = xp.permute_dims(a, (1, 0)) if node.attributes["transA"] else a
        b = xp.permute_dims(b, (1, 0)) if node.attributes["transB"] else b
        result = xp.matmul(a, b)
        result = result if alpha == 1 else alpha * result
        return result if c is None else result + (c if beta == 1 else beta * c)

    def flops(self, node: Node, given: Given, made: Sequence[Tensor]) -> float:
        """Two for each element of a row and each element of the result."""
        assert given[0] is not None
        inner = given[0].shape[0 if node.attributes["transA"] else 1]
        return 2.0 * made[0].size * inner


class Einsum(Operator):
    """Sums of products over the letters that the result does not have."""

    name = "Einsum"
    versions = (12, 28)
    dtypes = NUMBERS

    def shapes(self, node: Node, given: Given) -> tuple[Shape, ...]:
        """The sizes of the result's letters."""
        sizes, result, wide = _letters(node, given)
        found: list[int] = []
        for letter in result:
            found += wide if letter == "." else (sizes[letter],)
        return (tuple(found),)

    def compute(self, xp: Any, node: Node, *given: Any) -> Any:
        """The library's."""
        return xp.einsum(node.attributes["equation"].replace(" ", ""), *given)

    def flops(self, node: Node, given: Given, made: Sequence[Tensor]) -> float:
        """A multiplication for each input, and an addition less, for all letters' sizes."""
        sizes, _, wide = _letters(node, given)
        return float(len(given) * math.prod(sizes.values()) * math.prod(wide))


def product_shape(a: Tensor | None, b: Tensor | None) -> Shape:
    """The sizes of a product of stacks of matrices. Raises ShapeError."""
    assert a is not None
    assert b is not None
    if not a.shape or not b.shape:
        raise ShapeError(f"{list(a.shape)} times {list(b.shape)}; accepted are vectors and more")
    left = a.shape if len(a.shape) > 1 else (1, *a.shape)
    right = b.shape if len(b.shape) > 1 else (*b.shape, 1)
    if left[-1] != right[-2]:
        raise ShapeError(
            f"{list(a.shape)} times {list(b.shape)}: {left[-1]} columns, {right[-2]} rows"
        )
    rows = left[-2:-1] if len(a.shape) > 1 else ()
    columns = right[-1:] if len(b.shape) > 1 else ()
    return (*broadcast(left[:-2], right[:-2]), *rows, *columns)


def _letters(node: Node, given: Given) -> tuple[dict[str, int], str, Shape]:
    """The size of each letter, the result's letters ("." for an ellipsis), an ellipsis' sizes."""
    equation = node.attributes["equation"].replace(" ", "").replace("...", ".")
    sources, arrow, result = equation.partition("->")
    terms = sources.split(",")
    if len(terms) != len(given):
        raise ShapeError(f"equation {equation!r} has {len(terms)} terms for {len(given)} inputs")
    sizes: dict[str, int] = {}
    wide: Shape = ()
    for term, tensor in zip(terms, given, strict=True):
        assert tensor is not None
        before, dot, behind = term.partition(".")
        many = len(tensor.shape) - len(before) - len(behind)
        if many < 0 or (many and not dot):
            raise ShapeError(f"term {term!r} of {list(tensor.shape)}; accepted is a letter an axis")
        wide = broadcast(wide, tensor.shape[len(before) : len(before) + many])
        ends = (*tensor.shape[: len(before)], *tensor.shape[len(before) + many :])
        for letter, size in zip(before + behind, ends, strict=True):
            if sizes.setdefault(letter, size) not in (size, 1) and size != 1:
                raise ShapeError(f"letter {letter!r} is {sizes[letter]} and {size}")
            sizes[letter] = max(sizes[letter], size)
    if not arrow:
        once = sorted(c for c in set(sources) - {",", "."} if sources.count(c) == 1)
        result = ("." if "." in sources else "") + "".join(once)
    return sizes, result, wide


OPERATORS = (Einsum(), Gemm(), MatMul())
