"""`tilewright.grouped_matmul` of tensors that torch must see: differentiable in every way.

Everything is one `lists.products` between torch's own views and functions. What is written in place
(`out`) has no gradient and says so; where nothing follows it, it is left to `tilewright.calls`.

    recorded.products    plain lists on a GPU
    calls.grouped        what nothing follows, with `out` or beside arrays of other kinds
    _watched             all else: cast -> checked (inputs/tensor_lists.py) -> products -> summed
"""

from __future__ import annotations

from typing import Any

from torch import Tensor, bfloat16, float32, int8
from torch.compiler import is_compiling

from tilewright.backends.cuda.machine import addresses
from tilewright.calls import grouped as calls
from tilewright.calls.grouped_quick_tensors import loop
from tilewright.errors import ArgumentError, ShapeError
from tilewright.inputs import tensor_checks as checks
from tilewright.inputs import tensor_lists
from tilewright.inputs.matrices import bias_vectors
from tilewright.inputs.ragged_batch import RaggedBatch
from tilewright.inputs.sums import checked_into
from tilewright.inputs.tensors import dtype_of
from tilewright.torch_ops import dense, down, lists, recorded
from tilewright.torch_ops.eager import is_eager, is_followed
from tilewright.wording import short


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
    how = (precision, order, getattr(device, "id", device), kernel)
    turned = (transpose_a, transpose_b)
    if out is into is None and type(beta) is float and beta == 0.0:
        made = _at_once(a, b, bias, turned, alpha, activation, how)
        if made is not None:
            return made
    given, is_mixed = _tensors(a, b, bias, out)
    options = {"alpha": alpha, "beta": beta, "activation": activation, "into": into, "bias": bias}
    if _is_narrow(given, a, out, kernel):
        options.update(transpose_a=transpose_a, transpose_b=transpose_b, precision=precision)
        options.update(order=order, device=device, kernel=kernel)
        return calls.grouped_matmul(a, b, out, watched=True, **options)
    if all(one.device.type == "cpu" for one in given):
        checks.check_processors(device, kernel)
    if (
        (out is not None or is_mixed)
        and is_eager(*given)
        and not is_followed(*given)
        and not down.is_torchs(given, (None, *how[2:]))
    ):
        options.update(transpose_a=transpose_a, transpose_b=transpose_b, precision=precision)
        options.update(order=order, device=device, kernel=kernel)
        return calls.grouped_matmul(a, b, out, watched=True, **options)
    return _watched(a, b, out, turned, how, **options)


def _is_narrow(given: list[Tensor], a: Any, out: Any, kernel: str | None) -> bool:
    """Whether the host's own kernels multiply these: int8, of which torch's do not, and bfloat16
    where there is an `out` or a kernel is named. Otherwise a loop of torch's is as fast to begin
    with as lists are read."""
    if is_compiling() or not isinstance(a, list | tuple) or not given:
        return False
    if given[0].dtype not in (int8, bfloat16) or given[0].device.type != "cpu":
        return False
    some = given[:1] if addresses.are_alike(given) else given
    if any(one.device.type != "cpu" for one in some):
        return False
    kinds = {one.dtype for one in some}
    own = int8 in kinds or (kinds == {bfloat16} and not (out is None and kernel is None))
    return own and is_eager(*given) and not is_followed(*given)


def _tensors(*parts: Any) -> tuple[list[Tensor], bool]:
    """The tensors of lists and batches, and whether arrays of other kinds stand beside them."""
    lists_ = ([part.flat] if isinstance(part, RaggedBatch) else part for part in parts)
    members = [one for part in lists_ if isinstance(part, list | tuple) for one in part]
    found = [one for one in members if isinstance(one, Tensor)]
    return found, len(found) < sum(one is not None for one in members)


def _at_once(
    a: Any, b: Any, bias: Any, turned: Any, alpha: Any, activation: Any, how: lists.How
) -> list[Any] | None:
    """New products of plain lists the shortest way; None of anything else."""
    if set(map(type, turned)) != {bool}:
        return None
    is_plain = type(alpha) is float and alpha == 1.0 and activation is None
    if is_plain and not any(turned) and how[0] is how[2] is how[3] is None:
        found = loop(a, b, bias)
        if found is not None:
            return found
    made = recorded.products(a, b, bias, turned, alpha, how, lists.products)
    if made is None:
        return None
    function = checks.checked_function(activation)
    return [function(one) for one in made] if function else made


def _places(into: Any, count: int) -> list[int]:
    """The index of the result of every product.

    Right lists of whole numbers stay what they are under a compiler, which cannot follow NumPy's
    arrays; wrong ones break its graph, so that their error is raised as it is.
    """
    if is_compiling() and isinstance(into, list | tuple) and len(into) == count:
        whole = all(type(one) is int for one in into)
        if whole and sorted(set(into)) == list(range(max(into) + 1)):
            return list(into)
    places: list[int] = checked_into(into, count, None).tolist()
    return places


def _watched(
    a: Any,
    b: Any,
    out: Any,
    turned: tuple[Any, Any],
    how: lists.How,
    *,
    alpha: Any,
    beta: Any,
    activation: str | None,
    into: Any,
    bias: Any,
) -> Any:
    """A list of products that something looks at, from views and functions that torch knows."""
    if out is not None and into is not None:
        raise ArgumentError("into: with out= of such tensors; accepted is out=None")
    checks.checked_function(activation)
    left, right = tensor_lists.matrices(a, "a"), tensor_lists.matrices(b, "b")
    count = len(left)
    if len(right) != count:
        raise ShapeError(f"b: has {len(right)} matrices; must have {count}, as many as a")
    if not count:
        return out if out is not None else [] if isinstance(a, list | tuple) else a
    kind = dtype_of(left[0])
    function = checks.checked_function(activation, kind)
    keep = checks.each(beta, count, "beta", float, kind)
    if out is None and any(keep):
        raise ArgumentError(f"beta={short(beta)}: needs out=, the matrices that it scales")
    own = [None] * count if bias is None or into is not None else list(bias_vectors(bias, count))
    targets = [] if out is None else tensor_lists.outputs(out, beta, *left, *right, *own)
    places = None if into is None else _places(into, count)
    first = left[0]
    if out is None:
        left, right, own = lists.cast_lists(left, right, own)
    if left[0] is not first and left[0].dtype != float32:
        checks.check_left(how[0])
        how = (None, *how[1:])  # a precision is float32's, which autocast has just left
    left, right = tensor_lists.fitting(left, right, own, turned, how[0])
    alphas = checks.each(alpha, count, "alpha", float, kind)
    scaled = [dense.scaled(*pair) for pair in zip(left, alphas, strict=True)]
    left, scales = [one for one, _ in scaled], [scale for _, scale in scaled]
    found = lists.products(left, right, own, scales, how)
    for i, (target, made) in enumerate(zip(targets, found, strict=False)):
        dense.put(target, f"out[{i}]", made, keep[i], function)
    if out is not None:
        return out
    if places is not None:
        found = tensor_lists.summed(found, places, bias)
    found = [function(one) for one in found] if function else found
    return tensor_lists.packed(found) if isinstance(a, RaggedBatch) else found
