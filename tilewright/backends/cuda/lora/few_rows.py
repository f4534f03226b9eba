"""Adds adapters to few rows in two launches: nothing is sorted, no offsets are made.

By ragged products a layer with four ranks is 45 launches, most of which wait for the host where
rows are few. Here each row reads its own adapter's matrices (Chen et al., Punica, MLSys 2024, call
it gather BGMV), so that a thousand rows of one adapter read it a thousand times: `why_not` says
from where on that takes longer. Launches are kept by how everything lies.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tilewright.arrays import torch_private as private
from tilewright.backends.cuda.machine import tables
from tilewright.backends.cuda.machine.driver import missing
from tilewright.backends.cuda.machine.shared import Shared
from tilewright.backends.cuda.machine.triton_launch import INTERPRETED, Task, reusable
from tilewright.backends.cuda.ragged.plan import ordinal_of
from tilewright.facts.measured import h200
from tilewright.remember import Shelf

_PARTS, _TILE_K, _PIECE, _TILE_N = 8, 128, 16, 128
_DTYPES = ("float16", "bfloat16", "float32", "float64")
_ALIGNMENT = 16  # bytes: what Triton compiles for


@dataclass(frozen=True, slots=True)
class _Launches:
    """Both launches, the table that they read, who reads it too, and what `inner` is of."""

    table: Any
    shared: Shared | None
    down: Callable[..., None]
    up: Callable[..., None]
    most: int
    kind: Any


_kept: Shelf[tuple[Any, ...], _Launches] = Shelf("adapters of few rows", most=4 << 20)


def why_not(x: Any, mean: float, n: int) -> str | None:
    """Why sorted rows and ragged products are better for x [rows, k], if so; `mean` of ranks."""
    if not x.is_cuda or missing() is not None:
        return "runs on a GPU only"
    if str(x.dtype).removeprefix("torch.") not in _DTYPES:
        return f"{x.dtype} is not multiplied"
    rows, k = x.shape
    seconds = rows * mean * (k + n) * x.element_size() / h200.LORA_READ
    return "so many rows read adapters too often" if seconds > h200.LORA_SORTED else None


def added(
    x: Any,
    adapter: Any,
    base: Any,
    downs: Sequence[Any],
    ups: Sequence[Any],
    order: Any,
    scales: Any,
) -> Any:
    """base + scales[i] x @ a[i] @ b[i] for every row, [rows, n], new.

    x [rows, k] and base [rows, n], rows contiguous; adapter int64 [rows]. The matrices of each rank
    are `downs` [adapters, k, rank] and `ups` [adapters, rank, n], dense and of x's dtype; `order`,
    a tuple, lists adapters as they stand there, `scales` [adapters] by index. All lie on one GPU,
    the current one.
    """
    import torch

    rows, n = base.shape
    lies = [(one.data_ptr(), one.shape) for one in (*downs, *ups)]
    aligned = [one.data_ptr() % _ALIGNMENT for one in (x, adapter, base, scales)]
    steps = (x.stride(0), base.stride(0), x.dtype, x.get_device())
    key = (*lies, *aligned, *steps, order)
    captured = x.is_cuda and bool(private.is_capturing(torch)())
    # What a graph reads is its own: what is kept may be forgotten before it is replayed.
    found = None if captured else _kept.get(key)
    if found is None:
        found = _launches(x, adapter, base, downs, ups, order, scales)
        if not captured:
            _kept.keep(key, found, size=4096 + 24 * len(order))
    inner = torch.empty((rows, _PARTS, found.most), dtype=found.kind, device=x.device)
    out = torch.empty((rows, n), dtype=x.dtype, device=x.device)
    ordinal = ordinal_of(x)
    stream = 0 if ordinal == INTERPRETED else int(private.raw_stream(torch)(ordinal))
    if found.shared is not None:
        found.shared.meet(stream)
    pieces = rows * _PARTS * (found.most // _PIECE)
    found.down(stream, pieces, x, adapter, found.table, inner, rows)
    columns = rows * -(-n // _TILE_N)
    found.up(stream, columns, inner, adapter, found.table, scales, base, out, rows)
    return out


def _launches(
    x: Any,
    adapter: Any,
    base: Any,
    downs: Sequence[Any],
    ups: Sequence[Any],
    order: Any,
    scales: Any,
) -> _Launches:
    """Compiled for what lies alike. The table has addresses and ranks, int64 [adapters, 3]."""
    import torch

    from tilewright.backends.cuda.kernels.triton import lora

    pairs = [(a[i], b[i]) for a, b in zip(downs, ups, strict=True) for i in range(len(a))]
    lies = [(a.data_ptr(), b.data_ptr(), a.shape[1]) for a, b in pairs]
    by_index = [one for _, one in sorted(zip(order, lies, strict=True))]
    ordinal = ordinal_of(x)
    table = _table(np.array(by_index, np.int64).reshape(-1, 3), x, ordinal)
    most = max(1 << (max(a.shape[2] for a in downs) - 1).bit_length(), _PIECE)
    kind = torch.float64 if x.dtype == torch.float64 else torch.float32
    inner, out = (x.new_empty(_ALIGNMENT, dtype=one) for one in (kind, x.dtype))
    sizes, count = {"PARTS": _PARTS, "MOST": most}, len(order)
    first = (x, adapter, table, inner, 0, count, x.shape[1], x.stride(0))
    second = (inner, adapter, table, scales, base, out, 0, count, base.shape[1], base.stride(0))
    down = Task(lora.down, 1, first, {**sizes, "PIECE": _PIECE, "TILE_K": _TILE_K}, {})
    up = Task(lora.up, 1, second, {**sizes, "TILE_N": _TILE_N}, {})
    shared = Shared((table,), ordinal) if x.is_cuda else None
    return _Launches(table, shared, reusable(down, ordinal), reusable(up, ordinal), most, kind)


def _table(words: npt.NDArray[np.int64], x: Any, ordinal: int) -> Any:
    """On x's device; while a graph is captured by parameters of a launch, as copies wait."""
    import torch

    if tables.goes_by_parameters(words.size, ordinal):
        stream = int(private.raw_stream(torch)(ordinal))
        return tables.put(words.reshape(-1), ordinal, stream).view(words.shape)
    return torch.from_numpy(words).to(x.device)
