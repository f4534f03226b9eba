"""8-bit products and quantising, checked: one clear error each, then the operators.

What scales stand for is read off their shapes: those of their operand with each dimension divided
by the block that shares a scale.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from tilewright.arrays.storage import check_memory
from tilewright.backends.cuda.fp8.work import BLOCK, Fp8Work, Operands, Scales
from tilewright.backends.cuda.machine.arrays import extent
from tilewright.errors import ArgumentError, DtypeError, OperandError, OverlapError, ShapeError
from tilewright.facts.limits import MOST
from tilewright.inputs.checks import check_shape
from tilewright.inputs.overlap import SHARED, check_apart
from tilewright.inputs.tensors import dtype_of, needs_gradient
from tilewright.torch_ops import fp8, fp8_again, fp8_constants, fp8_guarded
from tilewright.torch_ops.eager import is_eager
from tilewright.wording import short

FLOATS = (torch.float8_e4m3fn, torch.float8_e5m2)
INT8 = torch.int8
_NAMES = "float8_e4m3fn and float8_e5m2"
_OUT = (torch.bfloat16, torch.float32)
_KINDS = ("row", "1x128", "128x128")
_WHOLE = (torch.int32,)
_Asked = tuple[tuple[torch.dtype, ...], Any]
_FROM = (torch.float16, torch.bfloat16, torch.float32)


def ragged(
    x: Any, w: Any, offsets: Any, scale_a: Any, scale_b: Any, out: Any, out_dtype: Any
) -> Any:
    """Arguments, results and errors are those of `tilewright.ragged_matmul`."""
    asked = x, w, offsets, scale_a, scale_b
    found = fp8_guarded.at_once(asked, out, out_dtype)
    if found is None:
        found = fp8_again.again(asked, asked, out, out_dtype)
    if found is not None:
        return found
    given = {"x": x, "w": w, "offsets": offsets}
    whole = _is_whole(x, scale_a, scale_b)
    given |= {} if whole else {"scale_a": scale_a, "scale_b": scale_b}
    _check_tensors(given, out)
    _check_types(given)
    if x.dim() != 2 or w.dim() not in (2, 3):
        raise ShapeError(
            f"x.shape={tuple(x.shape)}, w.shape={tuple(w.shape)}: accepted are [t, k] by [g, k, n],"
            " and [m, t] by [t, n]"
        )
    if x.shape[1] != w.shape[-2]:
        raise ShapeError(f"w.shape={tuple(w.shape)}: must have {x.shape[1]} rows, the columns of x")
    depths = w.dim() == 2
    if depths and x.dtype == INT8:
        raise ShapeError(
            f"w.shape={tuple(w.shape)}: of int8 accepted are [t, k] by [g, k, n]; groups of k are"
            " for gradients, which int8 has none of"
        )
    _check_offsets(offsets, None if depths else w.shape[0])
    if whole:
        scale_a = scale_b = fp8_constants.one(x)
    kind, scale_a, scale_b = _scales(x, w, scale_a, scale_b)
    operands = Operands(x, w, offsets, scale_a, scale_b, out)
    work = Fp8Work(operands, kind, depths, clear=not depths and out is None)
    found = _run(work, given, _result(whole, out_dtype))
    fp8_again.remember(asked, out, out_dtype, work, found)
    return found


def dense(a: Any, b: Any, scale_a: Any, scale_b: Any, out: Any, out_dtype: Any) -> Any:
    """Arguments, results and errors are those of `tilewright.matmul`: a batch of one group."""
    passed = a, b, None, scale_a, scale_b
    found = fp8_guarded.at_once(passed, out, out_dtype)
    if found is not None:
        return found
    asked = _as_batch(a, b, scale_a, scale_b)
    found = None if asked is None else fp8_again.again(asked, passed, out, out_dtype)
    if found is not None:
        return found
    given = {"a": a, "b": b}
    whole = _is_whole(a, scale_a, scale_b)
    given |= {} if whole else {"scale_a": scale_a, "scale_b": scale_b}
    _check_tensors(given, out)
    _check_types(given)
    if a.dim() != 2 or b.dim() != 2 or a.shape[1] != b.shape[0]:
        raise ShapeError(
            f"a.shape={tuple(a.shape)}, b.shape={tuple(b.shape)}: of 8-bit numbers accepted are"
            " [m, k] by [k, n]"
        )
    if whole:
        scale_a = scale_b = fp8_constants.one(a)
    elif scale_b.dim():
        scale_b = scale_b[None]
    kind, scale_a, scale_b = _scales(a, b[None], scale_a, scale_b)
    work = Fp8Work(
        Operands(a, b[None], fp8_constants.end(a), scale_a, scale_b, out), kind, clear=out is None
    )
    found = _run(work, given, _result(whole, out_dtype))
    if asked is not None:
        fp8_again.remember(asked, out, out_dtype, work, found)
    return found


def _as_batch(a: Any, b: Any, scale_a: Any, scale_b: Any) -> Any:
    """The operands of a single product on a GPU as those of a batch of one; else None."""
    plain = type(a) is Tensor and type(b) is Tensor and a.is_cuda and a.dim() == b.dim() == 2
    if not plain or torch.compiler.is_compiling():
        return None
    of_b = scale_b[None] if isinstance(scale_b, Tensor) and scale_b.dim() else scale_b
    return a, b[None], fp8_constants.end(a), scale_a, of_b


def quantise_int8(x: Any, along: Any) -> tuple[Tensor, ...]:
    """Arguments, results and errors are those of `tilewright.quantise_int8`."""
    _check_quantised(x, {"x": x}, along)
    return _quantised(x, "row", INT8, along, None)


def quantise(x: Any, scale: Any, dtype: Any, along: Any, offsets: Any) -> tuple[Tensor, ...]:
    """Arguments, results and errors are those of `tilewright.quantise_fp8`."""
    _check_quantised(x, {"x": x} if offsets is None else {"x": x, "offsets": offsets}, along)
    if not isinstance(scale, str) or scale not in _KINDS:
        raise ArgumentError(f"scale={short(scale)}: accepted are 'row', '1x128' and '128x128'")
    dtype = FLOATS[0] if dtype is None else dtype
    if dtype not in FLOATS:
        raise ArgumentError(f"dtype={short(dtype)}: accepted are torch.{_NAMES}")
    if offsets is not None:
        if x.dim() != 2 or along in (-1, x.dim() - 1) or scale == "row":
            raise ArgumentError(
                f"offsets: with x of {x.dim()} dimensions, along={along} and scale={scale!r};"
                " accepted are offsets with [t, n], along=0 and blocks of 128"
            )
        _check_offsets(offsets, None)
    return _quantised(x, scale, dtype, along, offsets)


def _check_quantised(x: Any, given: dict[str, Any], along: Any) -> None:
    """Raise where x is not what is quantised, or `along` none of its last two dimensions."""
    _check_tensors(given, None)
    if x.dtype not in _FROM:
        raise DtypeError(f"x.dtype={dtype_of(x)!r}: accepted are float16, bfloat16 and float32")
    if x.dim() not in (2, 3):
        raise ShapeError(f"x.shape={tuple(x.shape)}: must have two dimensions, or three")
    _check_sizes("x", x)
    if type(along) is not int or along not in (-1, -2, x.dim() - 1, x.dim() - 2):
        raise ArgumentError(f"along={short(along)}: accepted are -1 and -2, of the last two")


def _quantised(
    x: Tensor, scale: str, dtype: torch.dtype, along: int, offsets: Any
) -> tuple[Tensor, ...]:
    last = along in (-1, x.dim() - 1)
    seen = x if last else x.transpose(-1, -2)
    seen = seen if x.dim() == 3 else seen[None]
    values, scales, ends = fp8.quantised(seen, scale, dtype, offsets)
    if x.dim() == 2:
        values, scales = values[0], scales[0]
    if not last:
        values, scales = values.transpose(-1, -2), scales.transpose(-1, -2)
    return (values, scales) if offsets is None else (values, scales, ends)


def _run(work: Fp8Work, given: dict[str, Any], out_dtype: _Asked) -> Any:
    """`out_dtype` is which are accepted, the one that is made first, and what was asked for."""
    operands, depths = work.operands, work.depths
    if is_eager(*given.values()):
        check_memory(given)
    out, (accepted, asked) = operands.out, out_dtype
    if asked is not None and asked not in accepted:
        names = " and ".join(map(str, accepted))
        raise ArgumentError(f"out_dtype={short(asked)}: accepted {_are(accepted)} {names}")
    if out is None:
        return fp8.product(work, asked or accepted[0])
    a, b = operands.a, operands.b
    groups = (operands.offsets.shape[0],) if depths else ()
    _check_out(out, (*groups, a.shape[0], b.shape[-1]), out_dtype, given)
    fp8.product_into(work)
    return out


def _check_tensors(given: dict[str, Any], out: Any) -> None:
    every = given if out is None else {**given, "out": out}
    first = next(iter(given.values()))
    for name, value in every.items():
        if not isinstance(value, Tensor):
            raise OperandError(f"{name}={type(value).__name__}: accepted are torch tensors")
        if value.layout is not torch.strided or value.is_nested:
            raise OperandError(f"{name}: accepted are dense tensors")
        if value.device != first.device:
            raise OperandError(
                f"{name}.device={str(value.device)!r}: {next(iter(given))} lies on"
                f" {str(first.device)!r}"
            )
    for name, value in given.items():
        if needs_gradient(value):
            raise OperandError(
                f"{name}: requires a gradient, which does not pass 8-bit floats; accepted is its"
                " .detach(), or a call under torch.no_grad()"
            )


def _is_whole(a: Any, scale_a: Any, scale_b: Any) -> bool:
    """Whether it is a product of int8 without scales, whose result is its int32 sums."""
    return scale_a is scale_b is None and getattr(a, "dtype", None) == INT8


def _are(accepted: tuple[Any, ...]) -> str:
    return "are" if len(accepted) > 1 else "is"


def _result(whole: bool, asked: Any) -> _Asked:
    return (_WHOLE if whole else _OUT), asked


def _check_types(given: dict[str, Any]) -> None:
    """Raise unless the first two are 8-bit floats, or both int8."""
    (first, a), (second, b), *_ = given.items()
    for name, value in ((first, a), (second, b)):
        if value.dtype not in FLOATS and value.dtype != INT8:
            raise DtypeError(
                f"{name}.dtype={dtype_of(value)!r}: with scales accepted are {_NAMES}, and int8"
            )
        _check_sizes(name, value)
    if (a.dtype == INT8) != (b.dtype == INT8):
        raise DtypeError(
            f"{second}.dtype={dtype_of(b)!r}: with {first}.dtype={dtype_of(a)!r}; accepted are both"
            " int8, or both 8-bit floats"
        )


def _check_sizes(name: str, value: Tensor) -> None:
    if any(size > MOST for size in value.shape):
        raise ShapeError(
            f"{name}.shape={tuple(value.shape)}: accepted are sizes from 0 to 2^31 - 64"
        )


def _check_offsets(offsets: Tensor, groups: int | None) -> None:
    if offsets.dtype not in (torch.int32, torch.int64):
        raise DtypeError(f"offsets.dtype={str(offsets.dtype)!r}: accepted are int32 and int64")
    if offsets.dim() != 1:
        raise ShapeError(f"offsets.shape={tuple(offsets.shape)}: must have one dimension")
    if groups is not None and offsets.shape[0] not in (groups, groups + 1):
        raise ShapeError(
            f"offsets.shape=({offsets.shape[0]},): must have {groups} ends, one a matrix of w, or"
            f" {groups + 1} with the first beginning"
        )


def _scales(a: Tensor, b: Tensor, scale_a: Tensor, scale_b: Tensor) -> tuple[Scales, Any, Any]:
    """What the scales stand for; as [rows, blocks of k] and [groups, blocks of k, columns].

    Raises DtypeError, ShapeError.
    """
    for name, scale in (("scale_a", scale_a), ("scale_b", scale_b)):
        if scale.dtype != torch.float32:
            raise DtypeError(f"{name}.dtype={dtype_of(scale)!r}: accepted is float32")
    (m, k), (*groups, _, n) = a.shape, b.shape
    blocks, wide = -(-k // BLOCK), -(-n // BLOCK)
    of_a, of_b = tuple(scale_a.shape), tuple(scale_b.shape)
    if groups:
        rows_a, rows_b = ((m, 1), (m,), ()), ((*groups, 1, n), (*groups, n), ())
        if of_a in rows_a and of_b in rows_b:
            of_each = scale_b if len(of_b) != 2 else scale_b[:, None]
            return Scales.ROWS, _spread(scale_a, (m, 1)), _spread(of_each, (*groups, 1, n))
        if a.dtype == INT8:
            raise ShapeError(
                f"scale_a.shape={of_a}, scale_b.shape={of_b}: of int8 accepted are {(m, 1)} with"
                f" {(*groups, 1, n)}, and () for one scale of all"
            )
        if of_a == (m, blocks) and of_b == (*groups, blocks, wide):
            return Scales.BLOCKS, scale_a, scale_b
        accepted = (
            f"{(m, 1)} with {(*groups, 1, n)}, and {(m, blocks)} with {(*groups, blocks, wide)}"
        )
    else:
        if of_a == (m, blocks) and of_b in ((blocks, n), (blocks, wide)):
            kind = Scales.STRIPS if of_b == (blocks, n) else Scales.BLOCKS
            return kind, scale_a, scale_b[None]
        accepted = f"{(m, blocks)} with {(blocks, n)}, and {(m, blocks)} with {(blocks, wide)}"
    raise ShapeError(f"scale_a.shape={of_a}, scale_b.shape={of_b}: accepted are {accepted}")


def _spread(scale: Tensor, shape: tuple[int, ...]) -> Tensor:
    """One scale for all of them, or what has a dimension less, as this shape."""
    return scale.expand(shape) if not scale.dim() else scale.reshape(shape)


def _check_out(
    out: Tensor, shape: tuple[int, ...], out_dtype: _Asked, given: dict[str, Any]
) -> None:
    """Raise where the product cannot be written there."""
    check_shape("out", out.shape, shape)
    accepted, asked = out_dtype
    if out.dtype not in accepted or asked not in (None, out.dtype):
        names = " and ".join(str(one).removeprefix("torch.") for one in accepted)
        raise DtypeError(
            f"out.dtype={dtype_of(out)!r}: accepted {_are(accepted)} {names}, as out_dtype says"
        )
    if out.requires_grad:
        raise ArgumentError("out: requires a gradient; accepted is out=None then")
    check_apart("out", shape, out.stride())
    usual = Tensor.__torch_dispatch__
    for name, value in {**given, "out": out}.items():
        if getattr(type(value), "__torch_dispatch__", usual) is not usual:
            raise OperandError(
                f"{name}={type(value).__name__}: keeps its elements elsewhere; accepted with out="
                " are plain tensors"
            )
    check_memory({"out": out})
    begin, end = _reach(out)
    for name, value in given.items():
        first, last = _reach(value)
        if first < end and begin < last:
            raise OverlapError(SHARED.format(name))


def _reach(tensor: Tensor) -> tuple[int, int]:
    """The bytes from a tensor's first element to past its last."""
    begin, end = extent(tensor)
    return tensor.data_ptr() + begin, tensor.data_ptr() + end
