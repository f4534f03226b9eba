"""ragged: products whose sizes are known on the device alone. Nothing here is read back.

    multiply_rows   x [t, k] rows of group g  x  w[g] [k, n]  ->  the same rows of c [t, n]

        x   row .. row + TILE_M           w[g]   col .. col + TILE_N
        rows past `end` are another's:       |
        masked, never stored                 v
                    +------------------>  +--------+   persistent: program p takes tiles p,
                    TILE_M                | C tile |   p + programs, ... of entries x those along n;
                                          +--------+   BAND tiles down share what they read of w

    multiply_depths   x [m, t] columns of group g  x  y [t, n] rows of group g  ->  c[g] [m, n]
    sum_depths        the same where m is 1

Tables are written by ragged_plans.py, which also says what becomes of offsets that cannot be.
EXACT: 128 of k are summed in a chain, then the chains, as grouped.py has it: with 256, where no
engine cuts a k of 2000, constants were 2.9e-6 off on an H200, cuBLAS 0.3e-6.
"""

import triton
import triton.language as tl

from tilewright.backends.cuda.kernels.triton.ragged_offsets import rows_of


@triton.jit
def _added(
    sums,
    left,
    right,
    x_step,
    w_step,
    x_mask,
    w_mask,
    begin,
    end,
    TILE_K: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """`sums` with the products of k from `begin` to `end`, and where the blocks go on."""
    depth = tl.arange(0, TILE_K)
    for at in range(begin, end, TILE_K):
        here = depth < end - at
        a = tl.load(left, mask=x_mask & here[None, :], other=0.0)
        b = tl.load(right, mask=w_mask & here[:, None], other=0.0)
        sums = tl.dot(a, b, sums, input_precision=PRECISION, out_dtype=sums.dtype)
        left += x_step
        right += w_step
    return sums, left, right


@triton.jit
def _product(
    left,
    right,
    how,
    k,
    SUM: tl.constexpr,
    TILE_M: tl.constexpr,
    TILE_N: tl.constexpr,
    TILE_K: tl.constexpr,
    PRECISION: tl.constexpr,
    EXACT: tl.constexpr,
    CHAIN: tl.constexpr = 128,
):
    """A tile of C: blocks of x and w from these on, along all of k; `how` has steps and masks."""
    total = tl.zeros((TILE_M, TILE_N), SUM)
    if EXACT:
        for begin in range(0, k, CHAIN):
            sums = tl.zeros((TILE_M, TILE_N), SUM)
            end = begin + tl.minimum(k - begin, CHAIN)
            sums, left, right = _added(sums, left, right, *how, begin, end, TILE_K, PRECISION)
            total += sums
    else:
        total, left, right = _added(total, left, right, *how, 0, k, TILE_K, PRECISION)
    return total


@triton.jit
def multiply_rows(
    x,
    w,
    c,
    bias,
    table,
    n,
    k,
    x_row,
    x_col,
    w_group,
    w_row,
    w_col,
    c_row,
    c_col,
    bias_group,
    bias_col,
    SUM: tl.constexpr,
    TILE_M: tl.constexpr,
    TILE_N: tl.constexpr,
    TILE_K: tl.constexpr,
    BAND: tl.constexpr,
    BIAS: tl.constexpr,
    PRECISION: tl.constexpr,
    EXACT: tl.constexpr,
):
    """C tiles of the ragged rows; strides in elements."""
    down = tl.load(table)
    across = tl.cdiv(n, TILE_N)
    x_step = tl.full((), TILE_K, tl.int64) * x_col
    w_step = tl.full((), TILE_K, tl.int64) * w_row
    for index in range(tl.program_id(0), down * across, tl.num_programs(0)):
        band = index // (BAND * across)
        within = index - band * BAND * across
        height = tl.minimum(down - band * BAND, BAND)
        entry = table + 4 + 4 * (band * BAND + within % height)
        col = (within // height) * TILE_N + tl.arange(0, TILE_N)
        group = tl.load(entry).to(tl.int64)
        row = tl.load(entry + 1).to(tl.int64) + tl.arange(0, TILE_M)
        inside = row < tl.load(entry + 2)
        depth = tl.arange(0, TILE_K)
        left = x + row[:, None] * x_row + depth[None, :].to(tl.int64) * x_col
        right = w + group * w_group
        right += depth[:, None].to(tl.int64) * w_row + col[None, :].to(tl.int64) * w_col
        how = (x_step, w_step, inside[:, None], (col < n)[None, :])
        sums = _product(left, right, how, k, SUM, TILE_M, TILE_N, TILE_K, PRECISION, EXACT)
        if BIAS:
            place = bias + group * bias_group + col.to(tl.int64) * bias_col
            added = tl.load(place, mask=col < n, other=0.0)
            sums += added.to(SUM)[None, :]
        place = c + row[:, None] * c_row + col[None, :].to(tl.int64) * c_col
        tl.store(place, sums.to(c.dtype.element_ty), mask=inside[:, None] & (col < n)[None, :])


@triton.jit(do_not_specialize=["depth_rows"])
def multiply_depths(
    x,
    y,
    c,
    offsets,
    fault,
    depth_rows,
    step,
    m,
    n,
    x_row,
    x_col,
    y_row,
    y_col,
    c_group,
    c_row,
    c_col,
    LEADING: tl.constexpr,
    SUM: tl.constexpr,
    TILE_M: tl.constexpr,
    TILE_N: tl.constexpr,
    TILE_K: tl.constexpr,
    PRECISION: tl.constexpr,
    EXACT: tl.constexpr,
):
    """One tile of one group's C; program p has tile p of the tiles of group 0, 1, ..."""
    down, across = tl.cdiv(m, TILE_M), tl.cdiv(n, TILE_N)
    group = tl.program_id(0) // (down * across)
    tile = tl.program_id(0) % (down * across)
    begin, end = rows_of(group, offsets, step, fault, depth_rows, LEADING)
    row = ((tile % down) * TILE_M + tl.arange(0, TILE_M)).to(tl.int64)
    col = ((tile // down) * TILE_N + tl.arange(0, TILE_N)).to(tl.int64)
    depth = begin + tl.arange(0, TILE_K)
    left = x + row[:, None] * x_row + depth[None, :] * x_col
    right = y + depth[:, None] * y_row + col[None, :] * y_col
    x_step = tl.full((), TILE_K, tl.int64) * x_col
    y_step = tl.full((), TILE_K, tl.int64) * y_row
    how = (x_step, y_step, (row < m)[:, None], (col < n)[None, :])
    length = (end - begin).to(tl.int32)
    sums = _product(left, right, how, length, SUM, TILE_M, TILE_N, TILE_K, PRECISION, EXACT)
    place = c + group.to(tl.int64) * c_group + row[:, None] * c_row + col[None, :] * c_col
    tl.store(place, sums.to(c.dtype.element_ty), mask=(row < m)[:, None] & (col < n)[None, :])


@triton.jit(do_not_specialize=["depth_rows"])
def sum_depths(
    x,
    y,
    c,
    offsets,
    fault,
    depth_rows,
    step,
    n,
    x_col,
    y_row,
    y_col,
    c_group,
    c_col,
    LEADING: tl.constexpr,
    SUM: tl.constexpr,
    TILE_N: tl.constexpr,
    TILE_K: tl.constexpr,
):
    """Depths where x has one row, as gradients of a bias have: a part of one group's row of C.

    Bound by how fast y is read, which products of whole tiles read no faster. What rounding takes
    from a long sum is added again (Kahan 1965), which takes no longer than sums of sums did.
    """
    across = tl.cdiv(n, TILE_N)
    group = tl.program_id(0) // across
    begin, end = rows_of(group, offsets, step, fault, depth_rows, LEADING)
    col = ((tl.program_id(0) % across) * TILE_N + tl.arange(0, TILE_N)).to(tl.int64)
    depth = begin + tl.arange(0, TILE_K)
    right = y + depth[:, None] * y_row + col[None, :] * y_col
    y_step = tl.full((), TILE_K, tl.int64) * y_row
    sums = tl.zeros((TILE_K, TILE_N), SUM)
    lost = tl.zeros((TILE_K, TILE_N), SUM)
    for _ in range(0, tl.cdiv(end - begin, TILE_K)):
        here = depth < end
        a = tl.load(x + depth * x_col, mask=here, other=0.0).to(SUM)
        b = tl.load(right, mask=here[:, None] & (col < n)[None, :], other=0.0).to(SUM)
        more = a[:, None] * b - lost
        grown = sums + more
        lost = tl.where(grown - grown == 0, (grown - sums) - more, 0.0)  # infinity loses nothing
        sums = grown
        depth += TILE_K
        right += y_step
    found = tl.sum(sums, 0).to(c.dtype.element_ty)
    tl.store(c + group.to(tl.int64) * c_group + col * c_col, found, mask=col < n)
