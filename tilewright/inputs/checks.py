"""Checks of what a caller passed, and views shaped as the kernels want them.

Every function here raises one clear error that names the argument, its value and what would be
accepted, before anything is written.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from numbers import Complex, Real
from typing import Any

import numpy as np

from tilewright.arrays.views import OF_HOST, View, view_host
from tilewright.errors import ArgumentError, DtypeError, OperandError, ShapeError
from tilewright.facts.dtypes import COMPLEX, NARROW, numpys, sums_of
from tilewright.facts.problem import ACTIVATIONS
from tilewright.facts.scalars import Scalars
from tilewright.wording import short

# What `precision` may name beside None, for float32 on a GPU.
PRECISIONS = ("ieee", "tf32", "fp32x")


def checked_number(value: Any, name: str) -> float:
    """A real number as a float."""
    if not isinstance(value, Real) or isinstance(value, bool):
        raise ArgumentError(f"{name}={short(value)}: accepted is a real number")
    try:
        return float(value)
    except OverflowError:
        raise ArgumentError(
            f"{name}={short(value)}: accepted is a real number of at most 1.8e308"
        ) from None


def checked_factor(value: Any, name: str, dtype: str) -> complex:
    """A number that scales matrices of this dtype: complex where they are, else a float."""
    if dtype in COMPLEX and isinstance(value, Complex) and not isinstance(value, Real):
        return complex(value)
    return checked_number(value, name)


def checked_scalars(alpha: Any, beta: Any, out: Any, dtype: str) -> Scalars:
    """alpha and beta as numbers of the dtype; beta other than 0 needs an `out`."""
    scalars = Scalars(checked_factor(alpha, "alpha", dtype), checked_factor(beta, "beta", dtype))
    if scalars.beta != 0 and out is None:
        raise ArgumentError(f"beta={short(beta)}: needs out=, the matrix that it scales")
    return scalars


def checked_flag(value: Any, name: str) -> bool:
    """True or False."""
    if not isinstance(value, (bool, np.bool_)):
        raise ArgumentError(f"{name}={short(value)}: accepted are True and False")
    return bool(value)


def checked_name(argument: str, value: Any, accepted: tuple[str, ...]) -> str:
    """`value`, which must be one of `accepted`."""
    if not isinstance(value, str) or value not in accepted:
        raise ArgumentError(
            f"{argument}={short(value)}: accepted are {', '.join(map(repr, accepted))}"
        )
    return str(value)


def check_options(options: dict[str, Any], accepted: Iterable[str]) -> None:
    """Raise ArgumentError for the first that is none of a call's options."""
    known = list(accepted)
    for name, value in options.items():
        if name not in known:
            shown = short(value)
            raise ArgumentError(f"{name}={shown}: no option here; accepted are {', '.join(known)}")


def checked_activation(activation: Any, dtype: str = "float32") -> str:
    """The name of an activation; "none" for None, the only one of complex numbers."""
    name = checked_name("activation", "none" if activation is None else activation, ACTIVATIONS)
    if name != "none" and dtype in COMPLEX:
        raise ArgumentError(
            f"activation={name!r}: complex numbers are neither above nor below 0; accepted is None"
            f" for {dtype}"
        )
    if name == "gelu" and dtype == "int8":
        raise ArgumentError("activation='gelu': accepted are 'none' and 'relu' for int8")
    return name


def checked_shape(shape: Any) -> tuple[int, ...]:
    """A shape as a tuple of ints from 0 up."""
    sizes = tuple(shape) if isinstance(shape, Iterable) else (shape,)
    for size in sizes:
        if not isinstance(size, int | np.integer) or size < 0:
            raise ShapeError(f"shape={short(shape)}: accepted are whole numbers from 0 up")
    return tuple(int(size) for size in sizes)


def checked_dtype(dtype: Any, name: str = "dtype") -> np.dtype[Any]:
    """One of the supported dtypes, however it was spelled."""
    wanted = numpys(
        str(dtype).removeprefix("torch.") if type(dtype).__module__ == "torch" else dtype
    )
    if wanted is None or wanted.name not in OF_HOST or not wanted.isnative:
        raise DtypeError(f"{name}={short(str(dtype))}: accepted are {', '.join(OF_HOST)}")
    return wanted


def checked_batch_dtype(dtype: Any) -> str:
    """The name of a dtype of which the host multiplies lists."""
    found = numpys(dtype)
    named = str(dtype).removeprefix("torch.") if found is None else found.name
    if named in NARROW:
        return named
    try:
        return checked_dtype(dtype).name
    except DtypeError:
        accepted = ", ".join((*OF_HOST, *NARROW))
        raise DtypeError(f"dtype={short(str(dtype))}: accepted are {accepted}") from None


def common_dtype(seen: Mapping[str, View]) -> str:
    """The name of the dtype that all of these share; `a` comes first."""
    dtype = seen["a"].dtype
    for name, one in seen.items():
        if one.dtype != dtype:
            raise DtypeError(f"{name}.dtype={one.dtype.name!r}: must equal a.dtype={dtype.name!r}")
    return dtype.name


def checked_precision(precision: str | None, dtype: str, accepted: tuple[str, ...]) -> str:
    """ "ieee" for None. Only float32 has a choice, and only on a GPU."""
    if precision is None:
        return "ieee"
    if dtype != "float32" or not accepted:
        where = "" if accepted else " off a GPU"
        raise ArgumentError(
            f"precision={short(precision)}: accepted is None for {dtype}{where}, the dtype's own"
            " IEEE arithmetic"
        )
    return checked_name("precision", precision, accepted)


def check_is_tensor(value: Any, name: str) -> None:
    """Raise where an argument is no torch tensor, which need not be loaded for that."""
    if not hasattr(value, "data_ptr"):
        raise OperandError(f"{name}={type(value).__name__}: accepted are torch tensors")


def check_invariant(value: Any) -> None:
    """Raise where `batch_invariant` is neither True nor False."""
    if not isinstance(value, bool):
        raise ArgumentError(f"batch_invariant={short(value)}: accepted are True and False")


def checked_sums(accumulate: str | None, dtype: str) -> str:
    """The dtype of sums: float32 for halves unless "fp16" is allowed."""
    if accumulate is None:
        return sums_of(dtype)
    if dtype != "float16" or not isinstance(accumulate, str) or accumulate != "fp16":
        shown = "None or 'fp16'" if dtype == "float16" else f"None for {dtype}"
        raise ArgumentError(f"accumulate={short(accumulate)}: accepted is {shown}")
    return "float16"


def matrix_view(operand: View, transpose: Any, *, row: bool) -> View:
    """A view of at least two dimensions: `a` as a row, `b` as a column where it is a vector."""
    name = "a" if row else "b"
    transpose = checked_flag(transpose, f"transpose_{name}")
    if operand.ndim == 0:
        raise ShapeError(f"{name}.shape=(): accepted are one dimension or more")
    if operand.ndim > 1:
        return operand.swapped if transpose else operand
    (size,), (step,) = operand.shape, operand.strides
    memory = operand.memory
    if operand.host:
        memory = memory[np.newaxis, :] if row else memory[:, np.newaxis]
    shape = (1, size) if row else (size, 1)
    strides = (size * step, step) if row else (step, 1)
    return operand.laid(memory, shape, strides)


def check_shape(name: str, shape: Sequence[int], wanted: Sequence[int], why: str = "") -> None:
    """Raise ShapeError where an argument has another shape than is wanted."""
    if tuple(shape) != tuple(wanted):
        raise ShapeError(f"{name}.shape={tuple(shape)}: must be {tuple(wanted)}{why}")


def check_pair(a: Sequence[int], b: Sequence[int]) -> None:
    """Raise ShapeError unless matrices of these shapes, [..., m, k] and [..., k, n], multiply."""
    if a[-1] != b[-2]:
        raise ShapeError(
            f"b.shape={tuple(b)}: its {b[-2]} rows must equal the {a[-1]} columns of"
            f" a.shape={tuple(a)} (after transposes)"
        )
    for one, two in zip(reversed(a[:-2]), reversed(b[:-2]), strict=False):
        if one != two and one != 1 and two != 1:
            raise ShapeError(
                f"b.shape={tuple(b)}: leading dimensions {tuple(b[:-2])} do not broadcast with"
                f" {tuple(a[:-2])} of a"
            )


def result_shape(a: View, b: View, most: int | None) -> tuple[int, ...]:
    """[..., m, n], vectors still as matrices; no size of a matrix is over `most`."""
    check_pair(a.shape, b.shape)
    sizes = a.shape[-2], b.shape[-1], a.shape[-1]
    if most is not None and max(sizes) > most:
        raise ShapeError(
            f"a, b: m, n and k are {', '.join(map(str, sizes))}; accepted are sizes from 0 to"
            " 2^31 - 64"
        )
    leading = a.shape[:-2] or b.shape[:-2]
    if a.ndim > 2 and b.ndim > 2:
        leading = np.broadcast_shapes(leading, b.shape[:-2])
    return (*leading, *sizes[:2])


def output_matrix(c_view: View, shape: tuple[int, ...], vectors: tuple[bool, bool]) -> View:
    """`out` with the dimensions that vectors dropped put back."""
    if not any(vectors):
        return c_view
    strides, memory = list(c_view.strides), c_view.memory
    if vectors[1]:
        strides.append(1)
    if vectors[0]:
        strides.insert(len(strides) - 1, shape[-1])
    if c_view.host:
        memory = np.lib.stride_tricks.as_strided(
            memory, shape, [step * c_view.dtype.itemsize for step in strides]
        )
    return c_view.laid(memory, shape, tuple(strides))


def broadcast_view(operand: View, shape: tuple[int, ...]) -> View:
    """Leading dimensions as the result's; repeated ones have stride 0."""
    leading = shape[:-2]
    if operand.shape[:-2] == leading:
        return operand
    missing = len(leading) - (operand.ndim - 2)
    old = ((1,) * missing + operand.shape)[:-2]
    steps = ((0,) * missing + operand.strides)[:-2]
    strides = tuple(
        0 if before == 1 and after != 1 else step
        for before, after, step in zip(old, leading, steps, strict=True)
    )
    sizes = (*leading, *operand.shape[-2:])
    memory = np.broadcast_to(operand.memory, sizes) if operand.host else operand.memory
    return operand.laid(memory, sizes, (*strides, *operand.strides[-2:]))


def contiguous(vector: View, name: str) -> View:
    """The vector without gaps: copied on the host. Raises OperandError on a device."""
    if vector.host:
        return view_host(np.ascontiguousarray(vector.memory))
    if vector.shape[0] > 1 and vector.strides != (1,):
        raise OperandError(f"{name}.strides={vector.strides}: must be contiguous on a device")
    return vector
