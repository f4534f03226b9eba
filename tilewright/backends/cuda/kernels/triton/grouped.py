"""grouped: tiles of many problems of unlike sizes. One program a tile, or a tile after another.

    tiles (int32 x 4)                   problem: its own m n k, strides, alpha beta (record.py)
    [p i j _] [p i j _] [p i j _] ...             B   j .. j + TILE_N
       |          |         |                      |  at |  one step of TILE_K: both blocks are
     program 0  program 1  ...                     v     v  loaded ahead, num_stages deep
       +-----------------------------> A i ..   +---------+
                                       TILE_M   | C tile  |  sum in registers
                                       --at-->  +---------+  then alpha, beta C, bias, activation

What a launch promises of all its problems is compiled in: *_ALONG says which step is 1 (0 along
the rows of A and of C and the columns of B, 1 across, 2 neither: any strides), WIDE that bases,
rows and extents are multiples of 16 bytes, so many elements, NEAR that offsets within a tile fit
32 bits; ALPHA, BETA and BIAS that some problem has them; PARTS that C is scratch, which takes the
bare sums of products cut along k. IEEE fp32 sums 256 of k in a chain, then the chains: one chain of
all k would round each addend away from an ever larger sum (2000 times the same: 3.0e-5 off).

1000 products of 1..512, fp32, H200, 64 x 64 x 16: 1.36 ms; with the steps of C unknown to the
compiler 2.1, as it then stores 4 bytes a thread wherever the sum happens to lie.
"""

import triton
import triton.language as tl

from tilewright.backends.cuda.kernels.triton.record import activated, number


@triton.jit
def _step(word, ALONG: tl.constexpr, ONE: tl.constexpr, OFFSET: tl.constexpr, WIDE: tl.constexpr):
    """A stride of the record; 1 where the launch says so."""
    if ALONG == ONE:
        step: tl.constexpr = 1
        return step
    else:
        return tl.multiple_of(tl.load(word).to(OFFSET), WIDE)


@triton.jit
def _added(
    total,
    a,
    b,
    a_offsets,
    b_offsets,
    a_mask,
    b_mask,
    a_step,
    b_step,
    begin,
    end,
    TILE_K: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """`total` with the products of k from `begin` to `end`, and where the blocks go on."""
    depth = tl.arange(0, TILE_K)
    for at in range(begin, end, TILE_K):
        within = depth < end - at
        left = tl.load(a + a_offsets, mask=a_mask & within[None, :], other=0.0)
        right = tl.load(b + b_offsets, mask=b_mask & within[:, None], other=0.0)
        total = tl.dot(left, right, total, input_precision=PRECISION, out_dtype=total.dtype)
        a += a_step
        b += b_step
    return total, a, b


@triton.jit
def grouped_tiles(
    problems,
    tiles,
    last,
    DTYPE: tl.constexpr,
    SUM: tl.constexpr,
    TILE_M: tl.constexpr,
    TILE_N: tl.constexpr,
    TILE_K: tl.constexpr,
    A_ALONG: tl.constexpr,
    B_ALONG: tl.constexpr,
    C_ALONG: tl.constexpr,
    WIDE: tl.constexpr,
    NEAR: tl.constexpr,
    ALPHA: tl.constexpr,
    BETA: tl.constexpr,
    BIAS: tl.constexpr,
    PARTS: tl.constexpr,
    PRECISION: tl.constexpr,
    ACTIVATION: tl.constexpr,
):
    """C tiles; `problems` int64 [*, 16], `tiles` int32 [last, 4]."""
    offset: tl.constexpr = tl.int32 if NEAR else tl.int64
    exact: tl.constexpr = DTYPE == tl.float32 and PRECISION == "ieee"  # noqa: SIM300
    chain: tl.constexpr = 256
    for index in range(tl.program_id(0), last, tl.num_programs(0)):
        tile = tiles + 4 * index
        problem = problems + 16 * tl.load(tile).to(tl.int64)
        row = tl.multiple_of(tl.load(tile + 1), TILE_M)
        col = tl.multiple_of(tl.load(tile + 2), TILE_N)
        a = tl.load(problem).to(tl.pointer_type(DTYPE))
        b = tl.load(problem + 1).to(tl.pointer_type(DTYPE))
        m = tl.load(problem + 4).to(tl.int32)
        n = tl.load(problem + 5).to(tl.int32)
        k = tl.load(problem + 6).to(tl.int32)
        if WIDE > 1:
            a = tl.multiple_of(a, 16)
            b = tl.multiple_of(b, 16)
            k = tl.multiple_of(k, WIDE)
            if A_ALONG == 1:
                m = tl.multiple_of(m, WIDE)
            if B_ALONG == 1:
                n = tl.multiple_of(n, WIDE)
        a_row = _step(problem + 7, A_ALONG, 1, offset, WIDE)
        a_col = _step(problem + 8, A_ALONG, 0, offset, WIDE)
        b_row = _step(problem + 9, B_ALONG, 0, offset, WIDE)
        b_col = _step(problem + 10, B_ALONG, 1, offset, WIDE)
        a += row.to(tl.int64) * a_row
        b += col.to(tl.int64) * b_col
        rows, cols, depth = tl.arange(0, TILE_M), tl.arange(0, TILE_N), tl.arange(0, TILE_K)
        a_offsets = rows[:, None].to(offset) * a_row + depth[None, :].to(offset) * a_col
        b_offsets = depth[:, None].to(offset) * b_row + cols[None, :].to(offset) * b_col
        a_mask, b_mask = (rows < m - row)[:, None], (cols < n - col)[None, :]
        total = tl.zeros((TILE_M, TILE_N), SUM)
        blocks = (a_offsets, b_offsets, a_mask, b_mask, TILE_K * a_col, TILE_K * b_row)
        if exact:
            near = tl.minimum(k, chain)
            total, a, b = _added(total, a, b, *blocks, 0, near, TILE_K, PRECISION)
            for begin in range(chain, k, chain):
                sums = tl.zeros((TILE_M, TILE_N), SUM)
                end = begin + tl.minimum(k - begin, chain)
                sums, a, b = _added(sums, a, b, *blocks, begin, end, TILE_K, PRECISION)
                total += sums
        else:
            total, a, b = _added(total, a, b, *blocks, 0, k, TILE_K, PRECISION)
        # The record once more, so that what only the end needs holds no registers before.
        inside_m = rows < tl.load(problem + 4).to(tl.int32) - row
        inside_n = cols < tl.load(problem + 5).to(tl.int32) - col
        inside = inside_m[:, None] & inside_n[None, :]
        c_row = _step(problem + 11, C_ALONG, 1, offset, 1)
        c_col = _step(problem + 12, C_ALONG, 0, offset, 1)
        c = tl.load(problem + 2).to(tl.pointer_type(SUM if PARTS else DTYPE))
        c += row.to(tl.int64) * c_row + col.to(tl.int64) * c_col
        c_offsets = rows[:, None].to(offset) * c_row + cols[None, :].to(offset) * c_col
        if PARTS:
            tl.store(c + c_offsets, total, mask=inside)
        else:
            if ALPHA:
                total *= number(problem + 13, SUM)
            if BETA:
                # Where a problem's beta is 0 its C is not read: NaN there is harmless.
                kept = tl.where(tl.load(problem + 14) != 0, TILE_M, 0)
                kept = inside & (rows < kept)[:, None]
                old = tl.load(c + c_offsets, mask=kept, other=0.0).to(SUM)
                total += number(problem + 14, SUM) * old
            if BIAS:
                bias = tl.load(problem + 3)
                added = bias.to(tl.pointer_type(DTYPE)) + col
                has = inside_n & (cols < tl.where(bias != 0, TILE_N, 0))
                added = tl.load(added + cols, mask=has, other=0.0)
                total += added.to(SUM)[None, :]
            tl.store(c + c_offsets, activated(total, ACTIVATION).to(DTYPE), mask=inside)
