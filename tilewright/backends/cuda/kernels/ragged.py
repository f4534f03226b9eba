"""ragged: products whose sizes are known on the device alone. Nothing here is read back.

    offsets (ends of the groups)      plan_rows, a program a group        tiles (int32 x 4)
    [ 3 | 3 | 200 | ... ]      ->     tiles of all groups before mine  -> [g  row  end  _] ...
                                      + my own                            total: how many

    The table of the Hopper kernel has the same entries, with the total in an entry before them.

    multiply_rows   x [t, k] rows of group g  x  w[g] [k, n]  ->  the same rows of c [t, n]

        x   row .. row + TILE_M           w[g]   col .. col + TILE_N
        rows past `end` are another's:       |
        masked, never stored                 v
                    +------------------>  +--------+   persistent: program p takes tiles p,
                    TILE_M                | C tile |   p + programs, ... of `total` x tiles along n;
                                          +--------+   BAND tiles down share what they read of w

    multiply_depths   x [m, t] columns of group g  x  y [t, n] rows of group g  ->  c[g] [m, n]

Offsets that decrease, begin below 0 or run past the rows are found here: `fault` gets the number of
such a group plus one. For multiply_rows it is the first, and it counts as empty with all after it;
for multiply_depths it is any of them, and only they count as empty.
"""

import triton
import triton.language as tl


@triton.jit
def plan_rows(
    offsets,
    tiles,
    total,
    fault,
    groups,
    rows,
    LEADING: tl.constexpr,
    TILE_M: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Table entries of group `program_id(0)`; the last program writes how many there are."""
    mine = tl.program_id(0)
    ends = offsets + LEADING
    first_bad = groups
    before = tl.zeros((), tl.int32)
    for start in range(0, mine + 1, BLOCK):
        group = start + tl.arange(0, BLOCK)
        live = group <= mine
        begin = tl.load(ends + group - 1, mask=live & (group + LEADING > 0), other=0)
        end = tl.load(ends + group, mask=live, other=0)
        bad = live & ((end < begin) | (begin < 0) | (end > rows))
        first_bad = tl.minimum(first_bad, tl.min(tl.where(bad, group, groups)))
        counted = (group < mine) & (group < first_bad)
        count = (end - begin + TILE_M - 1) // TILE_M
        before += tl.sum(tl.where(counted, count, 0)).to(tl.int32)
    begin = tl.load(ends + mine - 1, mask=mine + LEADING > 0, other=0).to(tl.int32)
    end = tl.load(ends + mine).to(tl.int32)
    own = tl.where(mine < first_bad, (end - begin + TILE_M - 1) // TILE_M, 0)
    for start in range(0, own, BLOCK):
        entry = start + tl.arange(0, BLOCK)
        place = tiles + 4 * (before + entry)
        inside = entry < own
        tl.store(place, tl.zeros((BLOCK,), tl.int32) + mine, mask=inside)
        row = begin + entry * TILE_M
        tl.store(place + 1, row, mask=inside)
        tl.store(place + 2, tl.minimum(end, row + TILE_M), mask=inside)
    if mine == groups - 1:
        tl.store(total, before + own)
        if first_bad < groups:
            tl.store(fault, first_bad + 1)


@triton.jit
def clear_rows(
    offsets,
    c,
    groups,
    rows,
    columns,
    c_row,
    c_col,
    LEADING: tl.constexpr,
    TILE_M: tl.constexpr,
    TILE_N: tl.constexpr,
):
    """Zeros in the rows of c that no group has: those before the first and past the last."""
    row = tl.program_id(0) * TILE_M + tl.arange(0, TILE_M).to(tl.int64)
    first = tl.load(offsets).to(tl.int64) if LEADING else 0
    last = tl.load(offsets + groups - 1 + LEADING).to(tl.int64)
    idle = (row < rows) & ((row < first) | (row >= last))
    if tl.max(idle.to(tl.int32)) > 0:
        for start in range(0, columns, TILE_N):
            col = start + tl.arange(0, TILE_N).to(tl.int64)
            place = c + row[:, None] * c_row + col[None, :] * c_col
            value = tl.zeros((TILE_M, TILE_N), c.dtype.element_ty)
            tl.store(place, value, mask=idle[:, None] & (col < columns)[None, :])


@triton.jit
def multiply_rows(
    x,
    w,
    c,
    bias,
    tiles,
    total,
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
):
    """C tiles of the ragged rows; strides in elements."""
    down = tl.load(total)
    across = tl.cdiv(n, TILE_N)
    for index in range(tl.program_id(0), down * across, tl.num_programs(0)):
        band = index // (BAND * across)
        within = index - band * BAND * across
        height = tl.minimum(down - band * BAND, BAND)
        entry = tiles + 4 * (band * BAND + within % height)
        col = (within // height) * TILE_N + tl.arange(0, TILE_N)
        group = tl.load(entry).to(tl.int64)
        row = tl.load(entry + 1).to(tl.int64) + tl.arange(0, TILE_M)
        inside = row < tl.load(entry + 2)
        depth = tl.arange(0, TILE_K)
        left = x + row[:, None] * x_row + depth[None, :].to(tl.int64) * x_col
        right = w + group * w_group
        right += depth[:, None].to(tl.int64) * w_row + col[None, :].to(tl.int64) * w_col
        sums = tl.zeros((TILE_M, TILE_N), SUM)
        for at in range(0, k, TILE_K):
            here = depth < k - at
            a = tl.load(left, mask=inside[:, None] & here[None, :], other=0.0)
            b = tl.load(right, mask=here[:, None] & (col < n)[None, :], other=0.0)
            sums = tl.dot(a, b, sums, input_precision=PRECISION, out_dtype=SUM)
            left += TILE_K * x_col
            right += TILE_K * w_row
        if BIAS:
            added = tl.load(bias + group * bias_group + col * bias_col, mask=col < n, other=0.0)
            sums += added.to(SUM)[None, :]
        place = c + row[:, None] * c_row + col[None, :].to(tl.int64) * c_col
        tl.store(place, sums.to(c.dtype.element_ty), mask=inside[:, None] & (col < n)[None, :])


@triton.jit
def multiply_depths(
    x,
    y,
    c,
    offsets,
    fault,
    depth_rows,
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
):
    """One tile of one group's C; program p has tile p of the tiles of group 0, 1, ..."""
    down, across = tl.cdiv(m, TILE_M), tl.cdiv(n, TILE_N)
    group = tl.program_id(0) // (down * across)
    tile = tl.program_id(0) % (down * across)
    ends = offsets + LEADING
    begin = tl.load(ends + group - 1, mask=group + LEADING > 0, other=0).to(tl.int64)
    end = tl.load(ends + group).to(tl.int64)
    if (end < begin) | (begin < 0) | (end > depth_rows):
        tl.store(fault, group + 1)
        end = begin
    row = ((tile % down) * TILE_M + tl.arange(0, TILE_M)).to(tl.int64)
    col = ((tile // down) * TILE_N + tl.arange(0, TILE_N)).to(tl.int64)
    depth = begin + tl.arange(0, TILE_K)
    left = x + row[:, None] * x_row + depth[None, :] * x_col
    right = y + depth[:, None] * y_row + col[None, :] * y_col
    sums = tl.zeros((TILE_M, TILE_N), SUM)
    for _ in range(0, tl.cdiv(end - begin, TILE_K)):
        here = depth < end
        a = tl.load(left, mask=(row < m)[:, None] & here[None, :], other=0.0)
        b = tl.load(right, mask=here[:, None] & (col < n)[None, :], other=0.0)
        sums = tl.dot(a, b, sums, input_precision=PRECISION, out_dtype=SUM)
        depth += TILE_K
        left += TILE_K * x_col
        right += TILE_K * y_row
    place = c + group.to(tl.int64) * c_group + row[:, None] * c_row + col[None, :] * c_col
    tl.store(place, sums.to(c.dtype.element_ty), mask=(row < m)[:, None] & (col < n)[None, :])
