"""Products with sizes on the device: plan and multiply in two launches, nothing read back.

    rows     x [t, k] by w [groups, k, n]: the rows of a group meet its own matrix     -> [t, n]
    depths   x [m, t] by y [t, n]: the group's columns of x meet its rows of y -> [groups, m, n]

How many tiles there are is known on the device only; the host knows a bound, groups + t / TILE_M,
and launches a fixed number of programs that share whatever there is. What is compiled and decided
for operands is kept by their sizes, strides and alignments, not by their addresses; nor by t, which
in training changes with every batch: of it only the class (`_class_of`) decides anything.
"""

from __future__ import annotations

import warnings
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from tilewright.backends.cuda.machine import driver, faults, nvrtc
from tilewright.backends.cuda.machine.triton_launch import Task, reusable
from tilewright.backends.cuda.ragged import hopper_depths
from tilewright.backends.cuda.ragged import hopper_rows as hopper
from tilewright.backends.cuda.ragged.moving import Moving
from tilewright.backends.cuda.ragged.plan import DepthPlan, RowPlan, memory, ordinal_of
from tilewright.errors import DeviceError, DeviceWarning, OperandError
from tilewright.remember import Shelf

# Launches on a stream: x, the other operand, offsets, bias or None, out.
Way = Callable[[int, Any, Any, Any, Any, Any], None]


@dataclass(frozen=True, slots=True)
class RaggedShape:
    """A tile with its launch options, and how many such programs a compute unit holds."""

    m: int
    n: int
    k: int
    warps: int
    stages: int
    resident: int

    def fits(self, itemsize: int, local_memory: int) -> bool:
        """Whether the blocks loaded ahead find room in a compute unit's local memory, in bytes."""
        return self.stages * (self.m + self.n) * self.k * itemsize <= local_memory


# By bytes an element, for groups of few and of many rows.
_FEW = {
    2: RaggedShape(64, 128, 64, 4, 3, 2),
    4: RaggedShape(32, 32, 32, 4, 1, 8),
    8: RaggedShape(32, 32, 16, 4, 3, 4),
}
_MANY = {
    2: RaggedShape(128, 256, 64, 8, 3, 1),
    4: RaggedShape(64, 64, 16, 4, 3, 4),
    8: RaggedShape(64, 64, 16, 4, 3, 2),
}
# For thousands of groups of few rows and small matrices: 200,000 groups of 4 rows, k and n 16, took
# the Hopper kernel's tiles 2.1 ms on an H200, as a multiprocessor has one after another.
_TINY = {
    2: RaggedShape(16, 32, 32, 1, 1, 16),
    4: RaggedShape(16, 32, 32, 1, 1, 16),
    8: RaggedShape(16, 32, 16, 1, 1, 16),
}
_TINY_ROWS, _TINY_SIDE, _TINY_GROUPS = 16, 64, 1024
# Tiles down that follow one another, so that they find the matrix of their group in cache.
_BAND = 8
_SUMMED = 64  # columns that one program sums
_LONG = 2  # whole tiles of a group from which on what is left of groups is better done last
_ALIGNMENT = 256  # bytes; what an address is a multiple of matters up to here
_WITHIN = _ALIGNMENT - 1
_WAY = 1 << 13  # bytes of the host that a prepared launch holds, about
# Rows a group from which on something is decided otherwise: tiles, bands, orders of entries.
_CLASSES = sorted(
    {
        *(many.m // 2 for many in _MANY.values()),
        *(hopper.ROWS * count for count in range(2, hopper.BAND + 1)),
        _LONG * hopper.ROWS,
        hopper_depths.SHORT,
        _TINY_ROWS,
    }
)
# By operands that lie alike; where `out` was new, without it.
_ways: Shelf[tuple[Any, ...], Way] = Shelf("launches of ragged products", most=4 << 20)


def shape_of(
    itemsize: int, rows: int, groups: int, local_memory: int, *, tiny: bool = False
) -> RaggedShape:
    """Tall tiles where a group has at least half of one on average; small ones where `is_tiny`.

    They were measured on an H200. Where local memory is less, fewer stages are loaded ahead.
    """
    if tiny:
        return _TINY[itemsize]
    many = _MANY[itemsize]
    shape = many if rows >= groups * many.m // 2 else _FEW[itemsize]
    while shape.stages > 1 and not shape.fits(itemsize, local_memory):
        shape = replace(shape, stages=shape.stages - 1)
    return shape if shape.fits(itemsize, local_memory) else replace(_FEW[itemsize], stages=1)


def is_tiny(rows: int, groups: int, *sides: int) -> bool:
    """Whether there are thousands of groups of few rows, whose matrices have small sides."""
    few = rows < groups * _TINY_ROWS
    return few and groups >= _TINY_GROUPS and max(sides) <= _TINY_SIDE


def rows(x: Any, w: Any, offsets: Any, bias: Any, out: Any, precision: str, clear: bool) -> None:
    """out[i] = x[i] @ w[group of i] + bias[group of i]; checked tensors of one device.

    `clear` writes zeros into the rows of `out` that no group has. Raises OperandError for a tensor
    without memory of its own.
    """
    if not w.shape[0]:  # there is nobody to plan
        if clear:
            out.zero_()
        return
    _need(x)
    _run(_rows, (x, w, offsets, bias, out), precision, clear)


def depths(x: Any, y: Any, offsets: Any, out: Any, precision: str) -> None:
    """out[g] = x[:, rows of g] @ y[rows of g]; checked tensors of one device.

    Raises OperandError for a tensor without memory of its own.
    """
    _need(x)
    if not out.shape[0]:
        return
    _run(_depths, (x, y, offsets, None, out), precision)


def again(x: Any, w: Any, offsets: Any, bias: Any, precision: str) -> Any:
    """A product into a new tensor, at once, where one that lies alike was remembered; else None.

    What was remembered was checked, so operands that lie alike need no checks.
    """
    way = _ways.get(_alike(x, w, offsets, bias, precision))
    if way is None:
        return None
    torch, ordinal = driver.need(), x.get_device()
    if torch._C._cuda_getDevice() != ordinal:
        return None
    faults.check_unless_captured(x)
    out = x.new_empty(_result(x, w, offsets))
    if out.data_ptr() & _WITHIN:  # not from torch's own allocator
        return None
    way(torch._C._cuda_getCurrentRawStream(ordinal), x, w, offsets, bias, out)
    return out


def remember(x: Any, w: Any, offsets: Any, bias: Any, out: Any, precision: str) -> None:
    """Let `again` do at once what has just run into a new tensor. For checked operands only."""
    if w.dim() == 3:
        key = _key(_rows, (x, w, offsets, bias, out), precision, True)
    else:
        key = _key(_depths, (x, w, offsets, None, out), precision)
    way = _ways.get(key)
    if way is not None and _facts(out)[-1] == _ALIGNMENT:
        _ways.keep(_alike(x, w, offsets, bias, precision), way)


def is_remembered(x: Any, w: Any, offsets: Any, bias: Any, precision: str) -> bool:
    """Whether `again` knows such a product."""
    return _alike(x, w, offsets, bias, precision) in _ways


def _result(x: Any, w: Any, offsets: Any) -> tuple[int, ...]:
    if w.dim() == 3:
        return x.shape[0], w.shape[2]
    return offsets.shape[0], x.shape[0], w.shape[1]


def _alike(x: Any, w: Any, offsets: Any, bias: Any, precision: str) -> tuple[Any, ...]:
    extra = None if bias is None else _facts(bias)
    if w.dim() == 3:
        moving = (_class_of(x.shape[0], w.shape[0]), _of_rows(x, 1), _facts(w))
    else:
        moving = (_class_of(w.shape[0], offsets.shape[0]), _of_rows(x, 0), _of_rows(w, 1))
    return precision, *moving, _facts(offsets), extra


def _run(make: Callable[..., Way], operands: tuple[Any, ...], *how: Any) -> None:
    x = operands[0]
    _check_memory(operands)
    if not x.is_cuda:
        make(*operands, *how)(0, *operands)
        return
    torch = driver.need()
    ordinal = x.device.index
    if torch._C._cuda_getDevice() != ordinal:
        with torch.cuda.device(ordinal):
            _run(make, operands, *how)
        return
    key = _key(make, operands, *how)
    way = _ways.get(key)
    if way is None:
        nvrtc.enter(ordinal)
        way = _ways.keep(key, make(*operands, *how), size=_WAY)
    way(torch._C._cuda_getCurrentRawStream(ordinal), *operands)


def _check_memory(operands: tuple[Any, ...]) -> None:
    """Raise where a tensor's elements lie nowhere: fake tensors, wrappers, storages given back."""
    for name, one in zip(("x", "w", "offsets", "bias", "out"), operands, strict=True):
        if one is not None and one.numel() and not one.data_ptr():
            raise OperandError(
                f"{name}={type(one).__name__} of shape {tuple(one.shape)}: has no memory;"
                " accepted are tensors whose elements lie on their device"
            )


def _key(make: Callable[..., Way], operands: tuple[Any, ...], *how: Any) -> tuple[Any, ...]:
    x, w, offsets, bias, out = operands
    if make is _rows:
        moving = (_class_of(x.shape[0], w.shape[0]), _of_rows(x, 1), _facts(w), _of_rows(out, 1))
    else:
        groups = (_class_of(w.shape[0], out.shape[0]), _of_rows(x, 0), _of_rows(w, 1))
        moving = (*groups, _facts(out))
    return (make, *how, *moving, _facts(offsets), None if bias is None else _facts(bias))


def _class_of(rows: int, groups: int) -> int:
    """What so many rows together decide; none are a class of their own."""
    return bisect_right(_CLASSES, rows // groups) + 1 if rows and groups else 0


def _facts(tensor: Any) -> tuple[Any, ...]:
    """What kernels are compiled and maps are made for."""
    return tensor.shape, *_of_rows(tensor, None)


def _of_rows(tensor: Any, other: int | None) -> tuple[Any, ...]:
    """The same of a matrix whose rows may grow: of its sizes only that of dimension `other`."""
    at = tensor.data_ptr()
    aligned = at & _WITHIN
    # The largest power of two that it is a multiple of; 0 for what has no memory.
    aligned = aligned & -aligned or (_ALIGNMENT if at else 0)
    size = None if other is None else tensor.shape[other]
    return size, tensor.stride(), tensor.dtype, tensor.get_device(), aligned


def _rows(x: Any, w: Any, offsets: Any, bias: Any, out: Any, precision: str, clear: bool) -> Way:
    groups, t = w.shape[0], x.shape[0]
    tiny = is_tiny(t, *w.shape)
    moving = None if tiny else _hoppers(hopper, x, w, out, bias)
    if moving is None:
        shape = shape_of(x.element_size(), t, groups, _local_memory(x), tiny=tiny)
        height = shape.m
        multiply = _portable_rows(x, w, bias, out, shape, precision)
    else:
        height = hopper.ROWS
        multiply = lambda stream, table, x, w, bias, out: moving.launch(  # noqa: E731
            stream, table, w, x, out, bias, x.shape[0]
        )
    last = moving is not None and t >= _LONG * groups * height
    plan = RowPlan(offsets, out, groups, height, clear=clear, rests_last=last)

    def way(stream: int, x: Any, w: Any, offsets: Any, bias: Any, out: Any) -> None:
        table = memory(x, 4 + 4 * (groups + x.shape[0] // height))
        plan.launch(stream, offsets, table, out)
        multiply(stream, table, x, w, bias, out)

    return way


def _depths(x: Any, y: Any, offsets: Any, bias: Any, out: Any, precision: str) -> Way:
    groups = out.shape[0]
    tiny = is_tiny(y.shape[0], *out.shape)
    moving = None if tiny else _hoppers(hopper_depths, x, y, out)
    if moving is None:
        portable = _sums if x.shape[0] == 1 else _portable_depths
        return portable(x, y, offsets, out, precision, tiny=tiny)
    plan = DepthPlan(x, offsets, groups)

    def way(stream: int, x: Any, y: Any, offsets: Any, bias: Any, out: Any) -> None:
        table = memory(x, 4 + 4 * groups)
        plan.launch(stream, offsets, table, y.shape[0])
        moving.launch(stream, table, x, y, out, None, y.shape[0])

    return way


def _hoppers(module: Any, *operands: Any) -> Moving | None:
    """The kernel of the Hopper engine, where it takes a product that has something to multiply."""
    x, w = operands[:2]
    if not (x.is_cuda and x.numel() and w.numel() and nvrtc.missing() is None):
        return None
    if not operands[2].shape[0] or module.unsuited(*operands) is not None:
        return None
    try:
        moving: Moving = module.prepared(*operands)
    except DeviceError as error:
        reason = str(error).partition("\n")[0]
        warnings.warn(
            f"{x.device}: the Hopper kernel cannot be used here ({reason}); Triton's runs instead",
            DeviceWarning,
            stacklevel=6,
        )
        return None
    return moving


def _portable_rows(
    x: Any, w: Any, bias: Any, out: Any, shape: RaggedShape, precision: str
) -> Callable[..., None]:
    from tilewright.backends.cuda.kernels.triton.ragged import multiply_rows

    groups, k, n = w.shape
    extra = (0, 0) if bias is None else bias.stride()
    tensors = (x, w, out, out if bias is None else bias, memory(x, 4))
    numbers = (n, k, *x.stride(), *w.stride(), *out.stride(), *extra)
    constants = {"BAND": _BAND, "BIAS": bias is not None, **_constants(x, shape, precision)}
    task = Task(multiply_rows, 1, (*tensors, *numbers), constants, _options(shape))
    launch = reusable(task, ordinal_of(x))
    across, most = -(-n // shape.n), _units(x) * shape.resident

    def multiply(stream: int, table: Any, x: Any, w: Any, bias: Any, out: Any) -> None:
        tiles = (groups + x.shape[0] // shape.m) * across
        launch(stream, min(tiles, most), x, w, out, out if bias is None else bias, table)

    return multiply


def _portable_depths(x: Any, y: Any, offsets: Any, out: Any, precision: str, *, tiny: bool) -> Way:
    from tilewright.backends.cuda.kernels.triton.ragged import multiply_depths

    groups, m, n = out.shape
    shape = shape_of(x.element_size(), m, 1, _local_memory(x), tiny=tiny)
    numbers = (offsets.stride(0), m, n, *x.stride(), *y.stride(), *out.stride())
    constants = {"LEADING": offsets.shape[0] - groups, **_constants(x, shape, precision)}
    programs = groups * -(-m // shape.m) * -(-n // shape.n)
    return _of_depths(multiply_depths, programs, x, y, offsets, out, numbers, constants, shape)


def _sums(x: Any, y: Any, offsets: Any, out: Any, precision: str, *, tiny: bool) -> Way:
    """Depths of an x of one row: sums of the rows of y, each times an element of x."""
    from tilewright.backends.cuda.kernels.triton.ragged import sum_depths

    groups, n = out.shape[0], y.shape[1]
    numbers = (offsets.stride(0), n, x.stride(1), *y.stride(), out.stride(0), out.stride(2))
    constants = {
        "LEADING": offsets.shape[0] - groups,
        "SUM": _sum_type(x),
        "TILE_N": _SUMMED,
        "TILE_K": 64,
    }
    programs = groups * -(-n // _SUMMED)
    return _of_depths(sum_depths, programs, x, y, offsets, out, numbers, constants, None)


def _of_depths(
    kernel: Any,
    programs: int,
    x: Any,
    y: Any,
    offsets: Any,
    out: Any,
    numbers: tuple[int, ...],
    constants: dict[str, Any],
    shape: RaggedShape | None,
) -> Way:
    """One launch of a kernel that reads the offsets itself."""
    flag = faults.flag(ordinal_of(x))
    arguments = (x, y, out, offsets, flag, y.shape[0], *numbers)
    options = {} if shape is None else _options(shape)
    launch = reusable(Task(kernel, 1, arguments, constants, options), ordinal_of(x))

    def way(stream: int, x: Any, y: Any, offsets: Any, bias: Any, out: Any) -> None:
        launch(stream, programs, x, y, out, offsets, flag, y.shape[0])

    return way


def _sum_type(x: Any) -> Any:
    import torch
    import triton.language as tl

    return tl.float64 if x.dtype == torch.float64 else tl.float32


def _constants(x: Any, shape: RaggedShape, precision: str) -> dict[str, Any]:
    import torch

    exact = precision != "tf32" or not _has_tf32(x)
    return {
        "SUM": _sum_type(x),
        "TILE_M": shape.m,
        "TILE_N": shape.n,
        "TILE_K": shape.k,
        "PRECISION": "ieee" if exact else "tf32",
        "EXACT": exact and x.dtype == torch.float32,
    }


def _has_tf32(x: Any) -> bool:
    """Where it is not to be had, IEEE float32 is what is computed."""
    return not x.is_cuda or driver.device_of(x.device.index).has("tf32")


def _options(shape: RaggedShape) -> dict[str, int]:
    return {"num_warps": shape.warps, "num_stages": shape.stages}


def _need(x: Any) -> None:
    """Raise what is missing, by name, before Triton is imported."""
    if x.is_cuda:
        driver.need()


@cache
def _units_of(ordinal: int) -> int:
    return driver.device_of(ordinal).compute_units


def _units(x: Any) -> int:
    return _units_of(ordinal_of(x)) if x.is_cuda else 4


def _local_memory(x: Any) -> int:
    return driver.device_of(ordinal_of(x)).local_memory if x.is_cuda else 2**20
