"""Makes a batch of a checked product on a GPU: addresses, sizes and strides of its matrices.

Leading dimensions are problems of one batch, or more rows where B is the same for all.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tilewright.arrays.addresses import Columns, row_major
from tilewright.arrays.views import View
from tilewright.backends.cuda.work import Ints, Work
from tilewright.facts.limits import MOST
from tilewright.facts.scalars import Scalars
from tilewright.inputs.product import Product


def work_of(product: Product) -> Work:
    """The batch, problems in C order of the leading dimensions."""
    how = (product.activation, product.dtype, product.precision)
    return batch_of(product.views, product.views["a"].memory.ordinal, product.scalars, *how)


def batch_of(
    views: dict[str, View],
    ordinal: int,
    scalars: Scalars,
    activation: str,
    dtype: str,
    precision: str,
) -> Work:
    """The same of views, by the operands' names, on a GPU of this number."""
    views = _folded(views)
    parts: Any = {name: _lead(views[name]) for name in "abc"}
    cols, bias = parts["c"].cols, None
    count, one = len(cols), np.ones_like(cols)
    if "bias" in views:
        vector, item = views["bias"], views["bias"].dtype.itemsize
        bias = row_major(one, cols, one * vector.offset * item, item)
    return Work(
        ordinal=ordinal,
        **parts,
        bias=bias,
        alpha=np.full(count, scalars.alpha),
        beta=np.full(count, scalars.beta),
        activation=activation,
        dtype=dtype,
        precision=precision,
    )


def _folded(views: dict[str, View]) -> dict[str, View]:
    """Leading dimensions as rows, where B is the same for all and A and C lie row after row."""
    a, b, c = views["a"], views["b"], views["c"]
    if len(c.shape) == 2 or any(b.strides[:-2]) or 0 in c.shape:
        return views
    for part in (a, c):
        step = part.shape[-2] * part.strides[-2]
        for size, stride in zip(part.shape[-3::-1], part.strides[-3::-1], strict=True):
            if size > 1 and stride != step:
                return views
            step *= size
    rows = int(np.prod(c.shape[:-1]))
    if rows > MOST:
        return views
    flat = {"a": (rows, a.shape[-1]), "b": b.shape[-2:], "c": (rows, c.shape[-1])}
    return views | {
        name: views[name].laid(views[name].memory, shape, views[name].strides[-2:])
        for name, shape in flat.items()
    }


def _lead(part: View) -> Columns:
    """Where every matrix of an operand lies, leading dimensions unrolled in C order."""
    at: Ints = np.array([part.offset], np.int64)
    for size, step in zip(part.shape[:-2], part.strides[:-2], strict=True):
        at = np.add.outer(at, np.arange(size, dtype=np.int64) * step).reshape(-1)
    one = np.ones(len(at), np.int64)
    item = part.dtype.itemsize
    lies = (*part.shape[-2:], *(step * item for step in part.strides[-2:]))
    return Columns(at * item, *(one * number for number in lies))
