"""fp8: products of 8-bit floats with scales and of int8, in any layout, on any GPU.

    multiply_fp8_rows    the rows of a group meet its own matrix, by a table of entries
    multiply_fp8_depths  the group's part of k, a program a tile; groups begin at multiples of 128

    A [rows, k]    x    B [k, n]                each block of 128 of k is summed by itself, then
      scale a            scale b                added, scaled, to fp32 sums: tensor cores keep about
      1 x 128            128 x 128 or 128 x 1   14 bits of what they add up in 8-bit products

Where a GPU has no fp8 of this kind (NATIVE 0) elements become halves, which hold each of them.
ROWS: one scale a row of A and one a column of B, applied to the whole sum. INT8: so too,
and the sum is int32, exact; an int32 C is the sum itself.
"""

import triton
import triton.language as tl

from tilewright.backends.cuda.kernels.triton.ragged_offsets import rows_of


@triton.jit
def decoded(bits, E5M2: tl.constexpr, NATIVE: tl.constexpr):
    """8-bit floats of their bits: as such, or as halves, exactly."""
    if NATIVE:
        kind: tl.constexpr = tl.float8e5 if E5M2 else tl.float8e4nv
        found = bits.to(kind, bitcast=True)
    elif E5M2:
        found = (bits.to(tl.uint16) << 8).to(tl.float16, bitcast=True)
    else:
        wide = bits.to(tl.uint16)
        half = ((wide & 0x80) << 8) | ((wide & 0x7F) << 7)  # the exponent's bias is 8 less
        nan = tl.full(wide.shape, 0x7E00, tl.uint16).to(tl.float16, bitcast=True)
        usual = half.to(tl.float16, bitcast=True) * 256.0
        found = tl.where((wide & 0x7F) == 0x7F, nan, usual)
    return found


@triton.jit
def _scaled_sum(
    left,
    right,
    of_a,
    of_b,
    how,
    k,
    ROWS: tl.constexpr,
    A_E5M2: tl.constexpr,
    B_E5M2: tl.constexpr,
    NATIVE: tl.constexpr,
    TILE_M: tl.constexpr,
    TILE_N: tl.constexpr,
    TILE_K: tl.constexpr,
):
    """A tile of C along all of k; `how` has steps from one 128 of k to the next, and masks."""
    a_col, b_row, a_scale_k, b_scale_k, rows, columns = how
    total = tl.zeros((TILE_M, TILE_N), tl.float32)
    depth = tl.arange(0, TILE_K)
    for begin in range(0, k, 128):
        sums = tl.zeros((TILE_M, TILE_N), tl.float32)
        for part in tl.static_range(0, 128, TILE_K):
            at = begin + part + depth
            a = tl.load(
                left + at[None, :].to(tl.int64) * a_col, mask=rows & (at < k)[None, :], other=0
            )
            b = tl.load(
                right + at[:, None].to(tl.int64) * b_row, mask=columns & (at < k)[:, None], other=0
            )
            sums = tl.dot(
                decoded(a, A_E5M2, NATIVE), decoded(b, B_E5M2, NATIVE), sums, out_dtype=tl.float32
            )
        if ROWS:
            total += sums
        else:
            block = tl.cast(begin // 128, tl.int64)
            down = tl.load(of_a + block * a_scale_k, mask=rows, other=0.0)
            across = tl.load(of_b + block * b_scale_k, mask=columns, other=0.0)
            total += sums * (down * across)
    if ROWS:
        down = tl.load(of_a, mask=rows, other=0.0)
        total *= down * tl.load(of_b, mask=columns, other=0.0)
    return total


@triton.jit
def _whole_sum(
    left,
    right,
    steps,
    k,
    rows,
    columns,
    TILE_M: tl.constexpr,
    TILE_N: tl.constexpr,
    TILE_K: tl.constexpr,
):
    """A tile of C along all of k, of int8, in int32; `steps` go from one of k to the next.

    Past 2^31 mma.sync, as Triton makes it, stays at the largest; wgmma wraps around.
    """
    a_col, b_row = steps
    total = tl.zeros((TILE_M, TILE_N), tl.int32)
    depth = tl.arange(0, TILE_K)
    for begin in range(0, k, TILE_K):
        at = begin + depth
        inside, there = at < k, at.to(tl.int64)
        a = tl.load(left + there[None, :] * a_col, mask=rows & inside[None, :], other=0)
        b = tl.load(right + there[:, None] * b_row, mask=columns & inside[:, None], other=0)
        total = tl.dot(
            a.to(tl.int8, bitcast=True), b.to(tl.int8, bitcast=True), total, out_dtype=tl.int32
        )
    return total


@triton.jit
def multiply_fp8_rows(
    a,
    b,
    of_a,
    of_b,
    c,
    table,
    n,
    k,
    a_row,
    a_col,
    b_group,
    b_row,
    b_col,
    a_scale_row,
    a_scale_k,
    b_scale_group,
    b_scale_k,
    b_scale_col,
    c_row,
    c_col,
    SHARED: tl.constexpr,
    BAND: tl.constexpr,
    ROWS: tl.constexpr,
    INT8: tl.constexpr,
    A_E5M2: tl.constexpr,
    B_E5M2: tl.constexpr,
    NATIVE: tl.constexpr,
    TILE_M: tl.constexpr,
    TILE_N: tl.constexpr,
    TILE_K: tl.constexpr,
):
    """Programs share the tiles of all entries; SHARED columns of B have a scale."""
    entries = tl.load(table)
    across = tl.cdiv(n, TILE_N)
    for index in range(tl.program_id(0), entries * across, tl.num_programs(0)):
        band = index // (BAND * across)
        within = index - band * BAND * across
        height = tl.minimum(entries - band * BAND, BAND)
        entry = table + 4 + 4 * (band * BAND + within % height)
        col = ((within // height) * TILE_N + tl.arange(0, TILE_N)).to(tl.int64)
        group = tl.load(entry).to(tl.int64)
        row = tl.load(entry + 1).to(tl.int64) + tl.arange(0, TILE_M)
        rows, columns = (row < tl.load(entry + 2))[:, None], (col < n)[None, :]
        left = a + row[:, None] * a_row
        right = b + group * b_group + col[None, :] * b_col
        down = of_a + row[:, None] * a_scale_row
        over = of_b + group * b_scale_group + (col // SHARED)[None, :] * b_scale_col
        if INT8:
            total = _whole_sum(
                left, right, (a_col, b_row), k, rows, columns, TILE_M, TILE_N, TILE_K
            )
            if c.dtype.element_ty != tl.int32:
                scale = tl.load(down, mask=rows, other=0.0) * tl.load(over, mask=columns, other=0.0)
                total = total.to(tl.float32) * scale
        else:
            how = (a_col, b_row, a_scale_k, b_scale_k, rows, columns)
            total = _scaled_sum(
                left, right, down, over, how, k,
                ROWS, A_E5M2, B_E5M2, NATIVE, TILE_M, TILE_N, TILE_K,
            )  # fmt: skip
        place = c + row[:, None] * c_row + col[None, :] * c_col
        tl.store(place, total.to(c.dtype.element_ty), mask=rows & columns)


@triton.jit(do_not_specialize=["depth_rows"])
def multiply_fp8_depths(
    a,
    b,
    of_a,
    of_b,
    c,
    offsets,
    fault,
    depth_rows,
    step,
    m,
    n,
    a_row,
    a_col,
    b_row,
    b_col,
    a_scale_row,
    a_scale_k,
    b_scale_k,
    b_scale_col,
    c_group,
    c_row,
    c_col,
    SHARED: tl.constexpr,
    LEADING: tl.constexpr,
    A_E5M2: tl.constexpr,
    B_E5M2: tl.constexpr,
    NATIVE: tl.constexpr,
    TILE_M: tl.constexpr,
    TILE_N: tl.constexpr,
    TILE_K: tl.constexpr,
):
    """One tile of one group's C; program p has tile p of the tiles of group 0, 1, ..."""
    down, across = tl.cdiv(m, TILE_M), tl.cdiv(n, TILE_N)
    group = tl.program_id(0) // (down * across)
    tile = tl.program_id(0) % (down * across)
    begin, end = rows_of(group, offsets, step, fault, depth_rows, LEADING)
    if ((begin | end) % 128) != 0:
        tl.store(fault, group + 1)
        end = begin
    row = ((tile % down) * TILE_M + tl.arange(0, TILE_M)).to(tl.int64)
    col = ((tile // down) * TILE_N + tl.arange(0, TILE_N)).to(tl.int64)
    rows, columns = (row < m)[:, None], (col < n)[None, :]
    how = (a_col, b_row, a_scale_k, b_scale_k, rows, columns)
    block = begin // 128
    total = _scaled_sum(
        a + row[:, None] * a_row + begin * a_col,
        b + col[None, :] * b_col + begin * b_row,
        of_a + row[:, None] * a_scale_row + block * a_scale_k,
        of_b + (col // SHARED)[None, :] * b_scale_col + block * b_scale_k,
        how, (end - begin).to(tl.int32), False, A_E5M2, B_E5M2, NATIVE, TILE_M, TILE_N, TILE_K,
    )  # fmt: skip
    place = c + group.to(tl.int64) * c_group + row[:, None] * c_row + col[None, :] * c_col
    tl.store(place, total.to(c.dtype.element_ty), mask=rows & columns)
