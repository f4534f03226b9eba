"""Products with sizes on the device: plan and multiply in two launches, nothing read back.

    rows     x [t, k] by w [groups, k, n]: the rows of a group meet its own matrix     -> [t, n]
    depths   x [m, t] by y [t, n]: the group's columns of x meet its rows of y -> [groups, m, n]

How many tiles there are is known on the device only; the host knows a bound, groups + t / TILE_M,
and launches a fixed number of programs that share whatever there is.
"""

from __future__ import annotations

from collections import OrderedDict
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from tilewright.backends.cuda import driver, faults, nvrtc
from tilewright.backends.cuda.engine import Launch
from tilewright.backends.cuda.hopper import ragged as hopper
from tilewright.backends.cuda.launcher import INTERPRETED


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
_MOST_KEPT = 256
_kept: OrderedDict[tuple[Any, ...], tuple[Any, Launch]] = OrderedDict()
_captured: list[tuple[Any, Launch]] = []


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
    if _is_hoppers(x, w, bias, out):
        _hopper_rows(x, w, offsets, out, clear)
        return
    _portable_rows(x, w, offsets, bias, out, precision, clear)


def _is_hoppers(x: Any, w: Any, bias: Any, out: Any) -> bool:
    """Whether the kernel of the Hopper engine takes a product; it has no epilogue here."""
    filled = x.is_cuda and bias is None and x.numel() > 0 and w.numel() > 0
    return filled and nvrtc.available() is True and hopper.unsuited(x, w, out) is None


def _hopper_rows(x: Any, w: Any, offsets: Any, out: Any, clear: bool) -> None:
    from tilewright.backends.cuda.kernels import ragged as kernels

    groups = w.shape[0]
    leading = offsets.shape[0] - groups
    with _on(x):
        table, launch = _hopper_launch(x, w, out)
        if clear:
            _clear(kernels, offsets, out, groups, leading)
        _plan(kernels, offsets, table[4:], table[:1], x, groups, hopper.ROWS)
        launch()


def _hopper_launch(x: Any, w: Any, out: Any) -> tuple[Any, Launch]:
    """The table of a product and what reads it; kept by addresses, which training steps repeat."""
    import torch

    ordinal = x.device.index
    stream = torch._C._cuda_getCurrentRawStream(ordinal)
    facts = [(t.data_ptr(), t.dtype, t.shape, t.stride()) for t in (x, w, out)]
    key = (ordinal, stream, *facts)
    found = _kept.get(key)
    if found is None:
        entries = 1 + hopper.entries(x.shape[0], w.shape[0])
        table = torch.empty(4 * entries, dtype=torch.int32, device=x.device)
        found = table, hopper.bound(table, x, w, out)
        if torch.cuda.is_current_stream_capturing():
            _captured.append(found)  # read at every replay, from the memory of the graph
        else:
            _kept[key] = found
            if len(_kept) > _MOST_KEPT:
                _kept.popitem(last=False)
    elif torch.cuda.is_current_stream_capturing():
        _captured.append(found)
    return found


def _portable_rows(
    x: Any, w: Any, offsets: Any, bias: Any, out: Any, precision: str, clear: bool
) -> None:
    import torch

    from tilewright.backends.cuda.kernels import ragged as kernels

    t, k = x.shape
    groups, _, n = w.shape
    leading = offsets.shape[0] - groups
    shape = shape_of(x.element_size(), t, groups, _local_memory(x))
    most = groups + t // shape.m
    table = torch.empty(4 * most + 4, dtype=torch.int32, device=x.device)
    tiles, total = table[4:], table[:1]
    strides = (*x.stride(), *w.stride(), *out.stride())
    extra = (0, 0) if bias is None else bias.stride()
    programs = min(most * -(-n // shape.n), _units(x) * shape.resident)
    with _on(x):
        if clear:
            _clear(kernels, offsets, out, groups, leading)
        _plan(kernels, offsets, tiles, total, x, groups, shape.m)
        kernels.multiply_rows[(programs,)](
            x,
            w,
            out,
            out if bias is None else bias,
            tiles,
            total,
            n,
            k,
            *strides,
            *extra,
            BAND=_BAND,
            BIAS=bias is not None,
            **_common(x, shape, precision),
        )


def depths(x: Any, y: Any, offsets: Any, out: Any, precision: str) -> None:
    """out[g] = x[:, rows of g] @ y[rows of g]; checked tensors of one device."""
    _need(x)
    from tilewright.backends.cuda.kernels import ragged as kernels

    m, t = x.shape
    n = y.shape[1]
    groups = out.shape[0]
    shape = shape_of(x.element_size(), m, 1, _local_memory(x))
    programs = groups * -(-m // shape.m) * -(-n // shape.n)
    with _on(x):
        kernels.multiply_depths[(programs,)](
            x,
            y,
            out,
            offsets,
            faults.flag(_ordinal(x)),
            t,
            m,
            n,
            *x.stride(),
            *y.stride(),
            *out.stride(),
            LEADING=offsets.shape[0] - groups,
            **_common(x, shape, precision),
        )


def _plan(
    kernels: Any, offsets: Any, tiles: Any, total: Any, x: Any, groups: int, tile_rows: int
) -> None:
    kernels.plan_rows[(groups,)](
        offsets,
        tiles,
        total,
        faults.flag(_ordinal(x)),
        groups,
        x.shape[0],
        LEADING=offsets.shape[0] - groups,
        TILE_M=tile_rows,
        BLOCK=_BLOCK,
    )


def _clear(kernels: Any, offsets: Any, out: Any, groups: int, leading: int) -> None:
    t, n = out.shape
    kernels.clear_rows[(-(-t // 64),)](
        offsets, out, groups, t, n, *out.stride(), LEADING=leading, TILE_M=64, TILE_N=64
    )


def _common(x: Any, shape: RaggedShape, precision: str) -> dict[str, Any]:
    import torch
    import triton.language as tl

    found = {
        "SUM": tl.float64 if x.dtype == torch.float64 else tl.float32,
        "TILE_M": shape.m,
        "TILE_N": shape.n,
        "TILE_K": shape.k,
        "PRECISION": precision,
    }
    if x.is_cuda:
        found |= {"num_warps": shape.warps, "num_stages": shape.stages}
    return found


def _need(x: Any) -> None:
    """Raise what is missing, by name, before Triton is imported."""
    if x.is_cuda:
        driver.need()


def _on(x: Any) -> AbstractContextManager[Any]:
    return driver.need().cuda.device(x.device) if x.is_cuda else nullcontext()


def _ordinal(x: Any) -> int:
    return int(x.device.index) if x.is_cuda else INTERPRETED


@cache
def _units_of(ordinal: int) -> int:
    return driver.device_of(ordinal).compute_units


def _units(x: Any) -> int:
    return _units_of(_ordinal(x)) if x.is_cuda else 4


def _local_memory(x: Any) -> int:
    return driver.device_of(_ordinal(x)).local_memory if x.is_cuda else 2**20
