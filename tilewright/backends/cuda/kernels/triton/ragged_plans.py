"""ragged_plans: from offsets on the device to the tables that ragged products read.

    offsets (ends of the groups)      plan_rows, a program a group        table (int32 x 4)
    [ 3 | 3 | 200 | ... ]      ->     entries of all groups that    ->    [how many  0  _  _]
                                      come before mine, + my own          [g  row  end  turn] ...

    An entry has at most TILE_M rows. A group is cut into as few entries as that allows, all about
    as long: each a multiple of UNIT rows but for the group's end. (A UNIT of TILE_M rows makes
    entries of TILE_M and one of what is left.) Entries of a group follow one another; up to TURNS
    of them work on their tiles in turns, and `turn` says which of how many an entry is.

    order of groups   RESTS_LAST: all entries of TILE_M rows, then what is left of each group;
                      LONG_FIRST: groups with longer entries first; else as they are

    More programs clear rows that no group has. The table for depths has an entry of each group
    (plan_depths), those of most rows first.

Every program reads all offsets, which for many groups is too much: those are planned by blocks of
them (ragged_blocks.py). Of groups that cannot be (ragged_offsets.py), for rows the
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
    UNIT: tl.constexpr,
    TURNS: tl.constexpr,
    RESTS_LAST: tl.constexpr,
    LONG_FIRST: tl.constexpr,
    BLOCK: tl.constexpr,
    CLEARED: tl.constexpr,
):
    """Program g writes the entries of group g; each past the groups clears CLEARED rows of c."""
    mine = tl.program_id(0)
    if mine < groups:
        ends = offsets + tl.full((), LEADING, tl.int64) * step
        plan_group(
            ends, step, table, fault, mine, groups, rows,
            LEADING, TILE_M, UNIT, TURNS, RESTS_LAST, LONG_FIRST, BLOCK,
        )  # fmt: skip
    else:
        first, last = with_a_group(offsets, step, groups, rows, LEADING, BLOCK)
        clear_rows(c, c_row, c_col, mine - groups, first, last, rows, columns, CLEARED)


@triton.jit
def plan_group(
    ends,
    step,
    table,
    fault,
    mine,
    groups,
    rows,
    LEADING: tl.constexpr,
    TILE_M: tl.constexpr,
    UNIT: tl.constexpr,
    TURNS: tl.constexpr,
    RESTS_LAST: tl.constexpr,
    LONG_FIRST: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Table entries of one group; that of the last group also how many there are."""
    if RESTS_LAST:
        _plan_wholes(ends, step, table, fault, mine, groups, rows, LEADING, TILE_M, TURNS, BLOCK)
    else:
        _plan_evenly(
            ends, step, table, fault, mine, groups, rows,
            LEADING, TILE_M, UNIT, TURNS, LONG_FIRST, BLOCK,
        )  # fmt: skip


@triton.jit
def _plan_wholes(
    ends,
    step,
    table,
    fault,
    mine,
    groups,
    rows,
    LEADING: tl.constexpr,
    TILE_M: tl.constexpr,
    TURNS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Table entries of one group; that of the last group also how many there are.

    Entries of TILE_M rows come before all others, so that long work is not begun late.
    """
    first_bad = groups
    before = tl.zeros((), tl.int32)  # entries of the groups before this one
    rests = tl.zeros((), tl.int32)  # those of them that have fewer rows
    wholes = tl.zeros((), tl.int32)  # entries of TILE_M rows of all groups
    for start in range(0, groups, BLOCK):
        group, begin, end, good, first_bad = looked_at(
            start, ends, step, groups, rows, first_bad, LEADING, BLOCK
        )
        whole = tl.where(good, (end - begin) // TILE_M, 0).to(tl.int32)
        rest = tl.where(good, (end - begin) % TILE_M > 0, 0).to(tl.int32)
        before += tl.sum(tl.where(group < mine, whole + rest, 0))
        rests += tl.sum(tl.where(group < mine, rest, 0))
        wholes += tl.sum(whole)
    begin, length = _rows_of(mine, ends, step, LEADING)
    own = tl.where(mine < first_bad, length // TILE_M + (length % TILE_M > 0).to(tl.int32), 0)
    for start in range(0, own, BLOCK):
        entry = start + tl.arange(0, BLOCK)
        left = length - entry * TILE_M
        number = tl.where(left < TILE_M, wholes + rests, before + entry - rests)
        turn = tl.where(left < TILE_M, 0, _turn_of(entry, length // TILE_M, TURNS))
        row = begin + entry * TILE_M
        group = tl.zeros((BLOCK,), tl.int32) + mine
        end = row + tl.minimum(left, TILE_M)
        write_entries(table, number, group, row, end, turn, entry < own)
    if mine == groups - 1:
        _conclude(table, before + own, fault, first_bad, groups)


@triton.jit
def _plan_evenly(
    ends,
    step,
    table,
    fault,
    mine,
    groups,
    rows,
    LEADING: tl.constexpr,
    TILE_M: tl.constexpr,
    UNIT: tl.constexpr,
    TURNS: tl.constexpr,
    LONG_FIRST: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Table entries of one group, cut evenly; that of the last group also how many there are.

    LONG_FIRST: they come after those of all groups whose longest entry has more rows.
    """
    begin, length = _rows_of(mine, ends, step, LEADING)
    own, units, longest = cut(length, TILE_M, UNIT)
    first_bad = groups
    before = tl.zeros((), tl.int32)  # entries of the groups that come before this one
    everything = tl.zeros((), tl.int32)  # entries of all groups
    for start in range(0, groups, BLOCK):
        group, first, last, good, first_bad = looked_at(
            start, ends, step, groups, rows, first_bad, LEADING, BLOCK
        )
        count, _, high = cut(tl.where(good, last - first, 0).to(tl.int32), TILE_M, UNIT)
        ahead = group < mine
        if LONG_FIRST:
            ahead = (high > longest) | ((high == longest) & ahead)
        before += tl.sum(tl.where(ahead, count, 0))
        everything += tl.sum(count)
    own = tl.where(mine < first_bad, own, 0)
    for start in range(0, own, BLOCK):
        entry = start + tl.arange(0, BLOCK)
        row = _beginning(entry, units, own, UNIT)
        end = tl.where(entry + 1 < own, _beginning(entry + 1, units, own, UNIT), length)
        turn = _turn_of(entry, own, TURNS)
        group = tl.zeros((BLOCK,), tl.int32) + mine
        write_entries(table, before + entry, group, begin + row, begin + end, turn, entry < own)
    if mine == groups - 1:
        _conclude(table, everything, fault, first_bad, groups)


@triton.jit
def _rows_of(mine, ends, step, LEADING: tl.constexpr):
    """Where a group begins and how many rows it has, whether that can be or not."""
    place = ends + mine.to(tl.int64) * step
    begin = tl.load(place - step, mask=mine + LEADING > 0, other=0).to(tl.int32)
    return begin, tl.load(place).to(tl.int32) - begin


@triton.jit
def looked_at(
    start, ends, step, groups, rows, first_bad, LEADING: tl.constexpr, BLOCK: tl.constexpr
):
    """BLOCK groups, where they begin and end, which of them count, and the first that does not."""
    group = start + tl.arange(0, BLOCK)
    begin, end, bad = bounds(ends, step, group, group < groups, rows, LEADING)
    first_bad = tl.minimum(first_bad, tl.min(tl.where(bad, group, groups)))
    return group, begin, end, (group < groups) & (group < first_bad), first_bad


@triton.jit
def _conclude(table, count, fault, first_bad, groups):
    """How many entries there are, and the number of the first group that cannot be, plus one."""
    write_head(table, count)
    if first_bad < groups:
        tl.store(fault, first_bad + 1)


@triton.jit
def _turn_of(entry, count, TURNS: tl.constexpr):
    """Of a group's `count` entries, cut into runs of TURNS: which of its run, its length << 16."""
    turn = entry % TURNS
    return turn | (tl.minimum(count - entry + turn, TURNS) << 16)


@triton.jit
def cut(length, TILE_M: tl.constexpr, UNIT: tl.constexpr):
    """Of so many rows: how many entries, units of rows, and rows of the longest entry."""
    count = length // TILE_M + (length % TILE_M > 0).to(tl.int32)
    units = length // UNIT + (length % UNIT > 0).to(tl.int32)
    some = tl.maximum(count, 1)
    longest = (units // some + (units % some > 0).to(tl.int32)) * UNIT
    return count, units, tl.minimum(longest, length)


@triton.jit
def _beginning(entry, units, count, UNIT: tl.constexpr):
    """The first row of an entry of a group: longer ones first, by no more than a unit."""
    fewer = units // count
    return (entry * fewer + tl.minimum(entry, units - fewer * count)) * UNIT


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
    write_entries(table, number, mine, begin.to(tl.int32), end.to(tl.int32), 0, True)
