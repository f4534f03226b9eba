"""ragged_plans: from offsets on the device to the tables that ragged products read.

    offsets (ends of the groups)      plan_rows, a program a group        table (int32 x 4)
    [ 3 | 3 | 200 | ... ]      ->     tiles of all groups before mine  -> [how many  0  _  _]
                                      + my own                            [g  row  end  _] ...

    More programs clear rows that no group has. The table for depths has an entry of each group
    (plan_depths), those of most rows first.

Every program reads all offsets before its own, which for many groups is too much: those are planned
by blocks of them (ragged_blocks.py). Of groups that cannot be (ragged_offsets.py), for rows the
first counts as empty with all after it; for depths any of them, and only they.
"""

import triton
import triton.language as tl

from tilewright.backends.cuda.kernels.triton.ragged_offsets import (
    bounds,
    clear_rows,
    rows_of,
    with_a_group,
    write_entries,
    write_head,
)


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
        first, last = with_a_group(offsets, step, groups, rows, LEADING, BLOCK)
        clear_rows(c, c_row, c_col, mine - groups, first, last, rows, columns, CLEARED)


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
        begin, end, bad = bounds(ends, step, group, live, rows, LEADING)
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
        write_entries(table, number, group, row, row + tl.minimum(left, TILE_M), entry < own)
    if mine == groups - 1:
        write_head(table, before + own)
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
        first, last, bad = bounds(ends, step, group, live, rows, LEADING)
        length = tl.where(bad, 0, last - first)
        ahead = live & ((length > own) | ((length == own) & (group < mine)))
        number += tl.sum(ahead.to(tl.int32))
    write_entries(table, number, mine, begin.to(tl.int32), end.to(tl.int32), True)
