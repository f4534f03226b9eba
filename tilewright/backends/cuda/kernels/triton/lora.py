"""lora: out[t] = base[t] + scale[i] x[t] @ a[i] @ b[i] of few rows, i the adapter of row t.

Two launches; rows stay as they come, and every program reads the matrices of its own row.

    down, a program a row, part of k and piece of the rank      up, a program a row and columns

       x[t] part of k   [----]                                  inner[t]  [ ranks ]  parts added
                           |                                                 |
       a[i]  [k, rank]  +--v--+                                 b[i]      +--v------+
                        |     | --> inner[t, part]              [rank, n] |         | --> out[t]
                        +-----+     [rank], sums                          +---------+

`table` int64 [adapters, 3]: the addresses of a[i] and b[i], dense, and the rank. Rows whose index
is no adapter's get base alone.
"""

import triton
import triton.language as tl


@triton.jit
def _rank(table, index, count):
    """Where a row's adapter stands in the table, and its rank: 0 for none."""
    known = (index >= 0) & (index < count)
    at = table + 3 * tl.where(known, index, 0)
    return at, tl.where(known, tl.load(at + 2), 0)


@triton.jit(do_not_specialize=["rows"])
def down(
    x,
    adapter,
    table,
    inner,
    rows,
    count,
    k,
    x_row,
    PARTS: tl.constexpr,
    MOST: tl.constexpr,
    PIECE: tl.constexpr,
    TILE_K: tl.constexpr,
):
    """inner [rows, PARTS, MOST]: sums over a part of k each, of PIECE of the ranks a program."""
    dtype: tl.constexpr = x.dtype.element_ty
    kind: tl.constexpr = inner.dtype.element_ty
    program = tl.program_id(0)
    pieces: tl.constexpr = MOST // PIECE
    row = (program // (PARTS * pieces)).to(tl.int64)
    part, piece = program // pieces % PARTS, program % pieces
    at, rank = _rank(table, tl.load(adapter + row), count)
    a = tl.load(at).to(tl.pointer_type(dtype))
    ranks = piece * PIECE + tl.arange(0, PIECE)
    total = tl.zeros((PIECE,), kind)
    if piece * PIECE < rank:
        share = tl.cdiv(tl.cdiv(k, PARTS), TILE_K) * TILE_K
        for begin in range(part * share, tl.minimum(part * share + share, k), TILE_K):
            depth = begin + tl.arange(0, TILE_K)
            value = tl.load(x + row * x_row + depth, mask=depth < k, other=0.0).to(kind)
            mask = (depth < k)[:, None] & (ranks < rank)[None, :]
            weight = tl.load(a + depth[:, None] * rank + ranks[None, :], mask=mask, other=0.0)
            total += tl.sum(value[:, None] * weight.to(kind), axis=0)
    tl.store(inner + (row * PARTS + part) * MOST + ranks, total)


@triton.jit(do_not_specialize=["rows"])
def up(
    inner,
    adapter,
    table,
    scales,
    base,
    out,
    rows,
    count,
    n,
    base_row,
    PARTS: tl.constexpr,
    MOST: tl.constexpr,
    TILE_N: tl.constexpr,
):
    """out [rows, n], dense; `scales` [adapters]."""
    dtype: tl.constexpr = out.dtype.element_ty
    kind: tl.constexpr = inner.dtype.element_ty
    across = tl.cdiv(n, TILE_N)
    row = (tl.program_id(0) // across).to(tl.int64)
    columns = tl.program_id(0) % across * TILE_N + tl.arange(0, TILE_N)
    index = tl.load(adapter + row)
    at, rank = _rank(table, index, count)
    b = tl.load(at + 1).to(tl.pointer_type(dtype))
    scale = tl.load(scales + tl.where(rank > 0, index, 0)).to(kind)
    ranks, parts = tl.arange(0, MOST), tl.arange(0, PARTS)
    sums = tl.load(inner + (row * PARTS + parts[:, None]) * MOST + ranks[None, :])
    mask = (ranks < rank)[:, None] & (columns < n)[None, :]
    weight = tl.load(b + ranks[:, None] * n + columns[None, :], mask=mask, other=0.0).to(kind)
    added = tl.sum((scale * tl.sum(sums, axis=0))[:, None] * weight, axis=0)
    old = tl.load(base + row * base_row + columns, mask=columns < n, other=0.0).to(kind)
    tl.store(out + row * n + columns, (old + added).to(dtype), mask=columns < n)
