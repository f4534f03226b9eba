"""ragged_offsets: what every kernel of ragged products does with offsets and tables on the device.

    offsets (ends of the groups, `step` elements apart)        table (int32 x 4)
    [ 3 | 3 | 200 | ... ]    LEADING 1 where a 0 begins        [how many  0  _  _]
      group 1 has rows 3 .. 3, group 2 rows 3 .. 200           [g  row  end  turn] ...

Offsets that decrease, begin below 0 or run past the rows are found here, and `fault` gets the
number of such a group plus one. Rows are up to 2^31 - 64, so no sum here goes past an end.
"""

import triton
import triton.language as tl


@triton.jit
def bounds(ends, step, group, live, rows, LEADING: tl.constexpr):
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
def write_entries(table, number, group, row, end, turn, inside):
    """Entries of a table. `turn`: which of its run of entries each is, the run's length << 16."""
    place = table + 4 + 4 * number.to(tl.int64)
    tl.store(place, group, mask=inside)
    tl.store(place + 1, row, mask=inside)
    tl.store(place + 2, end, mask=inside)
    tl.store(place + 3, turn, mask=inside)


@triton.jit
def write_head(table, count):
    """How many entries follow."""
    column = tl.arange(0, 4)
    tl.store(table + column, tl.where(column == 0, count, 0))


@triton.jit
def clear_rows(c, c_row, c_col, part, first, last, rows, columns, CLEARED: tl.constexpr):
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
def with_a_group(offsets, step, groups, rows, LEADING: tl.constexpr, BLOCK: tl.constexpr):
    """The first row of the first group, and the end of the last that is right and so computed."""
    ends = offsets + tl.full((), LEADING, tl.int64) * step
    first_bad = groups
    for start in range(0, groups, BLOCK):
        group = start + tl.arange(0, BLOCK)
        bad = bounds(ends, step, group, group < groups, rows, LEADING)[2]
        first_bad = tl.minimum(first_bad, tl.min(tl.where(bad, group, groups)))
    place = ends + (first_bad - 1).to(tl.int64) * step
    last = tl.load(place, mask=first_bad > 0, other=0)
    first = tl.load(offsets, mask=LEADING > 0, other=0)
    return first, last
