"""`ragged_dot`: what jax.lax.ragged_dot gives, each group multiplied by itself.

    x [t, k]   rows of group 0 .. g-1       w [g, k, n]      -> [t, n]        rows
    gradient of x: rows by w, turned as it lies                -> [t, k]        turned
    gradient of w: x's columns by rows of the pull, a group    -> [g, k, n]     depths

Each of the three is the gradient of the others, so they differentiate as often as asked.
jax.lax.ragged_dot multiplies all rows by all matrices on GPUs where it has no kernel of its own.
"""

from __future__ import annotations

from functools import cache, partial
from importlib.util import find_spec
from typing import Any, NoReturn

import jax
import jax.numpy as jnp
from jax.custom_batching import custom_vmap

from tilewright.errors import ArgumentError, DeviceError, DtypeError, OperandError, ShapeError
from tilewright.jax import tensors
from tilewright.wording import short

_DTYPES = ("float16", "bfloat16", "float32", "float64")
_TF32 = ("tensorfloat32", "TF32_TF32_F32")


def ragged_dot(
    lhs: Any,
    rhs: Any,
    group_sizes: Any,
    precision: Any = None,
    preferred_element_type: Any = None,
    group_offset: Any = None,
) -> jax.Array:
    """out[i] = lhs[i] @ rhs[group of i]; rows behind the last group are zero.

    Under jit and grad, grad of grad too; vmap and jvp raise. On CUDA by the kernels of
    `tilewright.ragged_matmul`, launched on XLA's stream, which takes torch and Triton
    (`tilewright[cuda]`); on processors by `ragged_matmul` itself, which takes torch. Sizes stay on
    the device.

    Args:
        lhs: [t, k], float16, bfloat16, float32 or float64; rows sorted by group.
        rhs: [g, k, n], of lhs's dtype.
        group_sizes: integers [g], how many rows each group has; below zero counts as zero, and what
            runs past the rows is cut off.
        precision: None and whatever `jax.lax.Precision` has are full precision here; float32 is
            rounded to 11 bits on tensor cores by "tensorfloat32" alone.
        preferred_element_type: None, or lhs's dtype.
        group_offset: None.

    Returns: [t, n], of lhs's dtype; halves are summed in float32.

    Raises: ShapeError, DtypeError, ArgumentError (also under vmap), OperandError for what is no
        array; DeviceError where the default back end is neither a processor nor CUDA, or torch is
        not there.
    """
    lhs, rhs = _array(lhs, "lhs"), _array(rhs, "rhs")
    sizes = _array(group_sizes, "group_sizes")
    _check(lhs, rhs, sizes, preferred_element_type, group_offset)
    how = _precision(precision, lhs.dtype)
    _check_place()
    out: jax.Array = _rows(lhs, rhs, _ends(sizes, lhs.shape[0]), how, False)
    return out


def _array(value: Any, name: str) -> jax.Array:
    try:
        return jnp.asarray(value)
    except (TypeError, ValueError) as error:
        raise OperandError(
            f"{name}={short(value)}: accepted is what jax.numpy.asarray takes"
        ) from error


def _ends(sizes: Any, rows: int) -> Any:
    """Where each group ends, int32 [g], none past the rows: sums that int32 cannot have either."""
    if sizes.dtype.itemsize < 4:
        sizes = sizes.astype(jnp.int32)  # has room for the number of rows
    sizes = jnp.clip(sizes, 0, rows).astype(jnp.uint32)
    if len(sizes) * rows < 2**32:
        ends = jnp.cumsum(sizes, dtype=jnp.uint32)
    else:
        ends = jax.lax.associative_scan(lambda x, y: jnp.minimum(x + y, jnp.uint32(rows)), sizes)
    return jnp.minimum(ends, rows).astype(jnp.int32)


@partial(jax.custom_vjp, nondiff_argnums=(3, 4))
def _rows(x: Any, w: Any, ends: Any, how: str, turned: bool) -> Any:
    """x[i] @ w[group of i], or @ w[group of i].T where `turned`."""
    shape = (x.shape[0], w.shape[1 if turned else 2])
    return _called("turned" if turned else "rows", how, shape, x, w, ends)


def _rows_forward(x: Any, w: Any, ends: Any, how: str, turned: bool) -> Any:
    return _rows(x, w, ends, how, turned), (x, w, ends)


def _rows_backward(how: str, turned: bool, kept: Any, pull: Any) -> Any:
    x, w, ends = kept
    of_w = _depths(pull, x, ends, how) if turned else _depths(x, pull, ends, how)
    return _rows(pull, w, ends, how, not turned), of_w, None


_rows.defvjp(_rows_forward, _rows_backward)


@partial(jax.custom_vjp, nondiff_argnums=(3,))
def _depths(x: Any, y: Any, ends: Any, how: str) -> Any:
    """x[rows of g].T @ y[rows of g] for each group."""
    shape = (ends.shape[0], x.shape[1], y.shape[1])
    return _called("depths", how, shape, x, y, ends)


def _depths_forward(x: Any, y: Any, ends: Any, how: str) -> Any:
    return _depths(x, y, ends, how), (x, y, ends)


def _depths_backward(how: str, kept: Any, pull: Any) -> Any:
    x, y, ends = kept
    return _rows(y, pull, ends, how, True), _rows(x, pull, ends, how, False), None


_depths.defvjp(_depths_forward, _depths_backward)


def _called(form: str, how: str, shape: tuple[int, ...], *operands: Any) -> Any:
    x = operands[0]
    if 0 in shape or any(0 in one.shape for one in operands):
        return jnp.zeros(shape, x.dtype)
    _registered()
    out = jax.ShapeDtypeStruct(shape, x.dtype)
    call = custom_vmap(jax.ffi.ffi_call(f"{tensors.PREFIX}_{form}_{how}", out))
    call.def_vmap(_refuse_vmap)
    return call(*operands)


@cache
def _registered() -> None:
    tensors.register_all()


def _refuse_vmap(*_: Any) -> NoReturn:
    raise ArgumentError(
        "vmap: ragged_dot takes one list of groups; accepted are the lists as one, groups of all"
        " behind each other"
    )


def _check(lhs: Any, rhs: Any, sizes: Any, wanted: Any, offset: Any) -> None:
    if lhs.ndim != 2 or rhs.ndim != 3 or sizes.ndim != 1:
        raise ShapeError(
            f"lhs.shape={lhs.shape}, rhs.shape={rhs.shape}, group_sizes.shape={sizes.shape}:"
            " accepted are [t, k], [g, k, n] and [g]"
        )
    if lhs.shape[1] != rhs.shape[1]:
        raise ShapeError(
            f"rhs.shape={rhs.shape}: must have {lhs.shape[1]} rows, the columns of lhs"
        )
    if sizes.shape[0] != rhs.shape[0]:
        raise ShapeError(f"group_sizes.shape={sizes.shape}: must be ({rhs.shape[0]},), as rhs has")
    if str(lhs.dtype) not in _DTYPES:
        raise DtypeError(f"lhs.dtype={str(lhs.dtype)!r}: accepted are {', '.join(_DTYPES)}")
    if rhs.dtype != lhs.dtype:
        raise DtypeError(f"rhs.dtype={str(rhs.dtype)!r}: must equal lhs.dtype={str(lhs.dtype)!r}")
    if not jnp.issubdtype(sizes.dtype, jnp.integer):
        raise DtypeError(f"group_sizes.dtype={str(sizes.dtype)!r}: accepted are integers")
    if wanted is not None and jnp.dtype(wanted) != lhs.dtype:
        raise DtypeError(
            f"preferred_element_type={short(wanted)}: accepted are None and {str(lhs.dtype)!r}"
        )
    if offset is not None:
        raise ArgumentError(f"group_offset={short(offset)}: accepted is None")


def _precision(given: Any, dtype: Any) -> str:
    if given is None or isinstance(given, jax.lax.Precision):
        return "ieee"
    if isinstance(given, str) and given in ("default", "high", "highest", "float32"):
        return "ieee"
    if getattr(given, "name", given) in _TF32 and dtype == jnp.float32:
        return "tf32"
    raise ArgumentError(
        f"precision={short(given)}: accepted are None, jax.lax.Precision, and 'tensorfloat32' for"
        " float32"
    )


def _check_place() -> None:
    """Raise where what XLA runs on by default is not served."""
    platform = jax.default_backend()
    if platform == "gpu":
        from tilewright.backends.cuda.machine import driver

        driver.need()
    elif platform != "cpu":
        raise DeviceError(
            f"jax.default_backend()={platform!r}: accepted are 'cpu', and CUDA's 'gpu'"
        )
    elif find_spec("torch") is None:
        raise DeviceError("ragged_dot: torch is not installed; needed is pip install torch")
