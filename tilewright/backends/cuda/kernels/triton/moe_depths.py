"""moe_depths: gradients of experts' matrices, where one factor's rows are found by index.

    x [m, rows]   columns of group g, as they lie or     y [rows, n]   rows of group g, by index or
                  by index                                             as they lie
          |  TILE_K at a time                                   |
          v                                                     v
       TILE_M columns         times, summed over rows        TILE_N columns    ->  c[g] [m, n]

SIDE: 1 where columns of x are found by index, 2 where rows of y are. What offsets may be, and
EXACT, as ragged.py has them.
"""

import triton
import triton.language as tl

from tilewright.backends.cuda.kernels.triton.ragged_offsets import rows_of


@triton.jit
def _added(
    sums,
    left,
    right,
    index,
    x_row,
    y_row,
    masks,
    begin,
    end,
    TILE_K: tl.constexpr,
    PRECISION: tl.constexpr,
    SIDE: tl.constexpr,
):
    """`sums` with the products of the rows from `begin` to `end`."""
    depth = tl.arange(0, TILE_K)
    for at in range(begin, end, TILE_K):
        here = depth < end - at
        row = at + depth
        found = tl.load(index + row, mask=here, other=0).to(tl.int64)
        row = row.to(tl.int64)
        x_at = found if SIDE == 1 else row
        y_at = found if SIDE == 2 else row
        a = tl.load(left + x_at[None, :] * x_row, mask=masks[0] & here[None, :], other=0.0)
        b = tl.load(right + y_at[:, None] * y_row, mask=masks[1] & here[:, None], other=0.0)
        sums = tl.dot(a, b, sums, input_precision=PRECISION, out_dtype=sums.dtype)
    return sums


@triton.jit(do_not_specialize=["rows"])
def multiply_chosen_depths(
    x,
    y,
    c,
    index,
    offsets,
    fault,
    rows,
    m,
    n,
    x_col,
    x_row,
    y_row,
    y_col,
    SIDE: tl.constexpr,
    SUM: tl.constexpr,
    TILE_M: tl.constexpr,
    TILE_N: tl.constexpr,
    TILE_K: tl.constexpr,
    PRECISION: tl.constexpr,
    EXACT: tl.constexpr,
):
    """One tile of one group's c, dense; program p has tile p of the tiles of group 0, 1, ..."""
    down, across = tl.cdiv(m, TILE_M), tl.cdiv(n, TILE_N)
    group = tl.program_id(0) // (down * across)
    tile = tl.program_id(0) % (down * across)
    begin, end = rows_of(group, offsets, 1, fault, rows, 0)
    begin, end = begin.to(tl.int32), end.to(tl.int32)
    row = ((tile % down) * TILE_M + tl.arange(0, TILE_M)).to(tl.int64)
    col = ((tile // down) * TILE_N + tl.arange(0, TILE_N)).to(tl.int64)
    left, right = x + row[:, None] * x_col, y + col[None, :] * y_col
    masks = ((row < m)[:, None], (col < n)[None, :])
    sums = tl.zeros((TILE_M, TILE_N), SUM)
    if EXACT:
        chain: tl.constexpr = 128
        for first in range(begin, end, chain):
            part = tl.zeros((TILE_M, TILE_N), SUM)
            last = first + tl.minimum(end - first, chain)
            sums += _added(
                part, left, right, index, x_row, y_row, masks, first, last, TILE_K, PRECISION, SIDE
            )
    else:
        sums = _added(
            sums, left, right, index, x_row, y_row, masks, begin, end, TILE_K, PRECISION, SIDE
        )
    place = c + group.to(tl.int64) * m * n + row[:, None] * n + col[None, :]
    tl.store(place, sums.to(c.dtype.element_ty), mask=masks[0] & masks[1])
