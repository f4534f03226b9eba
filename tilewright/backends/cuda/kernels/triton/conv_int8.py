"""conv_int8: one convolution of whole numbers of eight bits; what sums are worth is its epilogue.

    as conv.py      implicit product, tiles, shares of k; sums are int32 and exact

    x uint8         v xor 128 is int8, v - 128; `zero` is what stands for 0 so, and for pixels
                    outside the picture
    x float32       rounded to such an int8 as it is read, `taken` being its step
    sums            of x * w, from which zero * (the sum of w) is taken: `bias` has it
    weights         [outputs, k] of the group, dense: products of eight bits read k side by side

epilogue: y = float32(sum + bias) * scale, not below `low` and not above `high`; where the result is
whole again round(y / step) + shift, ties to even, as far as its type goes. Each is one operation of
float32 with one rounding, in this order, so that all devices give the same bits.
"""

import triton
import triton.language as tl

from tilewright.backends.cuda.kernels.triton.conv import corners, of_taps, taken

_ROUND = tl.constexpr(12582912.0)  # 1.5 * 2^23: float32 keeps no fraction beside it, ties to even


@triton.jit
def signed(v, taken, zero):
    """What was read as int8, 128 less than uint8; float32 is rounded. `zero` is such an int8."""
    if v.dtype == tl.float32:
        v = tl.div_rn(v, taken)
        v = tl.minimum(tl.maximum(v, -128.0 - zero), 127.0 - zero)
        v = ((v + _ROUND) - _ROUND).to(tl.int32)
        v = (v + zero).to(tl.int8)
    elif v.dtype == tl.uint8:
        v = (v ^ 128).to(tl.int8, bitcast=True)
    return v


@triton.jit
def worth(
    sums,
    at,
    o,
    there,
    wanted,
    out,
    bias,
    scale,
    low,
    high,
    step,
    shift,
    columns,
    rows,
    out_n,
    out_c,
    out_h,
    out_w,
    SHUFFLE: tl.constexpr,
    LOWEST: tl.constexpr,
    HIGHEST: tl.constexpr,
):
    """The epilogue of results `at` and outputs `o`, and their place in memory."""
    image, within = at // (rows * columns), at % (rows * columns)
    row, column = (within // columns).to(tl.int64), (within % columns).to(tl.int64)
    sums += tl.load(bias + o, mask=wanted, other=0)[None, :]
    y = sums.to(tl.float32) * tl.load(scale + o, mask=wanted, other=0.0)[None, :]
    y = tl.minimum(tl.maximum(y, low), high)
    pixel = out + image.to(tl.int64) * out_n + row * SHUFFLE * out_h + column * SHUFFLE * out_w
    channel = o.to(tl.int64)
    place = channel // (SHUFFLE * SHUFFLE) * out_c
    place += channel // SHUFFLE % SHUFFLE * out_h + channel % SHUFFLE * out_w
    place = pixel[:, None] + place[None, :]
    if HIGHEST > LOWEST:
        y = tl.div_rn(y, step)
        y = tl.minimum(tl.maximum(y, LOWEST - shift), HIGHEST - shift)
        y = ((y + _ROUND) - _ROUND + shift).to(tl.int32)
    tl.store(place, y.to(out.dtype.element_ty), mask=there[:, None] & wanted[None, :])


@triton.jit
def convolve_int8(
    x,
    out,
    weights,
    bias,
    scale,
    parts,
    low,
    high,
    step,
    shift,
    zero,
    step_taken,
    pixels,
    columns,
    rows,
    height,
    width,
    channels,
    outputs,
    share,
    x_n,
    x_c,
    x_h,
    x_w,
    out_n,
    out_c,
    out_h,
    out_w,
    CHANNELS: tl.constexpr,
    WHOLE: tl.constexpr,
    GROUPS: tl.constexpr,
    KW: tl.constexpr,
    TAPS: tl.constexpr,
    STRIDE_Y: tl.constexpr,
    STRIDE_X: tl.constexpr,
    DILATION_Y: tl.constexpr,
    DILATION_X: tl.constexpr,
    TOP: tl.constexpr,
    LEFT: tl.constexpr,
    SHUFFLE: tl.constexpr,
    LOWEST: tl.constexpr,
    HIGHEST: tl.constexpr,
    DEPTHWISE: tl.constexpr,
    SPLITS: tl.constexpr,
    TILE_M: tl.constexpr,
    TILE_N: tl.constexpr,
    TILE_K: tl.constexpr,
):
    """Program: a tile of results of one group, or of a share of its sums; names as in conv.py.

    LOWEST, HIGHEST: of the result's type, both 0 where that is float32.
    """
    if CHANNELS:
        channels = CHANNELS
    across = tl.cdiv(outputs, TILE_N)
    split, tile = tl.program_id(0) % SPLITS, tl.program_id(0) // SPLITS
    group = tile % (across * GROUPS) // across
    o = tile % across * TILE_N + tl.arange(0, TILE_N)
    at = tile // (across * GROUPS) * TILE_M + tl.arange(0, TILE_M)
    there, wanted = at < pixels, o < outputs
    y, left, corner = corners(at, x, rows, columns, x_n, x_h, x_w, STRIDE_Y, STRIDE_X, TOP, LEFT)
    sums = tl.zeros((TILE_M, TILE_N), tl.int32)
    if DEPTHWISE and TILE_M == 1:
        each = tl.zeros((TILE_K, TILE_N), tl.int32)
        for begin in range(0, TAPS, TILE_K):
            one, seen, w = of_taps(
                begin, o, wanted, there, y, left, corner, weights, outputs,
                height, width, x_c, x_h, x_w, KW, TAPS, DILATION_Y, DILATION_X, TILE_K,
            )  # fmt: skip
            one = tl.where(seen, signed(one, step_taken, zero).to(tl.int32), zero)
            each += one * w.to(tl.int32)
        sums += tl.sum(each, 0)[None, :]
    elif DEPTHWISE:
        channel_at = o.to(tl.int64) * x_c
        for tap in tl.static_range(TAPS):
            dy, dx = tap // KW * DILATION_Y, tap % KW * DILATION_X
            inside = there & (y + dy >= 0) & (y + dy < height)
            inside = inside & (left + dx >= 0) & (left + dx < width)
            place = (corner + dy * x_h + dx * x_w)[:, None] + channel_at[None, :]
            inside = inside[:, None] & wanted[None, :]
            one = signed(tl.load(place, mask=inside, other=0), step_taken, zero)
            one = tl.where(inside, one.to(tl.int32), zero)
            w = tl.load(weights + tap * outputs + o, mask=wanted, other=0)
            sums += one * w[None, :].to(tl.int32)
    else:
        corner += group.to(tl.int64) * channels * x_c
        depth = TAPS * channels
        held = weights + group.to(tl.int64) * depth * outputs
        for begin in range(split * share, tl.minimum((split + 1) * share, depth), TILE_K):
            k = begin + tl.arange(0, TILE_K)
            place, inside = taken(
                begin, k, y, left, corner, there, channels, height, width, x_c, x_h, x_w,
                WHOLE, KW, TAPS, DILATION_Y, DILATION_X,
            )  # fmt: skip
            a = signed(tl.load(place, mask=inside, other=0), step_taken, zero)
            a = tl.where(inside, a, tl.cast(zero, tl.int8))
            known = (k < depth)[:, None] & wanted[None, :]
            b = tl.load(held + k[:, None] + o[None, :] * depth, mask=known, other=0)
            sums = tl.dot(a, b, sums, out_dtype=tl.int32)
    channel = group * outputs + o
    if SPLITS > 1:
        place = parts + (split.to(tl.int64) * pixels + at)[:, None] * (outputs * GROUPS)
        tl.store(place + channel[None, :], sums, mask=there[:, None] & wanted[None, :])
    else:
        worth(
            sums, at, channel, there, wanted, out, bias, scale, low, high, step, shift,
            columns, rows, out_n, out_c, out_h, out_w, SHUFFLE, LOWEST, HIGHEST,
        )  # fmt: skip


@triton.jit
def finish_int8(
    out,
    bias,
    scale,
    parts,
    low,
    high,
    step,
    shift,
    pixels,
    columns,
    rows,
    outputs,
    splits,
    out_n,
    out_c,
    out_h,
    out_w,
    SHUFFLE: tl.constexpr,
    LOWEST: tl.constexpr,
    HIGHEST: tl.constexpr,
    TILE_M: tl.constexpr,
    TILE_N: tl.constexpr,
):
    """Program: a tile of results, the parts of whose sums lie in memory; outputs of all groups."""
    across = tl.cdiv(outputs, TILE_N)
    tile = tl.program_id(0)
    o = tile % across * TILE_N + tl.arange(0, TILE_N)
    at = tile // across * TILE_M + tl.arange(0, TILE_M)
    there, wanted = at < pixels, o < outputs
    inside = there[:, None] & wanted[None, :]
    place = parts + at.to(tl.int64)[:, None] * outputs + o[None, :]
    next_part = tl.cast(pixels, tl.int64) * outputs
    sums = tl.load(place, mask=inside, other=0)
    for _ in range(1, splits):
        place += next_part
        sums += tl.load(place, mask=inside, other=0)
    worth(
        sums, at, o, there, wanted, out, bias, scale, low, high, step, shift,
        columns, rows, out_n, out_c, out_h, out_w, SHUFFLE, LOWEST, HIGHEST,
    )  # fmt: skip
