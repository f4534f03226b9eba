"""What products of tensors take: checked once here, one clear error each, before anything is made.

The checks read shapes, dtypes and devices only, so that compilers and fake tensors pass them too.
"""

from __future__ import annotations

from functools import partial
from numbers import Complex
from typing import Any

import torch
from torch import Tensor

from tilewright.errors import ArgumentError, DtypeError, OperandError, ShapeError
from tilewright.facts.device import Device
from tilewright.inputs.batch_place import check_none
from tilewright.inputs.checks import (
    PRECISIONS,
    check_pair,
    check_shape,
    checked_activation,
    checked_factor,
    checked_flag,
    checked_name,
    checked_precision,
)
from tilewright.inputs.devices import resolve
from tilewright.inputs.tensors import check_tensor, dtype_of, is_differentiated
from tilewright.wording import short

_FUNCTIONS = {"none": None, "relu": torch.relu, "gelu": torch.nn.functional.gelu}


def check_like(value: Any, name: str, a: Tensor, other: str = "a") -> None:
    """Raise unless this is a tensor of a's dtype on a's device."""
    check_tensor(value, name)
    if value.dtype != a.dtype:
        raise DtypeError(
            f"{name}.dtype={dtype_of(value)!r}: must equal {other}.dtype={dtype_of(a)!r}"
        )
    if value.device != a.device:
        raise OperandError(
            f"{name}.device={str(value.device)!r}: {other} lies on {str(a.device)!r}"
        )


def matrices(
    a: Any, b: Any, bias: Any, out: Any, precision: str | None, transposes: tuple[Any, Any]
) -> tuple[Tensor, Tensor]:
    """The matrices of a product, [..., m, k] and [..., k, n], once all of its tensors fit."""
    if not isinstance(a, Tensor) and not isinstance(b, Tensor):
        name, other = ("out", out) if bias is None else ("bias", bias)
        raise OperandError(
            f"{name}={type(other).__name__}: requires a gradient or lies elsewhere than"
            f" a={type(a).__name__}; accepted are arrays of one kind in a call"
        )
    check_tensor(a, "a")
    for name, value in (("b", b), ("bias", bias), ("out", out)):
        if value is not None or name == "b":
            check_like(value, name, a)
    left, right = _matrix(a, "a", transposes[0]), _matrix(b, "b", transposes[1])
    check_precision(precision, a)
    check_pair(left.shape, right.shape)
    if bias is not None:
        check_shape("bias", bias.shape, right.shape[-1:], ", one a column")
    return left, right


def _matrix(value: Tensor, name: str, transpose: Any) -> Tensor:
    """At least two dimensions: a as a row, b as a column where it is a vector."""
    transpose = checked_flag(transpose, f"transpose_{name}")
    if value.dim() == 0:
        raise ShapeError(f"{name}.shape=(): accepted are one dimension or more")
    if not torch.compiler.is_compiling():
        value = value.resolve_neg()  # torch's BLAS conjugates by itself
    if value.dim() == 1:
        return value.unsqueeze(0 if name == "a" else 1)
    return value.mT if transpose else value


def check_left(precision: Any) -> None:
    """Raise where autocast leaves float32 and this is no precision of float32's to leave there."""
    if precision is not None:
        checked_name("precision", precision, PRECISIONS)


def check_processors(device: Any, kernel: Any) -> None:
    """Raise where lists of a processor's tensors have no such option, as NumPy's have none.

    A device has to be one that there is; torch's BLAS multiplies whichever is named.
    """
    check_none(kernel=kernel)
    if device is not None and not isinstance(device, Device | str):
        resolve(device)  # raises


def check_precision(precision: str | None, a: Tensor) -> None:
    """Raise where this tensor's products have no such precision."""
    if precision is not None:
        accepted = () if a.device.type == "cpu" else PRECISIONS
        checked_precision(precision, dtype_of(a), accepted)


def each(value: Any, count: int, name: str, kind: type, dtype: str = "float32") -> list[Any]:
    """One for all problems or one each, as a list; numbers are complex where the dtype is."""
    # A number that a compiler does not know has no attribute to be asked for.
    known = isinstance(value, (list, tuple, Complex))
    values = value if known else _numbers(value, name)
    number = partial(checked_factor, dtype=dtype)
    check: Any = checked_flag if kind is bool else number
    if not isinstance(values, list | tuple):
        return [check(values, name)] * count
    if len(values) != count:
        raise ArgumentError(f"{name}: has {len(values)}; must have {count}, one a problem")
    return [check(one, f"{name}[{i}]") for i, one in enumerate(values)]


def _numbers(value: Any, name: str) -> Any:
    """What an array or a tensor has, as Python's numbers; anything else as it is."""
    if isinstance(value, Tensor) and is_differentiated(value):
        raise OperandError(
            f"{name}: requires a gradient or has a tangent, which would be lost; accepted are its"
            " .detach(), and a or b times it"
        )
    try:
        return getattr(value, "tolist", lambda: value)()
    except RuntimeError:  # tensors that are sparse or have no memory
        raise ArgumentError(
            f"{name}={short(value)}: accepted are a number or one a problem"
        ) from None


def checked_function(activation: str | None, dtype: str = "float32") -> Any:
    """torch's function for an activation; None for none."""
    return _FUNCTIONS[checked_activation(activation, dtype)]


def check_vector(value: Any, name: str, n: int, a: Tensor) -> None:
    """Raise unless this is a bias for n columns."""
    check_like(value, name, a)
    check_shape(name, value.shape, (n,), ", one a column")


def check_out(beta: Any, *values: Any) -> None:
    """Raise where autograd follows `out`, or what it would be made of."""
    if is_differentiated(*values):
        raise OperandError(
            "out: an operand, or out itself, requires a gradient or has a tangent, which are lost"
            f" in memory that is written in place (beta={short(beta)}); accepted are out=None (add"
            " beta's matrix to the result), operands that are .detach()ed, and torch.no_grad()"
        )
