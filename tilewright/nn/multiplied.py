"""A network's products as what engines of products are asked: views of values, by their steps.

    node, sizes, how values lie   --work_of-->   ProductWork     before anything is allocated
    node, arrays                  --operands-->  ProductOperands

Both go by the same views: vectors are matrices of one row or column, axes are taken in the order of
a Transpose, leading dimensions are broadcast.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from tilewright.arrays.array import NDArray
from tilewright.engines.conv import Format
from tilewright.engines.product import Matrices, ProductOperands, ProductWork
from tilewright.facts.dtypes import ITEMSIZE
from tilewright.nn.graph import Node, Tensor
from tilewright.nn.operators.product import Ends

# For steps alone: NumPy has no bfloat16.
_SIZED = {name: np.dtype(f"V{size}") for name, size in ITEMSIZE.items()}


def work_of(
    node: Node, tensors: Mapping[str, Tensor], lies: Callable[[str], Format], *, fixed: bool
) -> ProductWork | None:
    """What engines are asked; None where a size is 0 or elements are no real numbers.

    lies    how a value lies, or will
    fixed   whether B is a constant
    """
    ends: Ends = node.attributes["ends"]
    out = tensors[node.outputs[0]]
    names = (*node.inputs[:2], node.outputs[0])
    if any(tensors[name].dtype not in ITEMSIZE or not tensors[name].size for name in names):
        return None
    left, right = (_shown(tensors[name], lies(name)) for name in names[:2])
    a, b, c = map(_laid, viewed(np, node, left, right, _shown(out, "channels_first")))
    how = (ends.bias, ends.alpha, ends.beta, ends.activation)
    return ProductWork(a, b, c, out.dtype, *how, fixed)


def viewed(xp: Any, node: Node, a: Any, b: Any, out: Any) -> tuple[Any, Any, Any]:
    """A, B and the result as matrices [..., rows, columns] of the same leading dimensions."""
    turns = node.attributes["ends"].turns
    a, b = (x if t is None else xp.permute_dims(x, t) for x, t in zip((a, b), turns, strict=True))
    lead = tuple(out.shape)[: out.ndim - (a.ndim > 1) - (b.ndim > 1)]
    a, b = a if a.ndim > 1 else a[None, :], b if b.ndim > 1 else b[:, None]
    shape = (*lead, a.shape[-2], b.shape[-1])
    a, b = (xp.broadcast_to(x, (*lead, *x.shape[-2:])) for x in (a, b))
    return a, b, xp.reshape(out, shape)


def operands(xp: Any, node: Node, given: list[Any], out: Any) -> ProductOperands:
    """Arrays as the work has them; `given` in the order of the node's inputs."""
    ends: Ends = node.attributes["ends"]
    a, b, *rest = given
    a, b, c = viewed(xp, node, a, b, out)
    bias = xp.reshape(rest[0], (-1,)) if ends.bias else None
    return ProductOperands(a, b, c, bias, rest[-1] if ends.added else None)


def _laid(view: NDArray) -> Matrices:
    return Matrices(view.shape, tuple(step // view.itemsize for step in view.strides))


def _shown(tensor: Tensor, format_: Format) -> NDArray:
    """An array that has a value's sizes and steps, and one element."""
    one = np.empty(1, _SIZED[tensor.dtype])
    last = format_ == "channels_last"
    sizes = [tensor.shape[axis] for axis in (0, 2, 3, 1)] if last else list(tensor.shape)
    steps = [one.itemsize] * len(sizes)
    for axis in range(len(sizes) - 2, -1, -1):
        steps[axis] = steps[axis + 1] * sizes[axis + 1]
    found: NDArray = np.lib.stride_tricks.as_strided(one, sizes, steps)
    return found.transpose(0, 3, 1, 2) if last else found
