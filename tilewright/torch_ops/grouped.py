"""`tilewright.grouped_matmul` of tensors that torch must see: differentiable in every way.

Everything is one `lists.products` between torch's own views and functions. What is written in place
(`out`) has no gradient and says so; where nothing follows it, it is left to `tilewright.calls`.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter
from typing import Any

import torch
from torch import Tensor

from tilewright.calls import grouped as calls
from tilewright.calls import grouped_quick_host as quick
from tilewright.calls.grouped_quick_tensors import loop
from tilewright.errors import ArgumentError, OperandError, OverlapError, ShapeError
from tilewright.inputs import tensor_checks as checks
from tilewright.inputs.batch_place_tensors import arrays_of
from tilewright.inputs.matrices import bias_vectors
from tilewright.inputs.ragged_batch import RaggedBatch
from tilewright.inputs.sums import checked_into
from tilewright.inputs.tensors import check_tensor, tensors_of
from tilewright.torch_ops import batches, dense, down, lists, recorded
from tilewright.torch_ops.eager import is_eager, is_followed
from tilewright.wording import short

_facts = attrgetter("dtype", "device", "layout", "is_nested")


def grouped_matmul(
    a: Any,
    b: Any,
    out: Any = None,
    *,
    bias: Any = None,
    alpha: Any = 1.0,
    beta: Any = 0.0,
    transpose_a: Any = False,
    transpose_b: Any = False,
    activation: str | None = None,
    into: Any = None,
    order: str = "auto",
    device: Any = None,
    kernel: str | None = None,
    precision: str | None = None,
) -> Any:
    """Arguments, results and errors are those of `tilewright.grouped_matmul`."""
    options = {
        "transpose_a": transpose_a,
        "transpose_b": transpose_b,
        "activation": activation,
        "alpha": alpha,
        "beta": beta,
    }
    is_plain = out is into is precision is device is kernel is None and _is_plain(options)
    if is_plain:
        found = loop(a, b, bias)
        if found is not None:
            return found
    how = (precision, order, getattr(device, "id", device), kernel)
    turned = (transpose_a, transpose_b)
    if (
        out is into is None
        and type(beta) is float
        and beta == 0.0
        and set(map(type, turned)) == {bool}
    ):
        made = recorded.products(a, b, bias, turned, alpha, how, lists.products)
        if made is not None:
            function = checks.checked_function(activation)
            return [function(one) for one in made] if function else made
    given = [value for part in (a, b, bias, out) for value in tensors_of(part)]
    if out is not None:
        checks.check_out(beta, *given)
    plain = (
        not is_followed(*given) and is_eager(*given) and not down.is_torchs(given, (None, *how[2:]))
    )
    if plain and (out is not None or _is_mixed(a, b, bias)):
        made = _at_once(a, b) if is_plain and order == "auto" and bias is None else None
        if made is not None:
            return made
        asked = {"order": order, "device": device, "kernel": kernel, "precision": precision}
        more = {**options, "into": into, "bias": bias}
        return calls.grouped_matmul(a, b, out, watched=True, **asked, **more)
    if into is not None:
        return _added(a, b, out, bias, into, how, **options)
    return _watched(a, b, out, bias, how, **options)


def _watched(
    a: Any,
    b: Any,
    out: Any,
    bias: Any,
    how: lists.How,
    *,
    alpha: Any,
    beta: Any,
    transpose_a: Any,
    transpose_b: Any,
    activation: str | None,
) -> Any:
    """A list of products that something looks at, from views and functions that torch knows."""
    function = checks.checked_function(activation)
    left, right = _matrices(a, "a"), _matrices(b, "b")
    if out is not None:
        _check_each_once(_matrices(out, "out"))
    count = len(left)
    if len(right) != count:
        raise ShapeError(f"b: has {len(right)} matrices; must have {count}, as many as a")
    if not count:
        return out if out is not None else [] if isinstance(a, list | tuple) else a
    keep = checks.each(beta, count, "beta", float)
    if out is None and any(keep):
        raise ArgumentError(f"beta={short(beta)}: needs out=, the matrices that it scales")
    biases = [None] * count if bias is None else list(bias_vectors(bias, count))
    first = left[0]
    if out is None:
        left, right, biases = lists.cast_lists(left, right, biases)
    if left[0] is not first and left[0].dtype != torch.float32:
        how = (None, *how[1:])  # a precision is float32's, which autocast has just left
    left, right = _fitting(left, right, biases, (transpose_a, transpose_b))
    checks.check_precision(how[0], left[0])
    found = lists.products(left, right, biases, checks.each(alpha, count, "alpha", float), how)
    if out is None:
        found = [function(one) for one in found] if function else found
        return batches.packed(found) if isinstance(a, RaggedBatch) else found
    for i, (target, made) in enumerate(zip(_matrices(out, "out"), found, strict=True)):
        dense.put(target, f"out[{i}]", made, keep[i], function)
    return out


def _added(
    a: Any,
    b: Any,
    out: Any,
    bias: Any,
    into: Any,
    how: lists.How,
    *,
    activation: Any,
    **options: Any,
) -> Any:
    """Several products to a result, added in the caller's order by torch's own sums."""
    if out is not None:
        raise ArgumentError("into: with out= of such tensors; accepted is out=None")
    function = checks.checked_function(activation)
    found = list(_watched(a, b, None, None, how, activation=None, **options))
    index = checked_into(into, len(found), None).tolist()
    sums: list[Any] = [None] * (max(index, default=-1) + 1)
    for i, (place, made) in enumerate(zip(index, found, strict=True)):
        before = sums[place]
        if before is not None and before.shape != made.shape:
            raise ShapeError(
                f"into[{i}]={place}: product {i} is {made.shape[0]} x {made.shape[1]}; must be"
                f" {before.shape[0]} x {before.shape[1]}, as what it is added to"
            )
        sums[place] = made if before is None else before + made
    for i, vector in enumerate(() if bias is None else bias_vectors(bias, len(sums))):
        if vector is not None:
            checks.check_vector(vector, f"bias[{i}]", sums[i].shape[1], sums[i])
            sums[i] = sums[i] + vector
    sums = [function(one) for one in sums] if function else sums
    return batches.packed(sums) if sums and isinstance(a, RaggedBatch) else sums


def _matrices(values: Any, name: str) -> list[Tensor]:
    """Matrices of one dtype and device, checked; those of a batch are views."""
    if isinstance(values, RaggedBatch):
        return batches.unpacked(values, name)
    if not isinstance(values, list | tuple):
        raise OperandError(
            f"{name}={type(values).__name__}: accepted are a list of matrices and a RaggedBatch"
        )
    for i, value in enumerate(values):
        if not isinstance(value, Tensor) or value.is_nested:
            check_tensor(value, f"{name}[{i}]")
        if value.dim() != 2:
            raise ShapeError(f"{name}[{i}].shape={tuple(value.shape)}: must have two dimensions")
    return list(values)


def _check_each_once(out: list[Tensor]) -> None:
    """Raise OverlapError where a result is named again: its products would replace each other."""
    if torch.compiler.is_compiling():
        again = [i for i, one in enumerate(out) if any(one is other for other in out[:i])]
    else:
        places = [(one.untyped_storage()._cdata, one.storage_offset()) for one in out]
        first = {place: i for i, place in reversed(list(enumerate(places)))}
        again = [i for i, one in enumerate(out) if first[places[i]] < i and one.numel()]
    if again:
        raise OverlapError(
            f"out[{again[0]}]: is an earlier one again, and something of torch's looks at these"
            " tensors; accepted are out=None with into=, and an out whose tensors lie apart"
        )


def _check_alike(a: Sequence[Tensor], b: Sequence[Tensor]) -> None:
    if not torch.compiler.is_compiling() and len({*map(_facts, a), *map(_facts, b)}) == 1:
        check_tensor(a[0], "a[0]")
        return  # in loops of C: one after another takes 2 µs a problem
    for name, values in (("a", a), ("b", b)):
        for i, value in enumerate(values):
            checks.check_like(value, f"{name}[{i}]", a[0], "a[0]")


def _fitting(
    a: list[Tensor], b: list[Tensor], biases: Sequence[Any], turned: tuple[Any, Any]
) -> tuple[list[Tensor], list[Tensor]]:
    """The factors, transposed where asked for, once all of them and the biases fit each other."""
    _check_alike(a, b)
    left = _turned(a, checks.each(turned[0], len(a), "transpose_a", bool))
    right = _turned(b, checks.each(turned[1], len(a), "transpose_b", bool))
    for i, (one, two) in enumerate(zip(left, right, strict=True)):
        if one.shape[1] != two.shape[0]:
            raise ShapeError(
                f"b[{i}]: has {two.shape[0]} rows; must have {one.shape[1]}, the columns of a[{i}]"
            )
    for i, vector in enumerate(biases):
        if vector is not None:
            checks.check_vector(vector, f"bias[{i}]", right[i].shape[1], left[0])
    return left, right


def _turned(values: list[Tensor], which: Sequence[bool]) -> list[Tensor]:
    return [value.t() if turn else value for value, turn in zip(values, which, strict=True)]


def _at_once(a: Any, b: Any) -> list[Any] | None:
    """Plain products of lists in which other kinds of arrays stand beside tensors, if few."""
    if not (isinstance(a, list | tuple) and isinstance(b, list | tuple) and a):
        return None
    found = quick.at_once(arrays_of(a, "a"), arrays_of(b, "b"))
    if found is None:
        return None
    pairs = zip(a, found, strict=True)
    return [torch.from_numpy(made) if isinstance(one, Tensor) else made for one, made in pairs]


def _is_plain(options: Any) -> bool:
    """Whether nothing is asked of a batch but its products."""
    alpha, beta = options["alpha"], options["beta"]
    return (
        options["activation"] is None
        and type(alpha) is type(beta) is float
        and alpha == 1.0
        and beta == 0.0
        and options["transpose_a"] is options["transpose_b"] is False
    )


def _is_mixed(*parts: Any) -> bool:
    """Whether something is neither a tensor nor a batch of one."""

    def is_tensor(value: Any) -> bool:
        return value is None or isinstance(value, Tensor)

    batches_ = [part.flat for part in parts if isinstance(part, RaggedBatch)]
    members = [value for part in parts if isinstance(part, list | tuple) for value in part]
    return not all(map(is_tensor, [*batches_, *members]))
