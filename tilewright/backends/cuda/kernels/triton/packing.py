"""packing: rows as engines can read them, where they lie otherwise, and gates of whole results.

    pack_rows   row index[r] of a matrix, or row r of a group    ->  row r, every `step` elements
    gate_rows   h [rows, n], or both halves side by side         ->  c [rows, n]

A program has HIGH rows of WIDE columns. Groups of `high` rows get `padded` of them in the result,
zeros the last ones: wgmma takes k in whole sixteens.
"""

import triton
import triton.language as tl

from tilewright.backends.cuda.kernels.triton.moe import _f, _halves


@triton.jit
def _part(columns, HIGH: tl.constexpr, WIDE: tl.constexpr):
    """Rows and columns of this program."""
    across = tl.cdiv(columns, WIDE)
    row = (tl.program_id(0) // across).to(tl.int64) * HIGH + tl.arange(0, HIGH)
    column = (tl.program_id(0) % across) * WIDE + tl.arange(0, WIDE)
    return row, column


@triton.jit(do_not_specialize=["rows", "limit"])
def pack_rows(
    source,
    target,
    index,
    rows,
    limit,
    columns,
    high,
    padded,
    group_step,
    row_step,
    column_step,
    step,
    INDEXED: tl.constexpr,
    HIGH: tl.constexpr,
    WIDE: tl.constexpr,
):
    """`rows` of the result; by an index that names none of the `limit` rows there are, zeros."""
    row, column = _part(columns, HIGH, WIDE)
    there = row < rows
    if INDEXED:
        chosen = tl.load(index + row, mask=there, other=0).to(tl.int64)
        inside = there & (chosen >= 0) & (chosen < limit)
        place = chosen * row_step
    else:
        group = row // padded
        within = row - group * padded
        inside = there & (within < high)
        place = group * group_step + within * row_step
    mask = column < columns
    given = source + place[:, None] + column[None, :].to(tl.int64) * column_step
    value = tl.load(given, mask=inside[:, None] & mask[None, :], other=0.0)
    tl.store(
        target + row[:, None] * step + column[None, :], value, mask=there[:, None] & mask[None, :]
    )


@triton.jit(do_not_specialize=["rows"])
def gate_rows(
    h,
    c,
    rows,
    n,
    FORM: tl.constexpr,
    KIND: tl.constexpr,
    SUM: tl.constexpr,
    HIGH: tl.constexpr,
    WIDE: tl.constexpr,
):
    """c of dense h, as multiply_chosen makes it."""
    row, column = _part(n, HIGH, WIDE)
    both = (row < rows)[:, None] & (column < n)[None, :]
    gate, up = _halves(h, row, column, both, n, FORM, SUM)
    made = _f(gate, KIND)
    if FORM == 2:
        made = made * up
    tl.store(c + row[:, None] * n + column[None, :], made.to(c.dtype.element_ty), mask=both)
