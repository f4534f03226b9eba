"""conv: one convolution of any kernel, stride, dilation, padding and groups; its epilogue fused.

    implicit product, a group         k = tap * channels + channel, tap = ky * KW + kx
                      TILE_N outputs
                     +------------+   weights [k, outputs] of the group, dense
                  k  |   B        |
                     +------------+   TILE_K of k at a time
           k               v
       +---------+   +------------+
       |   A     |   |  sums      |   TILE_M results: images, rows, columns, counted through
       +---------+   +------------+
    A is never made: its element is x[image, channel, y * stride - top + ky * dilation, x ...],
    zero outside. Any strides in memory.

    depthwise    TILE_M results x TILE_N channels, a tap at a time: there is nothing to multiply

epilogue: bias, residual, activation, then the pixel shuffle: output o of pixel (y, x) goes to
channel o / r^2, row y r + o % r^2 / r, column x r + o % r.
"""

import triton
import triton.language as tl


@triton.jit
def activated(v, o, inside, slopes, low, high, HOW: tl.constexpr):
    """ONNX's activations. A NaN stays one."""
    if HOW == "relu":
        v = tl.where(v < 0, 0.0, v)
    if HOW == "leaky":
        v = tl.where(v < 0, low * v, v)
    if HOW == "prelu":
        v = tl.where(v < 0, tl.load(slopes + o, mask=inside, other=0.0)[None, :] * v, v)
    if HOW == "clip":
        v = tl.where(v < low, low, tl.where(v > high, high, v))
    if HOW == "sigmoid":
        v = 1 / (1 + tl.exp(-v))
    if HOW == "hard_sigmoid":
        v = low * v + high
        v = tl.where(v < 0, 0.0, tl.where(v > 1, 1.0, v))
    if HOW == "hard_swish":
        gate = v / 6 + 0.5
        v = v * tl.where(gate < 0, 0.0, tl.where(gate > 1, 1.0, gate))
    if HOW == "silu":
        v = v / (1 + tl.exp(-v))
    if HOW == "tanh":
        size = tl.exp(-2 * tl.abs(v))
        v = tl.where(v < 0, -1.0, 1.0) * (1 - size) / (1 + size)
    if HOW == "gelu":
        v = 0.5 * v * (1 + tl.erf(v * 0.7071067811865476))
    return v


@triton.jit
def convolve(
    x,
    out,
    weights,
    bias,
    slopes,
    added,
    low,
    high,
    pixels,
    columns,
    rows,
    height,
    width,
    x_n,
    x_c,
    x_h,
    x_w,
    out_n,
    out_c,
    out_h,
    out_w,
    add_n,
    add_c,
    add_h,
    add_w,
    CHANNELS: tl.constexpr,
    OUTPUTS: tl.constexpr,
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
    ADDS: tl.constexpr,
    BIASED: tl.constexpr,
    HOW: tl.constexpr,
    DEPTHWISE: tl.constexpr,
    TILE_M: tl.constexpr,
    TILE_N: tl.constexpr,
    TILE_K: tl.constexpr,
):
    """Program: a tile of results of one group. CHANNELS and OUTPUTS are a group's.

    Depthwise, CHANNELS is 1 and OUTPUTS all channels, of one group.
    """
    across = tl.cdiv(OUTPUTS, TILE_N)
    tile = tl.program_id(0)
    group = tile % (across * GROUPS) // across
    o = tile % across * TILE_N + tl.arange(0, TILE_N)
    at = (tile // (across * GROUPS)).to(tl.int64) * TILE_M + tl.arange(0, TILE_M)
    there, wanted = at < pixels, o < OUTPUTS
    image, within = at // (rows * columns), at % (rows * columns)
    row, column = within // columns, within % columns
    y, left = row * STRIDE_Y - TOP, column * STRIDE_X - LEFT
    corner = x + image * x_n + y * x_h + left * x_w
    sums = tl.zeros((TILE_M, TILE_N), tl.float32)
    if DEPTHWISE:
        for tap in range(TAPS):
            dy, dx = tap // KW * DILATION_Y, tap % KW * DILATION_X
            inside = there & (y + dy >= 0) & (y + dy < height)
            inside = inside & (left + dx >= 0) & (left + dx < width)
            place = corner + dy * x_h + dx * x_w
            one = tl.load(
                place[:, None] + o[None, :].to(tl.int64) * x_c,
                mask=inside[:, None] & wanted[None, :],
                other=0.0,
            )
            w = tl.load(weights + tap * OUTPUTS + o, mask=wanted, other=0.0)
            sums += one.to(tl.float32) * w[None, :].to(tl.float32)
    else:
        corner += group.to(tl.int64) * CHANNELS * x_c
        held = weights + group.to(tl.int64) * TAPS * CHANNELS * OUTPUTS
        for begin in range(0, TAPS * CHANNELS, TILE_K):
            k = begin + tl.arange(0, TILE_K).to(tl.int64)
            if CHANNELS % TILE_K == 0:  # one tap: its place is the same for all of k
                tap, channel = begin // CHANNELS, k - begin // CHANNELS * CHANNELS
                dy, dx = tap // KW * DILATION_Y, tap % KW * DILATION_X
                inside = there & (y + dy >= 0) & (y + dy < height)
                inside = (inside & (left + dx >= 0) & (left + dx < width))[:, None]
                place = (corner + dy * x_h + dx * x_w)[:, None] + channel[None, :] * x_c
                a = tl.load(place, mask=inside, other=0.0)
                known = wanted[None, :]
            else:
                tap, channel = k // CHANNELS, k % CHANNELS
                dy, dx = tap // KW * DILATION_Y, tap % KW * DILATION_X
                real = k < TAPS * CHANNELS
                below, beside = y[:, None] + dy[None, :], left[:, None] + dx[None, :]
                inside = there[:, None] & real[None, :] & (below >= 0) & (below < height)
                inside = inside & (beside >= 0) & (beside < width)
                place = corner[:, None] + (dy * x_h + dx * x_w + channel * x_c)[None, :]
                a = tl.load(place, mask=inside, other=0.0)
                known = real[:, None] & wanted[None, :]
            b = tl.load(held + k[:, None] * OUTPUTS + o[None, :], mask=known, other=0.0)
            sums = tl.dot(a, b, sums, input_precision="ieee")
    channel = (group * OUTPUTS + o).to(tl.int64)
    inside = there[:, None] & wanted[None, :]
    if BIASED:
        sums += tl.load(bias + channel, mask=wanted, other=0.0)[None, :]
    if ADDS:
        other = added + image * add_n + row * add_h + column * add_w
        beside = other[:, None] + channel[None, :] * add_c
        sums += tl.load(beside, mask=inside, other=0.0).to(tl.float32)
    sums = activated(sums, channel, wanted, slopes, low, high, HOW)
    pixel = out + image * out_n + row * SHUFFLE * out_h + column * SHUFFLE * out_w
    place = channel // (SHUFFLE * SHUFFLE) * out_c
    place += channel // SHUFFLE % SHUFFLE * out_h + channel % SHUFFLE * out_w
    tl.store(pixel[:, None] + place[None, :], sums.to(out.dtype.element_ty), mask=inside)
