"""ragged_plans: from offsets on the device to the tables that ragged products read.

    offsets (ends of the groups)      plan_rows, a program a group        table (int32 x 4)
    [ 3 | 3 | 200 | ... ]      ->     tiles of all groups before mine  -> [how many  0  _  _]
                                      + my own                            [g  row  end  _] ...

    More programs clear rows that no group has. The table for depths has an entry of each group
    (plan_depths), those of most rows first.

Every such program reads all offsets before its own, which for many groups is too much: then blocks
of groups are counted side by side, and each finds its place by the counts of those before.

    count_groups    sums of a block: whole tiles, those that are not, the first wrong group
    place_groups    a block of groups: where each one's tiles begin; writes those that are not whole
    fill_groups     a block of whole tiles: each finds its group by bisection; clears rows
    count_long, place_long      the same for depths: groups of many rows first, all others after

Offsets lie `step` elements apart. Those that decrease, begin below 0 or run past the rows are found
here: `fault` gets the number of such a group plus one. For rows it is the first, and it counts as
empty with all after it; for depths it is any of them, and only they count as empty. Rows are up to
2^31 - 64, so no sum here goes past an end.
"""

import triton
import triton.language as tl


@triton.jit
def _bounds(ends, step, group, live, rows, LEADING: tl.constexpr):
    """Where groups begin and end, and which of them cannot be."""
    place = ends + group.to(tl.int64) * step
    begin = tl.load(place - step, mask=live & (group + LEADING > 0), other=0)
    end = tl.load(place, mask=live, other=0)
    return begin, end, live & ((end < begin) | (begin < 0) | (end > rows))


@triton.jit
def rows_of(group, offsets, step, fault, rows, LEADING: tl.constexpr):
    """Where a group begins and ends; 0 and 0, and its number left in `fault`, if that cannot be."""
    place = offsets + (group + LEADING).to(tl.int64) * step
    begin = tl.load(place - step, mask=group + LEADING > 0, other=0).to(tl.int64)
    end = tl.load(place).to(tl.int64)
    if (end < begin) | (begin < 0) | (end > rows):
        tl.store(fault, group + 1)
        begin = begin * 0
        end = begin
    return begin, end


@triton.jit
def _write(table, number, group, row, end, inside):
    """Entries of a table."""
    place = table + 4 + 4 * number.to(tl.int64)
    tl.store(place, group, mask=inside)
    tl.store(place + 1, row, mask=inside)
    tl.store(place + 2, end, mask=inside)


@triton.jit
def _write_head(table, count):
    column = tl.arange(0, 4)
    tl.store(table + column, tl.where(column == 0, count, 0))


@triton.jit
def _clear(c, c_row, c_col, part, first, last, rows, columns, CLEARED: tl.constexpr):
    """Zeros into those of CLEARED rows that lie before `first`, or from `last` on."""
    row = part.to(tl.int64) * CLEARED + tl.arange(0, CLEARED)
    idle = (row < rows) & ((row < first) | (row >= last))
    if tl.max(idle.to(tl.int32)) > 0:
        for start in range(0, columns, CLEARED):
            col = start + tl.arange(0, CLEARED).to(tl.int64)
            place = c + row[:, None] * c_row + col[None, :] * c_col
            value = tl.zeros((CLEARED, CLEARED), c.dtype.element_ty)
            tl.store(place, value, mask=idle[:, None] & (col < columns)[None, :])


@triton.jit
def _with_a_group(offsets, step, groups, rows, LEADING: tl.constexpr, BLOCK: tl.constexpr):
    """The first row of the first group, and the end of the last that is right and so computed."""
    ends = offsets + tl.full((), LEADING, tl.int64) * step
    first_bad = groups
    for start in range(0, groups, BLOCK):
        group = start + tl.arange(0, BLOCK)
        bad = _bounds(ends, step, group, group < groups, rows, LEADING)[2]
        first_bad = tl.minimum(first_bad, tl.min(tl.where(bad, group, groups)))
    place = ends + (first_bad - 1).to(tl.int64) * step
    last = tl.load(place, mask=first_bad > 0, other=0)
    first = tl.load(offsets, mask=LEADING > 0, other=0)
    return first, last


@triton.jit(do_not_specialize=["rows"])
def plan_rows(
    offsets,
    table,
    fault,
    c,
    rows,
    groups,
    step,
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
        ends = offsets + tl.full((), LEADING, tl.int64) * step
        _plan_group(
            ends, step, table, fault, mine, groups, rows, LEADING, TILE_M, RESTS_LAST, BLOCK
        )
    else:
        first, last = _with_a_group(offsets, step, groups, rows, LEADING, BLOCK)
        _clear(c, c_row, c_col, mine - groups, first, last, rows, columns, CLEARED)


@triton.jit
def _plan_group(
    ends,
    step,
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
        begin, end, bad = _bounds(ends, step, group, live, rows, LEADING)
        first_bad = tl.minimum(first_bad, tl.min(tl.where(bad, group, groups)))
        good = live & (group < first_bad)
        whole = tl.where(good, (end - begin) // TILE_M, 0).to(tl.int32)
        rest = tl.where(good, (end - begin) % TILE_M > 0, 0).to(tl.int32)
        before += tl.sum(tl.where(group < mine, whole + rest, 0))
        rests += tl.sum(tl.where(group < mine, rest, 0))
        wholes += tl.sum(whole)
    place = ends + mine.to(tl.int64) * step
    begin = tl.load(place - step, mask=mine + LEADING > 0, other=0).to(tl.int32)
    end = tl.load(place).to(tl.int32)
    length = end - begin
    own = tl.where(mine < first_bad, length // TILE_M + (length % TILE_M > 0).to(tl.int32), 0)
    for start in range(0, own, BLOCK):
        entry = start + tl.arange(0, BLOCK)
        number = before + entry
        left = length - entry * TILE_M
        if RESTS_LAST:
            number = tl.where(left < TILE_M, wholes + rests, number - rests)
        row = begin + entry * TILE_M
        group = tl.zeros((BLOCK,), tl.int32) + mine
        _write(table, number, group, row, row + tl.minimum(left, TILE_M), entry < own)
    if mine == groups - 1:
        _write_head(table, before + own)
        if first_bad < groups:
            tl.store(fault, first_bad + 1)


@triton.jit(do_not_specialize=["rows"])
def plan_depths(
    offsets,
    table,
    fault,
    rows,
    groups,
    step,
    LEADING: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """The entry of group `program_id(0)`, at its place: most rows first, then in order."""
    mine = tl.program_id(0)
    begin, end = rows_of(mine, offsets, step, fault, rows, LEADING)
    own = end - begin
    ends = offsets + tl.full((), LEADING, tl.int64) * step
    number = tl.zeros((), tl.int32)
    for start in range(0, groups, BLOCK):
        group = start + tl.arange(0, BLOCK)
        live = group < groups
        first, last, bad = _bounds(ends, step, group, live, rows, LEADING)
        length = tl.where(bad, 0, last - first)
        ahead = live & ((length > own) | ((length == own) & (group < mine)))
        number += tl.sum(ahead.to(tl.int32))
    _write(table, number, mine, begin.to(tl.int32), end.to(tl.int32), True)


@triton.jit(do_not_specialize=["rows"])
def count_groups(
    offsets,
    places,
    rows,
    groups,
    step,
    LEADING: tl.constexpr,
    TILE_M: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Program p counts groups p BLOCK on, up to the first that is wrong.

    `places` is int32 [2 groups + 4 + 4 blocks]: of each group how many whole tiles, and how many
    others, all before it have; of all groups; first and last row; the counts of blocks.
    """
    group = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    ends = offsets + tl.full((), LEADING, tl.int64) * step
    begin, end, bad = _bounds(ends, step, group, group < groups, rows, LEADING)
    first_bad = tl.min(tl.where(bad, group, groups))
    good = (group < groups) & (group < first_bad)
    whole = tl.where(good, (end - begin) // TILE_M, 0).to(tl.int32)
    rest = tl.where(good, (end - begin) % TILE_M > 0, 0).to(tl.int32)
    mine = places + 2 * groups + 4 + 4 * tl.program_id(0)
    tl.store(mine, tl.sum(whole))
    tl.store(mine + 1, tl.sum(rest))
    tl.store(mine + 2, first_bad)


@triton.jit
def _first_wrong(counts, blocks, groups, BLOCK: tl.constexpr):
    """The first wrong group of all."""
    first_bad = groups
    for start in range(0, blocks, BLOCK):
        block = start + tl.arange(0, BLOCK)
        found = tl.load(counts + 4 * block + 2, mask=block < blocks, other=groups)
        first_bad = tl.minimum(first_bad, tl.min(found))
    return first_bad


@triton.jit
def _sums(counts, last, mine, BLOCK: tl.constexpr):
    """Sums of a count of the blocks up to `last`, and of those before `mine`."""
    everything = tl.zeros((), tl.int32)
    before = tl.zeros((), tl.int32)
    for start in range(0, last + 1, BLOCK):
        block = start + tl.arange(0, BLOCK)
        found = tl.load(counts + 4 * block, mask=block <= last, other=0)
        everything += tl.sum(found)
        before += tl.sum(tl.where(block < mine, found, 0))
    return everything, before


@triton.jit(do_not_specialize=["rows"])
def place_groups(
    offsets,
    table,
    fault,
    places,
    rows,
    groups,
    step,
    LEADING: tl.constexpr,
    TILE_M: tl.constexpr,
    RESTS_LAST: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Program p writes the places of groups p BLOCK on, and their entries of fewer rows."""
    mine, blocks = tl.program_id(0), tl.num_programs(0)
    counts = places + 2 * groups + 4
    first_bad = _first_wrong(counts, blocks, groups, BLOCK)
    last = tl.minimum(first_bad // BLOCK, blocks - 1)
    wholes, wholes_before = _sums(counts, last, mine, BLOCK)
    rests, rests_before = _sums(counts + 1, last, mine, BLOCK)
    group = mine * BLOCK + tl.arange(0, BLOCK)
    ends = offsets + tl.full((), LEADING, tl.int64) * step
    begin, end, _ = _bounds(ends, step, group, group < groups, rows, LEADING)
    good = (group < groups) & (group < first_bad)
    whole = tl.where(good, (end - begin) // TILE_M, 0).to(tl.int32)
    rest = tl.where(good, (end - begin) % TILE_M > 0, 0).to(tl.int32)
    whole_at = wholes_before + tl.cumsum(whole, 0) - whole
    rest_at = rests_before + tl.cumsum(rest, 0) - rest
    tl.store(places + 2 * group, whole_at, mask=group < groups)
    tl.store(places + 2 * group + 1, rest_at, mask=group < groups)
    number = wholes + rest_at if RESTS_LAST else whole_at + rest_at + whole
    row = begin.to(tl.int32) + whole * TILE_M
    _write(table, number, group, row, end.to(tl.int32), good & (rest > 0))
    if mine == 0:
        _write_head(table, wholes + rests)
        place = ends + (first_bad - 1).to(tl.int64) * step
        until = tl.load(place, mask=first_bad > 0, other=0).to(tl.int32)
        first = tl.load(offsets, mask=(LEADING > 0) & (first_bad > 0), other=0).to(tl.int32)
        tl.store(places + 2 * groups, wholes)
        tl.store(places + 2 * groups + 1, first)
        tl.store(places + 2 * groups + 2, until)
        if first_bad < groups:
            tl.store(fault, first_bad + 1)


@triton.jit(do_not_specialize=["rows", "fills"])
def fill_groups(
    offsets,
    table,
    places,
    c,
    rows,
    fills,
    groups,
    step,
    columns,
    c_row,
    c_col,
    LEADING: tl.constexpr,
    TILE_M: tl.constexpr,
    RESTS_LAST: tl.constexpr,
    BLOCK: tl.constexpr,
    CLEARED: tl.constexpr,
):
    """Program p < fills writes whole tiles p BLOCK on; each of the others clears CLEARED rows."""
    mine = tl.program_id(0)
    if mine < fills:
        number = mine * BLOCK + tl.arange(0, BLOCK)
        wholes = tl.load(places + 2 * groups)
        inside = number < wholes
        if mine * BLOCK < wholes:
            group = _holder(places, number, groups, BLOCK)
            entry = number - tl.load(places + 2 * group)
            place = offsets + (group + LEADING - 1).to(tl.int64) * step
            begin = tl.load(place, mask=group + LEADING > 0, other=0).to(tl.int32)
            if not RESTS_LAST:
                number += tl.load(places + 2 * group + 1)
            row = begin + entry * TILE_M
            _write(table, number, group, row, row + TILE_M, inside)
    else:
        first = tl.load(places + 2 * groups + 1)
        last = tl.load(places + 2 * groups + 2)
        _clear(c, c_row, c_col, mine - fills, first, last, rows, columns, CLEARED)


@triton.jit
def _holder(places, number, groups, BLOCK: tl.constexpr):
    """The group that has a whole tile: the last with no more of them before it."""
    low = tl.zeros((BLOCK,), tl.int32)
    high = tl.zeros((BLOCK,), tl.int32) + groups
    for _ in range(0, 31):
        middle = low + (high - low) // 2
        after = tl.load(places + 2 * middle) <= number
        low = tl.where(after, middle, low)
        high = tl.where(after, high, middle)
    return low


@triton.jit(do_not_specialize=["rows", "long"])
def count_long(
    offsets,
    fault,
    places,
    rows,
    long,
    groups,
    step,
    LEADING: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Program p counts those of groups p BLOCK on that have more than `long` rows."""
    group = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    ends = offsets + tl.full((), LEADING, tl.int64) * step
    begin, end, bad = _bounds(ends, step, group, group < groups, rows, LEADING)
    many = (group < groups) & (end - begin > long) & (bad == 0)
    tl.store(places + 4 * tl.program_id(0), tl.sum(many.to(tl.int32)))
    first_bad = tl.min(tl.where(bad, group, groups))
    if first_bad < groups:
        tl.store(fault, first_bad + 1)


@triton.jit(do_not_specialize=["rows", "long"])
def place_long(
    offsets,
    table,
    places,
    rows,
    long,
    groups,
    step,
    LEADING: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Program p writes the entries of groups p BLOCK on: those of more than `long` rows first."""
    mine = tl.program_id(0)
    everything, before = _sums(places, tl.num_programs(0) - 1, mine, BLOCK)
    group = mine * BLOCK + tl.arange(0, BLOCK)
    ends = offsets + tl.full((), LEADING, tl.int64) * step
    begin, end, bad = _bounds(ends, step, group, group < groups, rows, LEADING)
    begin, end = tl.where(bad, 0, begin).to(tl.int32), tl.where(bad, 0, end).to(tl.int32)
    many = ((group < groups) & (end - begin > long)).to(tl.int32)
    at = before + tl.cumsum(many, 0) - many
    number = tl.where(many > 0, at, everything + group - at)
    _write(table, number, group, begin, end, group < groups)
