"""ragged_blocks: the tables of ragged_plans.py where groups are many, by blocks of them.

offsets   | block 0 | block 1 | block 2 |      counted side by side
              |         |         |
counts    [ tiles ] [ tiles ] [ tiles ]        each block then finds its place in the table by
              +---------+---------+----->      the counts of those before

count_groups    sums of a block: whole tiles, those that are not, the first wrong group
place_groups    a block of groups: where each one's tiles begin; writes those that are not whole
fill_groups     a block of whole tiles: each finds its group by bisection; clears rows
count_long, place_long      the same for depths: groups of many rows first, all others after
"""

import triton
import triton.language as tl

from tilewright.backends.cuda.kernels.triton.ragged_offsets import (
    bounds,
    clear_rows,
    write_entries,
    write_head,
)


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
    begin, end, bad = bounds(ends, step, group, group < groups, rows, LEADING)
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
    begin, end, _ = bounds(ends, step, group, group < groups, rows, LEADING)
    good = (group < groups) & (group < first_bad)
    whole = tl.where(good, (end - begin) // TILE_M, 0).to(tl.int32)
    rest = tl.where(good, (end - begin) % TILE_M > 0, 0).to(tl.int32)
    whole_at = wholes_before + tl.cumsum(whole, 0) - whole
    rest_at = rests_before + tl.cumsum(rest, 0) - rest
    tl.store(places + 2 * group, whole_at, mask=group < groups)
    tl.store(places + 2 * group + 1, rest_at, mask=group < groups)
    number = wholes + rest_at if RESTS_LAST else whole_at + rest_at + whole
    row = begin.to(tl.int32) + whole * TILE_M
    write_entries(table, number, group, row, end.to(tl.int32), 0 * group, good & (rest > 0))
    if mine == 0:
        write_head(table, wholes + rests)
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
            write_entries(table, number, group, row, row + TILE_M, 0 * group, inside)
    else:
        first = tl.load(places + 2 * groups + 1)
        last = tl.load(places + 2 * groups + 2)
        clear_rows(c, c_row, c_col, mine - fills, first, last, rows, columns, CLEARED)


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
    begin, end, bad = bounds(ends, step, group, group < groups, rows, LEADING)
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
    begin, end, bad = bounds(ends, step, group, group < groups, rows, LEADING)
    begin, end = tl.where(bad, 0, begin).to(tl.int32), tl.where(bad, 0, end).to(tl.int32)
    many = ((group < groups) & (end - begin > long)).to(tl.int32)
    at = before + tl.cumsum(many, 0) - many
    number = tl.where(many > 0, at, everything + group - at)
    write_entries(table, number, group, begin, end, 0 * group, group < groups)
