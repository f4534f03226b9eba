"""Finds element types, sizes and known contents of a graph's values before anything is computed.

types    every value's element type, from the inputs' alone: needs no sizes
tensors  every value's sizes for inputs of given sizes; small values that follow from constants and
         sizes (what is passed to Reshape, say) are computed on the way, as sizes depend on them
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np

from tilewright.arrays.array import NDArray
from tilewright.errors import DtypeError, ShapeError, TilewrightError
from tilewright.nn import operators
from tilewright.nn.evaluate import computed
from tilewright.nn.graph import Graph, Node, Shape, Tensor
from tilewright.nn.operators.base import Operator

_KNOWN = 1 << 16  # elements of a content that is computed while sizes are found
LARGEST = 1 << 48  # elements of a value: beyond, a file claims what no machine holds


def operator_of(node: Node) -> Operator:
    """The operator of a node. Raises DtypeError naming it where there is none."""
    found = operators.find(node.operator, node.version)
    if found is None:
        raise TilewrightError(f"{node.title}: version {node.version} is not implemented")
    return found


def types(
    graph: Graph, look: Callable[[Node, Sequence[str]], Sequence[str]] | None = None
) -> dict[str, str]:
    """The element type of every value. Raises DtypeError naming every node that takes another.

    look: what else is wrong with the types of a node's inputs.
    """
    found = {name: tensor.dtype for name, tensor in graph.constants.items()}
    found.update((source.name, source.dtype) for source in graph.inputs)
    wrong = []
    for node in graph.nodes:
        operator = operator_of(node)
        given = [found[name] if name else "" for name in node.inputs]
        bad = sorted({dtype for dtype in given if dtype and dtype not in operator.dtypes})
        if bad:
            wrong.append(f"{node.title}: {', '.join(bad)}; accepted are {_list(operator.dtypes)}")
        elif look is not None:
            wrong += [f"{node.title}: {text}" for text in look(node, given)]
        made = operator.types(node, given)
        found.update(zip(node.outputs, made, strict=False))
    if wrong:
        raise DtypeError("; ".join(wrong))
    return found


def tensors(graph: Graph, sizes: Mapping[str, Shape]) -> dict[str, Tensor]:
    """What is known of every value for inputs of these sizes, given by the inputs' names.

    Raises ShapeError naming the node whose inputs do not fit each other.
    """
    kinds = types(graph)
    found = dict(graph.constants)
    found.update((s.name, Tensor(tuple(sizes[s.name]), s.dtype)) for s in graph.inputs)
    for node in graph.nodes:
        try:
            found.update(_made(node, [found[n] if n else None for n in node.inputs], kinds))
        except (ValueError, IndexError, ArithmeticError) as error:
            raise ShapeError(f"{node.title}: {error}") from None
    return found


def _made(
    node: Node, given: list[Tensor | None], kinds: Mapping[str, str]
) -> Iterable[tuple[str, Tensor]]:
    """The tensors that a node gives, by name."""
    operator = operator_of(node)
    shapes = [tuple(map(int, shape)) for shape in operator.shapes(node, given)]
    made = [
        Tensor(shape, kinds[name]) if name else None
        for name, shape in zip(node.outputs, shapes, strict=False)
    ]
    for name, tensor in zip(node.outputs, made, strict=True):
        if tensor is not None and (min(tensor.shape, default=0) < 0 or tensor.size >= LARGEST):
            raise ShapeError(
                f"gives {name!r} of {list(tensor.shape)}; accepted are sizes from 0 of fewer than"
                " 2^48 elements in all"
            )
    contents = _contents(operator, node, given, [tensor for tensor in made if tensor])
    for at, (name, tensor) in enumerate(zip(node.outputs, made, strict=True)):
        if tensor is not None:
            content = None if contents is None else contents[at]
            yield name, Tensor(tensor.shape, tensor.dtype, content)


def _contents(
    operator: Operator, node: Node, given: list[Tensor | None], made: list[Tensor]
) -> tuple[NDArray, ...] | None:
    """What the outputs hold, where it is known already and small."""
    if sum(tensor.size for tensor in made) > _KNOWN:
        return None
    known = operator.known(node, given)
    if known is not None:
        return known
    values = [None if tensor is None else tensor.value for tensor in given]
    absent = [t is not None and v is None for t, v in zip(given, values, strict=True)]
    if any(absent) or sum(v.size for v in values if v is not None) > _KNOWN:
        return None
    return tuple(computed(np, operator, node, values, [tensor.dtype for tensor in made]))


def _list(names: Iterable[str]) -> str:
    return ", ".join(names)
