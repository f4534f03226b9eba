"""Rows ragged by group, their numbers on the device: out[rows of g] = x[rows of g] @ w[g].

The launch reads its work from a table on the device, int32 [1 + entries, 4]:

    row 0      number of entries that follow, 0, 0, 0
    row e      group, first row of x, one past the last row, 0

An entry has at most ROWS rows, all of one group; a group of more rows has several entries, one of
none has none. Rows in no entry are not touched. Any order is right; long entries first is faster.
`entries(rows, groups)` bounds their number, so that a table can be allocated before offsets are
known. Whoever plans on the device writes the table on the same stream before each launch.

The weights give the rows of wgmma's tiles and x the columns, for those come in units of 32.
"""

from __future__ import annotations

import ctypes
from typing import Any

from tilewright.backends.cuda import driver, nvrtc
from tilewright.backends.cuda.engine import Launch
from tilewright.backends.cuda.hopper import maps
from tilewright.backends.cuda.hopper.bind import Ragged, Step, defines, launcher, upload
from tilewright.backends.cuda.hopper.shapes import WIDE
from tilewright.backends.cuda.hopper.tiles import ENGINE_STORES

ROWS = WIDE.width  # rows of x that one entry may have


def entries(rows: int, groups: int) -> int:
    """How many entries `rows` rows in `groups` groups can need at most."""
    return rows // ROWS + groups


def unsuited(x: Any, w: Any, out: Any) -> str | None:
    """Why these cannot be had here: [rows, k], [groups, k, n] and [rows, n], torch, one GPU.

    Either of w's last two dimensions may be the contiguous one; groups must follow one another
    without gaps; rows of x and w must begin at multiples of 16 bytes.
    """
    groups, k, n = w.shape
    if str(x.dtype).removeprefix("torch.") not in ("bfloat16", "float16"):
        return f"{x.dtype} is not half precision"
    if not driver.device_of(x.device.index).has("wgmma"):
        return "needs wgmma: compute capability 9.0"
    transposed = _k_contiguous(w)
    run, runs = (k, n) if transposed else (n, k)
    if not transposed and (w.stride(2) != 1 or k % 16 != 0):
        return "w [groups, k, n] needs contiguous n and k a multiple of 16"
    if w.stride(1 if not transposed else 2) != run or (groups > 1 and w.stride(0) != run * runs):
        return "w's groups do not follow one another"
    if x.stride(1) != 1 or out.stride(1) != 1:
        return "rows of x and out must be contiguous"
    if x.stride(0) <= 0:  # a gradient of a sum over rows is one row, expanded
        return "rows of x lie in one place"
    if max(out.stride(0), groups * max(n, k)) >= 2**31:
        return "rows of w, or elements from one row of out to the next, are 2^31 or more"
    aligned = x.data_ptr() % 16 == w.data_ptr() % 16 == 0 and x.stride(0) % 8 == run % 8 == 0
    return None if aligned else "rows of x and w must begin at multiples of 16 bytes"


def bound(table: Any, x: Any, w: Any, out: Any) -> Launch:
    """A callable that only launches, on torch's current stream of the device; see `unsuited`.

    `table` is int32 [1 + entries, 4] on the device, as drawn above, read at each launch. It is
    kept; that x, w and out stay where they are is the caller's business.
    """
    import torch

    groups, k, n = w.shape
    ordinal, dtype = x.device.index, str(x.dtype).removeprefix("torch.")
    transposed = _k_contiguous(w)
    stores = out.data_ptr() % 16 == 0 and out.stride(0) % 8 == 0 and n >= 8
    matrices = [
        maps.Matrix(w.data_ptr(), groups * n, k, k)
        if transposed
        else maps.Matrix(w.data_ptr(), groups * k, n, n),
        maps.Matrix(x.data_ptr(), x.shape[0], k, x.stride(0)),
    ]
    if stores:
        matrices.append(maps.Matrix(out.data_ptr(), out.shape[0], n // 8 * 8, out.stride(0)))
    encoded = upload(maps.encode(matrices, dtype), ordinal)
    macros = defines(
        dtype,
        WIDE,
        left_mn=not transposed,
        right_mn=False,
        transposed=True,
        epilogue=None,
        ragged=True,
    )
    shared = Ragged(
        c=out.data_ptr(),
        n=n,
        k=k,
        stride=out.stride(0),
        across=-(-n // WIDE.rows),
        flags=ENGINE_STORES * stores,
    )
    table_at, maps_at = (ctypes.c_void_p(held.data_ptr()) for held in (table, encoded))
    no_scalars = ctypes.c_void_p(None)
    arguments = nvrtc.Arguments((table_at, ctypes.c_int(0), maps_at, no_scalars, shared))
    step = Step(
        kernel=nvrtc.function("hopper_multiply", macros, ordinal, shared=WIDE.shared),
        blocks=torch.cuda.get_device_properties(ordinal).multi_processor_count,
        threads=WIDE.threads,
        arguments=arguments,
        keep=(table, encoded),
    )
    return launcher(ordinal, [step], ())


def _k_contiguous(w: Any) -> bool:
    return bool(w.stride(1) == 1)
