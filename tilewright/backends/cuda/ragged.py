"""Products with sizes on the device: plan and multiply in two launches, nothing read back.

    rows     x [t, k] by w [groups, k, n]: the rows of a group meet its own matrix     -> [t, n]
    depths   x [m, t] by y [t, n]: the group's columns of x meet its rows of y -> [groups, m, n]

How many tiles there are is known on the device only; the host knows a bound, groups + t / TILE_M,
and launches a fixed number of programs that share whatever there is. What is compiled and decided
for operands is kept by their sizes, strides and alignments, not by their addresses.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from tilewright.backends.cuda import driver, faults, nvrtc
from tilewright.backends.cuda.hopper import depths as hopper_depths
from tilewright.backends.cuda.hopper import ragged as hopper
from tilewright.backends.cuda.hopper.moving import Moving
from tilewright.backends.cuda.launcher import INTERPRETED, Task, reusable
from tilewright.errors import DeviceError, DeviceWarning

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
# Tiles down that follow one another, so that they find the matrix of their group in cache.
_BAND = 8
_BLOCK = 256  # offsets that a planning program looks at together
_SUMMED = 64  # columns that one program sums
_LONG = 2  # whole tiles of a group from which on what is left of groups is better done last
_CLEARED = 64  # rows, and columns at a time, that a program clears
_MOST_KEPT = 256
_ALIGNMENT = 256  # bytes; what an address is a multiple of matters up to here
_WITHIN = _ALIGNMENT - 1
_kept: dict[tuple[Any, ...], Way] = {}
_fresh: dict[tuple[Any, ...], tuple[Way, Any]] = {}  # for `again`, with the shape of the result


def shape_of(itemsize: int, rows: int, groups: int, local_memory: int) -> RaggedShape:
    """Tall tiles where a group has at least half of one on average.

    They were measured on an H200. Where local memory is less, fewer stages are loaded ahead.
    """
    many = _MANY[itemsize]
    shape = many if rows >= groups * many.m // 2 else _FEW[itemsize]
    while shape.stages > 1 and not shape.fits(itemsize, local_memory):
        shape = replace(shape, stages=shape.stages - 1)
    return shape if shape.fits(itemsize, local_memory) else replace(_FEW[itemsize], stages=1)


def rows(x: Any, w: Any, offsets: Any, bias: Any, out: Any, precision: str, clear: bool) -> None:
    """out[i] = x[i] @ w[group of i] + bias[group of i]; checked tensors of one device.

    `clear` writes zeros into the rows of `out` that no group has.
    """
    if not w.shape[0]:  # there is nobody to plan
        if clear:
            out.zero_()
        return
    _need(x)
    _run(_rows, (x, w, offsets, bias, out), precision, clear)


def depths(x: Any, y: Any, offsets: Any, out: Any, precision: str) -> None:
    """out[g] = x[:, rows of g] @ y[rows of g]; checked tensors of one device."""
    _need(x)
    _run(_depths, (x, y, offsets, None, out), precision)


def again(x: Any, w: Any, offsets: Any, bias: Any, precision: str) -> Any:
    """A product into a new tensor, at once, where one that lies alike was remembered; else None.

    What was remembered was checked, so operands that lie alike need no checks.
    """
    found = _fresh.get(_alike(x, w, offsets, bias, precision))
    if found is None:
        return None
    torch, ordinal, (way, shape) = driver.need(), x.get_device(), found
    if torch._C._cuda_getDevice() != ordinal:
        return None
    faults.check_unless_captured(x)
    out = x.new_empty(shape)
    way(torch._C._cuda_getCurrentRawStream(ordinal), x, w, offsets, bias, out)
    return out


def remember(x: Any, w: Any, offsets: Any, bias: Any, out: Any, precision: str) -> None:
    """Let `again` do at once what has just run into a new tensor. For checked operands only."""
    if w.dim() == 3:
        key = _key(_rows, (x, w, offsets, bias, out), precision, True)
    else:
        key = _key(_depths, (x, w, offsets, None, out), precision)
    way, alike = _kept.get(key), _facts(out)[-1] == _ALIGNMENT  # as memory of torch's always is
    if way is not None and alike:
        if len(_fresh) >= _MOST_KEPT:
            _fresh.clear()
        _fresh[_alike(x, w, offsets, bias, precision)] = way, out.shape


def is_remembered(x: Any, w: Any, offsets: Any, bias: Any, precision: str) -> bool:
    """Whether `again` knows such a product."""
    return _alike(x, w, offsets, bias, precision) in _fresh


def _alike(x: Any, w: Any, offsets: Any, bias: Any, precision: str) -> tuple[Any, ...]:
    extra = None if bias is None else _facts(bias)
    return precision, _facts(x), _facts(w), _facts(offsets), extra


def _run(make: Callable[..., Way], operands: tuple[Any, ...], *how: Any) -> None:
    x = operands[0]
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
    way = _kept.get(key)
    if way is None:
        nvrtc.enter(ordinal)
        way = make(*operands, *how)
        if len(_kept) >= _MOST_KEPT:
            _kept.clear()
        _kept[key] = way
    way(torch._C._cuda_getCurrentRawStream(ordinal), *operands)


def _key(make: Callable[..., Way], operands: tuple[Any, ...], *how: Any) -> tuple[Any, ...]:
    return (make, *how, *[None if one is None else _facts(one) for one in operands])


def _facts(tensor: Any) -> tuple[Any, ...]:
    """What kernels are compiled and maps are made for."""
    aligned = tensor.data_ptr() & _WITHIN
    aligned = aligned & -aligned or _ALIGNMENT  # the largest power of two it is a multiple of
    return tensor.shape, tensor.stride(), tensor.dtype, tensor.get_device(), aligned


def _rows(x: Any, w: Any, offsets: Any, bias: Any, out: Any, precision: str, clear: bool) -> Way:
    groups, t = w.shape[0], x.shape[0]
    moving = _hoppers(hopper, x, w, out, bias)
    if moving is None:
        shape = shape_of(x.element_size(), t, groups, _local_memory(x))
        entries, height = groups + t // shape.m, shape.m
        multiply = _portable_rows(x, w, bias, out, shape, entries, precision)
    else:
        entries, height = hopper.entries(t, groups), hopper.ROWS
        multiply = lambda stream, table, x, w, bias, out: moving.launch(  # noqa: E731
            stream, table, w, x, out, bias
        )
    words, flag = 4 + 4 * entries, faults.flag(_ordinal(x))
    last = moving is not None and t >= _LONG * groups * height
    plan = _plan(x, offsets, _table(x, words), out, groups, height, clear=clear, rests_last=last)

    def way(stream: int, x: Any, w: Any, offsets: Any, bias: Any, out: Any) -> None:
        table = _table(x, words)
        plan(stream, offsets, table, flag, out)
        multiply(stream, table, x, w, bias, out)

    return way


def _depths(x: Any, y: Any, offsets: Any, bias: Any, out: Any, precision: str) -> Way:
    groups, flag = out.shape[0], faults.flag(_ordinal(x))
    moving = _hoppers(hopper_depths, x, y, out)
    if moving is None:
        portable = _sums if x.shape[0] == 1 else _portable_depths
        multiply = portable(x, y, offsets, out, precision)
        return lambda stream, x, y, offsets, bias, out: multiply(stream, x, y, out, offsets, flag)
    from tilewright.backends.cuda.kernels.ragged import plan_depths

    words = 4 + 4 * groups
    constants = {"LEADING": offsets.shape[0] - groups, "BLOCK": _BLOCK}
    arguments = (offsets, _table(x, words), flag, groups, y.shape[0])
    plan = reusable(Task(plan_depths, groups, arguments, constants, {}), _ordinal(x))

    def way(stream: int, x: Any, y: Any, offsets: Any, bias: Any, out: Any) -> None:
        table = _table(x, words)
        plan(stream, offsets, table, flag)
        moving.launch(stream, table, x, y, out)

    return way


def _hoppers(module: Any, *operands: Any) -> Moving | None:
    """The kernel of the Hopper engine, where it takes a product that has something to multiply."""
    x, w = operands[:2]
    if not (x.is_cuda and x.numel() and w.numel() and nvrtc.available() is True):
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
    x: Any, w: Any, bias: Any, out: Any, shape: RaggedShape, entries: int, precision: str
) -> Callable[..., None]:
    from tilewright.backends.cuda.kernels.ragged import multiply_rows

    k, n = w.shape[1:]
    extra = (0, 0) if bias is None else bias.stride()
    tensors = (x, w, out, out if bias is None else bias, _table(x, 4))
    numbers = (n, k, *x.stride(), *w.stride(), *out.stride(), *extra)
    constants = {"BAND": _BAND, "BIAS": bias is not None, **_constants(x, shape, precision)}
    programs = min(entries * -(-n // shape.n), _units(x) * shape.resident)
    task = Task(multiply_rows, programs, (*tensors, *numbers), constants, _options(shape))
    launch = reusable(task, _ordinal(x))
    return lambda stream, table, x, w, bias, out: launch(
        stream, x, w, out, out if bias is None else bias, table
    )


def _portable_depths(x: Any, y: Any, offsets: Any, out: Any, precision: str) -> Callable[..., None]:
    from tilewright.backends.cuda.kernels.ragged import multiply_depths

    groups, m, n = out.shape
    shape = shape_of(x.element_size(), m, 1, _local_memory(x))
    numbers = (x.shape[1], m, n, *x.stride(), *y.stride(), *out.stride())
    constants = {"LEADING": offsets.shape[0] - groups, **_constants(x, shape, precision)}
    programs = groups * -(-m // shape.m) * -(-n // shape.n)
    arguments = (x, y, out, offsets, faults.flag(_ordinal(x)), *numbers)
    task = Task(multiply_depths, programs, arguments, constants, _options(shape))
    return reusable(task, _ordinal(x))


def _sums(x: Any, y: Any, offsets: Any, out: Any, precision: str) -> Callable[..., None]:
    """Depths of an x of one row: sums of the rows of y, each times an element of x."""
    from tilewright.backends.cuda.kernels.ragged import sum_depths

    (t, n), groups = y.shape, out.shape[0]
    numbers = (t, n, x.stride(1), *y.stride(), out.stride(0), out.stride(2))
    constants = {
        "LEADING": offsets.shape[0] - groups,
        "SUM": _sum_type(x),
        "TILE_N": _SUMMED,
        "TILE_K": 64,
    }
    arguments = (x, y, out, offsets, faults.flag(_ordinal(x)), *numbers)
    task = Task(sum_depths, groups * -(-n // _SUMMED), arguments, constants, {})
    return reusable(task, _ordinal(x))


def _plan(
    x: Any,
    offsets: Any,
    table: Any,
    out: Any,
    groups: int,
    height: int,
    *,
    clear: bool,
    rests_last: bool,
) -> Callable[..., None]:
    """The launch that writes the table and clears rows of `out` that no group has."""
    from tilewright.backends.cuda.kernels.ragged import plan_rows

    t, n = out.shape
    tensors = (offsets, table, faults.flag(_ordinal(x)), out)
    constants = {
        "LEADING": offsets.shape[0] - groups,
        "TILE_M": height,
        "RESTS_LAST": rests_last,
        "BLOCK": _BLOCK,
        "CLEARED": _CLEARED,
    }
    programs = groups + clear * -(-t // _CLEARED)
    arguments = (*tensors, groups, t, n, *out.stride())
    return reusable(Task(plan_rows, programs, arguments, constants, {}), _ordinal(x))


def _sum_type(x: Any) -> Any:
    import torch
    import triton.language as tl

    return tl.float64 if x.dtype == torch.float64 else tl.float32


def _constants(x: Any, shape: RaggedShape, precision: str) -> dict[str, Any]:
    return {
        "SUM": _sum_type(x),
        "TILE_M": shape.m,
        "TILE_N": shape.n,
        "TILE_K": shape.k,
        "PRECISION": precision,
    }


def _options(shape: RaggedShape) -> dict[str, int]:
    return {"num_warps": shape.warps, "num_stages": shape.stages}


def _table(x: Any, words: int) -> Any:
    """Memory for the plan, of this launch alone."""
    import torch

    return torch.empty(words, dtype=torch.int32, device=x.device)


def _need(x: Any) -> None:
    """Raise what is missing, by name, before Triton is imported."""
    if x.is_cuda:
        driver.need()


def _ordinal(x: Any) -> int:
    return int(x.device.index) if x.is_cuda else INTERPRETED


@cache
def _units_of(ordinal: int) -> int:
    return driver.device_of(ordinal).compute_units


def _units(x: Any) -> int:
    return _units_of(_ordinal(x)) if x.is_cuda else 4


def _local_memory(x: Any) -> int:
    return driver.device_of(_ordinal(x)).local_memory if x.is_cuda else 2**20
