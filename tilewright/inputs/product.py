"""Checks one product, in the same way for every place that its arrays may lie in.

    arguments -> place and views -> dtype, shape, device -> result -> bias -> overlap -> Product

What runs it: `calls/dense_run_host.py` by a plan, `calls/dense_run_gpu.py` by engines.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from tilewright.arrays.place import Place
from tilewright.arrays.views import View
from tilewright.errors import OperandError
from tilewright.facts.device import Device
from tilewright.facts.scalars import Scalars
from tilewright.inputs.checks import (
    broadcast_view,
    check_shape,
    checked_activation,
    checked_precision,
    checked_scalars,
    checked_sums,
    common_dtype,
    contiguous,
    matrix_view,
    output_matrix,
    result_shape,
)
from tilewright.inputs.overlap import check_apart, check_overlap

# Of a call's arguments by name: their place and their views.
PlaceAndViews = Callable[[Mapping[str, Any]], tuple[Place, dict[str, View]]]


@dataclass(frozen=True, slots=True)
class Product:
    """What is computed, on what and where; nothing is written yet.

    views    a [..., m, k], b [..., k, n], c [..., m, n] of the same leading dimensions, and bias
             [n] where there is one
    dtype    that of all of these; `sums` is that of the sums where the engine has a choice
    result   what the caller gets, and `shape` its shape: dimensions of vectors dropped
    """

    place: Place
    device: Device
    views: dict[str, View]
    scalars: Scalars
    activation: str
    dtype: str
    precision: str
    sums: str
    kernel: str | None
    shape: tuple[int, ...]
    result: Callable[[], Any]


def checked(
    place_and_views: PlaceAndViews,
    a: Any,
    b: Any,
    *,
    out: Any = None,
    alpha: complex = 1.0,
    beta: complex = 0.0,
    transpose_a: bool = False,
    transpose_b: bool = False,
    bias: Any = None,
    activation: str | None = None,
    device: Device | str | None = None,
    kernel: str | None = None,
    precision: str | None = None,
    accumulate: str | None = None,
) -> Product:
    """Check everything. Arguments and errors are those of `tilewright.matmul`."""
    given = {"a": a, "b": b}
    if out is not None:
        given["out"] = out
    if bias is not None:
        given["bias"] = bias
    place, seen = place_and_views(given)
    dtype = common_dtype(seen)
    scalars = checked_scalars(alpha, beta, out, dtype)
    activation = checked_activation(activation, dtype)
    precision = checked_precision(precision, dtype, place.precisions)
    sums = checked_sums(accumulate, dtype)
    vectors = seen["a"].ndim == 1, seen["b"].ndim == 1
    left = matrix_view(seen["a"], transpose_a, row=True)
    right = matrix_view(seen["b"], transpose_b, row=False)
    shape = result_shape(left, right, place.most)
    public = shape[:-2] + (() if vectors[0] else shape[-2:-1]) + (() if vectors[1] else shape[-1:])
    chosen = place.device(device)
    if out is None:
        c, result = place.new(shape, public, dtype)
    else:
        _check_out(seen["out"], public)
        c, result = output_matrix(seen["out"], shape, vectors), lambda: out
    views = {"a": broadcast_view(left, shape), "b": broadcast_view(right, shape), "c": c}
    if bias is not None:
        check_shape("bias", seen["bias"].shape, shape[-1:], ", one a column")
        views["bias"] = contiguous(seen["bias"], "bias")
    check_overlap(views)
    return Product(
        place,
        chosen,
        views,
        scalars,
        activation,
        dtype,
        precision,
        sums,
        kernel,
        public,
        result,
    )


def _check_out(out: View, public: tuple[int, ...]) -> None:
    """Raise where the result cannot be written there."""
    check_shape("out", out.shape, public)
    if out.host and not out.memory.flags.writeable:
        raise OperandError("out: is read-only; accepted is a writable array")
    check_apart("out", public, out.strides)
