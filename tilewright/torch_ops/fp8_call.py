"""8-bit products and quantising, checked: one clear error each, then the operators.

What scales stand for is read off their shapes: those of their operand with each dimension divided
by the block that shares a scale.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from tilewright.backends.cuda.fp8.work import BLOCK, Operands, Scales
from tilewright.backends.cuda.machine.arrays import extent
from tilewright.errors import ArgumentError, DtypeError, OperandError, OverlapError, ShapeError
from tilewright.facts.limits import MOST
from tilewright.inputs.checks import check_shape
from tilewright.inputs.overlap import SHARED, check_apart
from tilewright.inputs.tensors import dtype_of, needs_gradient
from tilewright.remember import Shelf
from tilewright.torch_ops import fp8
from tilewright.wording import short

FLOATS = (torch.float8_e4m3fn, torch.float8_e5m2)
_NAMES = "float8_e4m3fn and float8_e5m2"
_OUT = (torch.bfloat16, torch.float32)
_KINDS = ("row", "1x128", "128x128")
_FROM = (torch.float16, torch.bfloat16, torch.float32)
# The end of a single group, by device and rows.
_single: Shelf[tuple[Any, ...], Tensor] = Shelf("ends of single products", most=1 << 16)


def ragged(
    x: Any, w: Any, offsets: Any, scale_a: Any, scale_b: Any, out: Any, out_dtype: Any
) -> Any:
    """Arguments, results and errors are those of `tilewright.ragged_matmul`."""
    given = {"x": x, "w": w, "offsets": offsets, "scale_a": scale_a, "scale_b": scale_b}
    _check_tensors(given, out)
    for name, value in (("x", x), ("w", w)):
        _check_float(name, value)
    if x.dim() != 2 or w.dim() not in (2, 3):
        raise ShapeError(
            f"x.shape={tuple(x.shape)}, w.shape={tuple(w.shape)}: accepted are [t, k] by [g, k, n],"
            " and [m, t] by [t, n]"
        )
    if x.shape[1] != w.shape[-2]:
        raise ShapeError(f"w.shape={tuple(w.shape)}: must have {x.shape[1]} rows, the columns of x")
    depths = w.dim() == 2
    _check_offsets(offsets, None if depths else w.shape[0])
    kind, scale_a, scale_b = _scales(x, w, scale_a, scale_b)
    operands = Operands(x, w, offsets, scale_a, scale_b, out)
    return _run(operands, kind, given, out_dtype, depths=depths)


def dense(a: Any, b: Any, scale_a: Any, scale_b: Any, out: Any, out_dtype: Any) -> Any:
    """Arguments, results and errors are those of `tilewright.matmul`: a batch of one group."""
    given = {"a": a, "b": b, "scale_a": scale_a, "scale_b": scale_b}
    _check_tensors(given, out)
    for name, value in (("a", a), ("b", b)):
        _check_float(name, value)
    if a.dim() != 2 or b.dim() != 2 or a.shape[1] != b.shape[0]:
        raise ShapeError(
            f"a.shape={tuple(a.shape)}, b.shape={tuple(b.shape)}: of 8-bit floats accepted are"
            " [m, k] by [k, n]"
        )
    if scale_b.dim():
        scale_b = scale_b[None]
    kind, scale_a, scale_b = _scales(a, b[None], scale_a, scale_b)
    operands = Operands(a, b[None], _end(a), scale_a, scale_b, out)
    return _run(operands, kind, given, out_dtype, depths=False)


def quantise(x: Any, scale: Any, dtype: Any, along: Any, offsets: Any) -> tuple[Tensor, ...]:
    """Arguments, results and errors are those of `tilewright.quantise_fp8`."""
    _check_tensors({"x": x} if offsets is None else {"x": x, "offsets": offsets}, None)
    if x.dtype not in _FROM:
        raise DtypeError(f"x.dtype={dtype_of(x)!r}: accepted are float16, bfloat16 and float32")
    if x.dim() not in (2, 3):
        raise ShapeError(f"x.shape={tuple(x.shape)}: must have two dimensions, or three")
    _check_sizes("x", x)
    if not isinstance(scale, str) or scale not in _KINDS:
        raise ArgumentError(f"scale={short(scale)}: accepted are 'row', '1x128' and '128x128'")
    dtype = FLOATS[0] if dtype is None else dtype
    if dtype not in FLOATS:
        raise ArgumentError(f"dtype={short(dtype)}: accepted are torch.{_NAMES}")
    if type(along) is not int or along not in (-1, -2, x.dim() - 1, x.dim() - 2):
        raise ArgumentError(f"along={short(along)}: accepted are -1 and -2, of the last two")
    last = along in (-1, x.dim() - 1)
    if offsets is not None:
        if x.dim() != 2 or last or scale == "row":
            raise ArgumentError(
                f"offsets: with x of {x.dim()} dimensions, along={along} and scale={scale!r};"
                " accepted are offsets with [t, n], along=0 and blocks of 128"
            )
        _check_offsets(offsets, None)
    seen = x if last else x.transpose(-1, -2)
    seen = seen if x.dim() == 3 else seen[None]
    values, scales, ends = fp8.quantised(seen, scale, dtype == FLOATS[1], offsets)
    if x.dim() == 2:
        values, scales = values[0], scales[0]
    if not last:
        values, scales = values.transpose(-1, -2), scales.transpose(-1, -2)
    return (values, scales) if offsets is None else (values, scales, ends)


def _run(
    operands: Operands, kind: Scales, given: dict[str, Any], out_dtype: Any, *, depths: bool
) -> Any:
    out = operands.out
    if out is None:
        dtype = torch.bfloat16 if out_dtype is None else out_dtype
        if dtype not in _OUT:
            raise ArgumentError(
                f"out_dtype={short(out_dtype)}: accepted are torch.bfloat16 and torch.float32"
            )
        return fp8.product(operands, kind, dtype, depths=depths)
    a, b = operands.a, operands.b
    groups = (operands.offsets.shape[0],) if depths else ()
    _check_out(out, (*groups, a.shape[0], b.shape[-1]), out_dtype, given)
    fp8.product_into(operands, kind, depths=depths)
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


def _check_float(name: str, value: Tensor) -> None:
    if value.dtype not in FLOATS:
        raise DtypeError(f"{name}.dtype={dtype_of(value)!r}: with scales accepted are {_NAMES}")
    _check_sizes(name, value)


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


def _check_out(out: Tensor, shape: tuple[int, ...], dtype: Any, given: dict[str, Any]) -> None:
    """Raise where the product cannot be written there."""
    check_shape("out", out.shape, shape)
    if out.dtype not in _OUT or dtype not in (None, out.dtype):
        raise DtypeError(
            f"out.dtype={dtype_of(out)!r}: accepted are bfloat16 and float32, as out_dtype says"
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
    begin, end = _reach(out)
    for name, value in given.items():
        first, last = _reach(value)
        if first < end and begin < last:
            raise OverlapError(SHARED.format(name))


def _reach(tensor: Tensor) -> tuple[int, int]:
    """The bytes from a tensor's first element to past its last."""
    begin, end = extent(tensor)
    return tensor.data_ptr() + begin, tensor.data_ptr() + end


def _end(a: Tensor) -> Tensor:
    """One group of all rows."""
    if torch.compiler.is_compiling() or type(a) is not Tensor or a.is_meta:
        return torch.full((1,), a.shape[0], dtype=torch.int32, device=a.device)
    key = a.device, a.shape[0]
    made = lambda: torch.full((1,), a.shape[0], dtype=torch.int32, device=a.device)  # noqa: E731
    return _single.found(key, made, lambda _: 512)
