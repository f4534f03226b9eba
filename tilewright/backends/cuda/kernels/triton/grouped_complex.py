"""complex: tiles of many complex problems of unlike sizes, by four real products a step of k.

    A, B and C lie as real, imaginary, real, imaginary, ...; a tile reads both planes of a block:

                       B re | B im                re += A re B re      re -= A im B im
                         |      |                 im += A re B im      im += A im B re
    A re ----------->  +-----------+
    A im ----------->  | re  |  im |  two sums in registers
                       +-----------+  then alpha, beta C, bias, all complex; stored in turns

The record is that of grouped.py but for five words, so that alpha and beta have two each:

    4            5    6           13          14         15
    m + n << 32  k    alpha re    alpha im    beta re    beta im        (bits of float64)

Addresses point to the first real part, strides count complex elements. complex64 sums 256 of k in
a chain, then the chains, as grouped.py does for float32. *_ALONG and NEAR are as there.
"""

import triton
import triton.language as tl

from tilewright.backends.cuda.kernels.triton.record import number


@triton.jit
def _step(word, ALONG: tl.constexpr, ONE: tl.constexpr, OFFSET: tl.constexpr):
    """A stride in real numbers; 2 where the launch says that elements follow one another."""
    if ALONG == ONE:
        step: tl.constexpr = 2
        return step
    else:
        return 2 * tl.load(word).to(OFFSET)


@triton.jit
def _added(
    re,
    im,
    a,
    b,
    a_offsets,
    b_offsets,
    a_mask,
    b_mask,
    a_step,
    b_step,
    steps,
    TILE_K: tl.constexpr,
):
    """Both sums with `steps` of k more, and where the blocks go on."""
    depth = tl.arange(0, TILE_K)
    for at in range(0, steps, TILE_K):
        within = depth < steps - at
        left_mask, right_mask = a_mask & within[None, :], b_mask & within[:, None]
        left = tl.load(a + a_offsets, mask=left_mask, other=0.0)
        left_im = tl.load(a + a_offsets + 1, mask=left_mask, other=0.0)
        right = tl.load(b + b_offsets, mask=right_mask, other=0.0)
        right_im = tl.load(b + b_offsets + 1, mask=right_mask, other=0.0)
        re = tl.dot(left, right, re, input_precision="ieee", out_dtype=re.dtype)
        re = tl.dot(-left_im, right_im, re, input_precision="ieee", out_dtype=re.dtype)
        im = tl.dot(left, right_im, im, input_precision="ieee", out_dtype=re.dtype)
        im = tl.dot(left_im, right, im, input_precision="ieee", out_dtype=re.dtype)
        a += a_step
        b += b_step
    return re, im, a, b


@triton.jit
def complex_tiles(
    problems,
    tiles,
    last,
    PART: tl.constexpr,
    TILE_M: tl.constexpr,
    TILE_N: tl.constexpr,
    TILE_K: tl.constexpr,
    A_ALONG: tl.constexpr,
    B_ALONG: tl.constexpr,
    C_ALONG: tl.constexpr,
    NEAR: tl.constexpr,
    SCALED: tl.constexpr,
    BIAS: tl.constexpr,
):
    """C tiles; `problems` int64 [*, 16], `tiles` int32 [last, 4]. PART is float32 or float64."""
    offset: tl.constexpr = tl.int32 if NEAR else tl.int64
    chain: tl.constexpr = 256 if PART == tl.float32 else 1 << 30  # noqa: SIM300
    for index in range(tl.program_id(0), last, tl.num_programs(0)):
        tile = tiles + 4 * index
        problem = problems + 16 * tl.load(tile).to(tl.int64)
        row = tl.multiple_of(tl.load(tile + 1), TILE_M)
        col = tl.multiple_of(tl.load(tile + 2), TILE_N)
        a = tl.load(problem).to(tl.pointer_type(PART))
        b = tl.load(problem + 1).to(tl.pointer_type(PART))
        c = tl.load(problem + 2).to(tl.pointer_type(PART))
        sizes = tl.load(problem + 4)
        m, n = (sizes & 0xFFFFFFFF).to(tl.int32), (sizes >> 32).to(tl.int32)
        k = tl.load(problem + 5).to(tl.int32)
        a_row = _step(problem + 7, A_ALONG, 1, offset)
        a_col = _step(problem + 8, A_ALONG, 0, offset)
        b_row = _step(problem + 9, B_ALONG, 0, offset)
        b_col = _step(problem + 10, B_ALONG, 1, offset)
        c_row = _step(problem + 11, C_ALONG, 1, offset)
        c_col = _step(problem + 12, C_ALONG, 0, offset)
        a += row.to(tl.int64) * a_row
        b += col.to(tl.int64) * b_col
        c += row.to(tl.int64) * c_row + col.to(tl.int64) * c_col
        rows, cols, depth = tl.arange(0, TILE_M), tl.arange(0, TILE_N), tl.arange(0, TILE_K)
        a_offsets = rows[:, None].to(offset) * a_row + depth[None, :].to(offset) * a_col
        b_offsets = depth[:, None].to(offset) * b_row + cols[None, :].to(offset) * b_col
        a_mask, b_mask = (rows < m - row)[:, None], (cols < n - col)[None, :]
        blocks = (a_offsets, b_offsets, a_mask, b_mask, TILE_K * a_col, TILE_K * b_row)
        re, im = tl.zeros((TILE_M, TILE_N), PART), tl.zeros((TILE_M, TILE_N), PART)
        re, im, a, b = _added(re, im, a, b, *blocks, tl.minimum(k, chain), TILE_K)
        for begin in range(chain, k, chain):
            more, more_im = tl.zeros((TILE_M, TILE_N), PART), tl.zeros((TILE_M, TILE_N), PART)
            steps = tl.minimum(k - begin, chain)
            more, more_im, a, b = _added(more, more_im, a, b, *blocks, steps, TILE_K)
            re += more
            im += more_im
        inside = a_mask & b_mask
        c_offsets = rows[:, None].to(offset) * c_row + cols[None, :].to(offset) * c_col
        if SCALED:
            alpha, alpha_im = number(problem + 6, PART), number(problem + 13, PART)
            # Apart, so that infinite sums times a real alpha stay free of NaN.
            turned = tl.where(alpha_im != 0, alpha_im * re, 0.0)
            re = alpha * re - tl.where(alpha_im != 0, alpha_im * im, 0.0)
            im = alpha * im + turned
            beta, beta_im = number(problem + 14, PART), number(problem + 15, PART)
            # Where a problem's beta is 0 its C is not read: NaN there is harmless.
            kept = tl.where((beta != 0) | (beta_im != 0), TILE_M, 0)
            kept = inside & (rows < kept)[:, None]
            old = tl.load(c + c_offsets, mask=kept, other=0.0)
            old_im = tl.load(c + c_offsets + 1, mask=kept, other=0.0)
            re += beta * old - tl.where(beta_im != 0, beta_im * old_im, 0.0)
            im += beta * old_im + tl.where(beta_im != 0, beta_im * old, 0.0)
        if BIAS:
            bias = tl.load(problem + 3)
            added = bias.to(tl.pointer_type(PART)) + 2 * (col.to(tl.int64) + cols)
            has = (cols < n - col) & (cols < tl.where(bias != 0, TILE_N, 0))
            re += tl.load(added, mask=has, other=0.0)[None, :]
            im += tl.load(added + 1, mask=has, other=0.0)[None, :]
        tl.store(c + c_offsets, re, mask=inside)
        tl.store(c + c_offsets + 1, im, mask=inside)
