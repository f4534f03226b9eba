"""ragged: products whose sizes are known on the device alone. Nothing here is read back.

    offsets (ends of the groups)      plan_rows, a program a group        table (int32 x 4)
    [ 3 | 3 | 200 | ... ]      ->     tiles of all groups before mine  -> [how many  0  _  _]
                                      + my own                            [g  row  end  _] ...

    More programs clear rows that no group has. The Hopper kernels read such a table too; that for
    depths has an entry of each group (plan_depths), those of most rows first.

    multiply_rows   x [t, k] rows of group g  x  w[g] [k, n]  ->  the same rows of c [t, n]

        x   row .. row + TILE_M           w[g]   col .. col + TILE_N
        rows past `end` are another's:       |
        masked, never stored                 v
                    +------------------>  +--------+   persistent: program p takes tiles p,
                    TILE_M                | C tile |   p + programs, ... of entries x those along n;
                                          +--------+   BAND tiles down share what they read of w

    multiply_depths   x [m, t] columns of group g  x  y [t, n] rows of group g  ->  c[g] [m, n]
    sum_depths        the same where m is 1

Offsets that decrease, begin below 0 or run past the rows are found here: `fault` gets the number of
such a group plus one. For multiply_rows it is the first, and it counts as empty with all after it;
for multiply_depths it is any of them, and only they count as empty.
"""

import triton
import triton.language as tl


@triton.jit
def _bounds(ends, group, live, rows, LEADING: tl.constexpr):
    """Where groups begin and end, and which of them cannot be."""
    begin = tl.load(ends + group - 1, mask=live & (group + LEADING > 0), other=0)
    end = tl.load(ends + group, mask=live, other=0)
    return begin, end, live & ((end < begin) | (begin < 0) | (end > rows))


@triton.jit
def plan_rows(
    offsets,
    table,
    fault,
    c,
    groups,
    rows,
    columns,
    c_row,
    c_col,
    LEADING: tl.constexpr,
    TILE_M: tl.constexpr,
    RESTS_LAST: tl.constexpr,
    BLOCK: tl.constexpr,
    CLEARED: tl.constexpr,
):
    """Program g writes the entries of group g; each past the groups clears CLEARED rows of c."""
    mine = tl.program_id(0)
    if mine < groups:
        ends = offsets + LEADING
        _plan_group(ends, table, fault, mine, groups, rows, LEADING, TILE_M, RESTS_LAST, BLOCK)
    else:
        row = (mine - groups).to(tl.int64) * CLEARED + tl.arange(0, CLEARED)
        idle = (row < rows) & _has_no_group(offsets, row, groups, rows, LEADING, BLOCK)
        if tl.max(idle.to(tl.int32)) > 0:
            for start in range(0, columns, CLEARED):
                col = start + tl.arange(0, CLEARED).to(tl.int64)
                place = c + row[:, None] * c_row + col[None, :] * c_col
                value = tl.zeros((CLEARED, CLEARED), c.dtype.element_ty)
                tl.store(place, value, mask=idle[:, None] & (col < columns)[None, :])


@triton.jit
def _plan_group(
    ends,
    table,
    fault,
    mine,
    groups,
    rows,
    LEADING: tl.constexpr,
    TILE_M: tl.constexpr,
    RESTS_LAST: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Table entries of one group; that of the last group also how many there are.

    RESTS_LAST: entries of TILE_M rows come before all others, so that long work is not begun late.
    """
    first_bad = groups
    before = tl.zeros((), tl.int32)  # entries of the groups before this one
    rests = tl.zeros((), tl.int32)  # those of them that have fewer rows
    wholes = tl.zeros((), tl.int32)  # entries of TILE_M rows of all groups
    for start in range(0, groups if RESTS_LAST else mine + 1, BLOCK):
        group = start + tl.arange(0, BLOCK)
        live = group < groups if RESTS_LAST else group <= mine
        begin, end, bad = _bounds(ends, group, live, rows, LEADING)
        first_bad = tl.minimum(first_bad, tl.min(tl.where(bad, group, groups)))
        good = live & (group < first_bad)
        whole = tl.where(good, (end - begin) // TILE_M, 0).to(tl.int32)
        rest = tl.where(good, (end - begin) % TILE_M > 0, 0).to(tl.int32)
        before += tl.sum(tl.where(group < mine, whole + rest, 0))
        rests += tl.sum(tl.where(group < mine, rest, 0))
        wholes += tl.sum(whole)
    begin = tl.load(ends + mine - 1, mask=mine + LEADING > 0, other=0).to(tl.int32)
    end = tl.load(ends + mine).to(tl.int32)
    own = tl.where(mine < first_bad, (end - begin + TILE_M - 1) // TILE_M, 0)
    for start in range(0, own, BLOCK):
        entry = start + tl.arange(0, BLOCK)
        number = before + entry
        if RESTS_LAST:
            number = tl.where((entry + 1) * TILE_M > end - begin, wholes + rests, number - rests)
        place = table + 4 + 4 * number
        inside = entry < own
        tl.store(place, tl.zeros((BLOCK,), tl.int32) + mine, mask=inside)
        row = begin + entry * TILE_M
        tl.store(place + 1, row, mask=inside)
        tl.store(place + 2, tl.minimum(end, row + TILE_M), mask=inside)
    if mine == groups - 1:
        column = tl.arange(0, 4)
        tl.store(table + column, tl.where(column == 0, before + own, 0))
        if first_bad < groups:
            tl.store(fault, first_bad + 1)


@triton.jit
def _has_no_group(offsets, row, groups, rows, LEADING: tl.constexpr, BLOCK: tl.constexpr):
    """Whether rows lie before the first group, or past the last that is right and so computed."""
    ends = offsets + LEADING
    first_bad = groups
    for start in range(0, groups, BLOCK):
        group = start + tl.arange(0, BLOCK)
        bad = _bounds(ends, group, group < groups, rows, LEADING)[2]
        first_bad = tl.minimum(first_bad, tl.min(tl.where(bad, group, groups)))
    last = tl.load(ends + first_bad - 1, mask=first_bad > 0, other=0)
    first = tl.load(offsets, mask=LEADING > 0, other=0)
    return (row < first) | (row >= last)


@triton.jit
def rows_of(group, offsets, fault, rows, LEADING: tl.constexpr):
    """Where a group begins and ends; 0 and 0, and its number left in `fault`, if that cannot be."""
    ends = offsets + LEADING
    begin = tl.load(ends + group - 1, mask=group + LEADING > 0, other=0).to(tl.int64)
    end = tl.load(ends + group).to(tl.int64)
    if (end < begin) | (begin < 0) | (end > rows):
        tl.store(fault, group + 1)
        begin = begin * 0
        end = begin
    return begin, end


@triton.jit
def plan_depths(offsets, table, fault, groups, rows, LEADING: tl.constexpr, BLOCK: tl.constexpr):
    """The entry of group `program_id(0)`, at its place: most rows first, then in order."""
    mine = tl.program_id(0)
    begin, end = rows_of(mine, offsets, fault, rows, LEADING)
    own = end - begin
    ends = offsets + LEADING
    place = tl.zeros((), tl.int32)
    for start in range(0, groups, BLOCK):
        group = start + tl.arange(0, BLOCK)
        live = group < groups
        first, last, bad = _bounds(ends, group, live, rows, LEADING)
        length = tl.where(bad, 0, last - first)
        ahead = live & ((length > own) | ((length == own) & (group < mine)))
        place += tl.sum(ahead.to(tl.int32))
    entry = table + 4 + 4 * place
    tl.store(entry, mine)
    tl.store(entry + 1, begin.to(tl.int32))
    tl.store(entry + 2, end.to(tl.int32))


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
        sums = tl.zeros((TILE_M, TILE_N), SUM)
        for at in range(0, k, TILE_K):
            here = depth < k - at
            a = tl.load(left, mask=inside[:, None] & here[None, :], other=0.0)
            b = tl.load(right, mask=here[:, None] & (col < n)[None, :], other=0.0)
            sums = tl.dot(a, b, sums, input_precision=PRECISION, out_dtype=SUM)
            left += x_step
            right += w_step
        if BIAS:
            place = bias + group * bias_group + col.to(tl.int64) * bias_col
            added = tl.load(place, mask=col < n, other=0.0)
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
    begin, end = rows_of(group, offsets, fault, depth_rows, LEADING)
    row = ((tile % down) * TILE_M + tl.arange(0, TILE_M)).to(tl.int64)
    col = ((tile // down) * TILE_N + tl.arange(0, TILE_N)).to(tl.int64)
    depth = begin + tl.arange(0, TILE_K)
    left = x + row[:, None] * x_row + depth[None, :] * x_col
    right = y + depth[:, None] * y_row + col[None, :] * y_col
    x_step = tl.full((), TILE_K, tl.int64) * x_col
    y_step = tl.full((), TILE_K, tl.int64) * y_row
    sums = tl.zeros((TILE_M, TILE_N), SUM)
    for _ in range(0, tl.cdiv(end - begin, TILE_K)):
        here = depth < end
        a = tl.load(left, mask=(row < m)[:, None] & here[None, :], other=0.0)
        b = tl.load(right, mask=here[:, None] & (col < n)[None, :], other=0.0)
        sums = tl.dot(a, b, sums, input_precision=PRECISION, out_dtype=SUM)
        depth += TILE_K
        left += x_step
        right += y_step
    place = c + group.to(tl.int64) * c_group + row[:, None] * c_row + col[None, :] * c_col
    tl.store(place, sums.to(c.dtype.element_ty), mask=(row < m)[:, None] & (col < n)[None, :])


@triton.jit
def sum_depths(
    x,
    y,
    c,
    offsets,
    fault,
    depth_rows,
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

    Bound by how fast y is read, which products of whole tiles read no faster.
    """
    across = tl.cdiv(n, TILE_N)
    group = tl.program_id(0) // across
    begin, end = rows_of(group, offsets, fault, depth_rows, LEADING)
    col = ((tl.program_id(0) % across) * TILE_N + tl.arange(0, TILE_N)).to(tl.int64)
    depth = begin + tl.arange(0, TILE_K)
    right = y + depth[:, None] * y_row + col[None, :] * y_col
    y_step = tl.full((), TILE_K, tl.int64) * y_row
    sums = tl.zeros((TILE_K, TILE_N), SUM)
    for _ in range(0, tl.cdiv(end - begin, TILE_K)):
        here = depth < end
        a = tl.load(x + depth * x_col, mask=here, other=0.0).to(SUM)
        b = tl.load(right, mask=here[:, None] & (col < n)[None, :], other=0.0).to(SUM)
        sums += a[:, None] * b
        depth += TILE_K
        right += y_step
    found = tl.sum(sums, 0).to(c.dtype.element_ty)
    tl.store(c + group.to(tl.int64) * c_group + col * c_col, found, mask=col < n)
