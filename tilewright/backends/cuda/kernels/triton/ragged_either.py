"""ragged_either: which of two cuts of groups' rows is the faster, and the table of that one.

    offsets  ->  both cuts' tiles, what they cost   ->   `table`: by TILE_M, UNIT, or empty
                 (hopper_cuts.py has the model)          `other`: by OTHER_M, OTHER_UNIT, or empty

Every program reads all offsets and so comes to the same conclusion. Two launches multiply what the
tables say, and one of them finds nothing to do.
"""

import triton
import triton.language as tl

from tilewright.backends.cuda.kernels.triton.ragged_offsets import (
    clear_rows,
    with_a_group,
    write_head,
)
from tilewright.backends.cuda.kernels.triton.ragged_plans import cut, looked_at, plan_group


@triton.jit(do_not_specialize=["rows"])
def plan_either(
    offsets,
    table,
    other,
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
    OTHER_M: tl.constexpr,
    OTHER_UNIT: tl.constexpr,
    WEIGHTS: tl.constexpr,
    OTHER_WEIGHTS: tl.constexpr,
    LEAST: tl.constexpr,
    OWN: tl.constexpr,
    UNITS: tl.constexpr,
    BLOCK: tl.constexpr,
    CLEARED: tl.constexpr,
):
    """As `plan_rows`, into one of two tables; in the other one groups with long entries come first.

    A tile has so many WEIGHTS; the rest is the model's.
    """
    mine = tl.program_id(0)
    if mine < groups:
        ends = offsets + tl.full((), LEADING, tl.int64) * step
        here = _busiest(
            ends, step, groups, rows, columns,
            LEADING, TILE_M, UNIT, WEIGHTS, LEAST, OWN, UNITS, BLOCK,
        )  # fmt: skip
        there = _busiest(
            ends, step, groups, rows, columns,
            LEADING, OTHER_M, OTHER_UNIT, OTHER_WEIGHTS, LEAST, OWN, UNITS, BLOCK,
        )  # fmt: skip
        if there < here:
            plan_group(
                ends, step, other, fault, mine, groups, rows,
                LEADING, OTHER_M, OTHER_UNIT, TURNS, False, True, BLOCK,
            )  # fmt: skip
        else:
            plan_group(
                ends, step, table, fault, mine, groups, rows,
                LEADING, TILE_M, UNIT, TURNS, RESTS_LAST, LONG_FIRST, BLOCK,
            )  # fmt: skip
        if mine == 0:
            write_head(table if there < here else other, 0)
    else:
        first, last = with_a_group(offsets, step, groups, rows, LEADING, BLOCK)
        clear_rows(c, c_row, c_col, mine - groups, first, last, rows, columns, CLEARED)


@triton.jit
def _busiest(
    ends,
    step,
    groups,
    rows,
    columns,
    LEADING: tl.constexpr,
    TILE_M: tl.constexpr,
    UNIT: tl.constexpr,
    WEIGHTS: tl.constexpr,
    LEAST: tl.constexpr,
    OWN: tl.constexpr,
    UNITS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """What the busiest of UNITS multiprocessors multiplies, groups cut so: hopper_cuts.busiest."""
    first_bad = groups
    count = tl.zeros((), tl.int32)
    multiplied = tl.zeros((), tl.float32)
    longest = tl.zeros((), tl.int32) + LEAST
    for start in range(0, groups, BLOCK):
        _, begin, end, good, first_bad = looked_at(
            start, ends, step, groups, rows, first_bad, LEADING, BLOCK
        )
        length = tl.where(good, end - begin, 0).to(tl.int32)
        tiles, units, long = cut(length, TILE_M, UNIT)
        last = length - (units - units // tl.maximum(tiles, 1)) * UNIT
        lacking = tl.where(tiles > 0, tl.maximum(LEAST - last, 0), 0)
        count += tl.sum(tiles)
        multiplied += tl.sum(length.to(tl.float32) + lacking.to(tl.float32))
        longest = tl.maximum(longest, tl.max(long))
    every = count.to(tl.int64) * tl.cdiv(columns, WEIGHTS)
    waves = (tl.cdiv(every, UNITS).to(tl.float32) + every.to(tl.float32) / UNITS) / 2
    mean = WEIGHTS * multiplied / tl.maximum(count, 1) + OWN
    return tl.maximum(waves * mean, WEIGHTS * longest + OWN)
