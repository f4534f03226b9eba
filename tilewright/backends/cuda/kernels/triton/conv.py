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

    few results    SPLITS programs have a share of k each and leave sums [split, pixel, output] in
                   memory; `finish` adds them up in one order and ends as `convolve` would
    depthwise      TILE_M results x TILE_N channels, a tap at a time, every tap written out: there
                   is nothing to multiply
    depthwise of   TILE_M is 1: one result x TILE_N channels, TILE_K taps at a time, which are
    many taps      added up at the end. Time to compile what is written out grows faster than the
                   square of its taps, to minutes of a mean of 16 x 16; and where results are few
                   most threads would have none

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
def ended(
    sums,
    at,
    channel,
    there,
    wanted,
    out,
    bias,
    slopes,
    added,
    low,
    high,
    columns,
    rows,
    out_n,
    out_c,
    out_h,
    out_w,
    add_n,
    add_c,
    add_h,
    add_w,
    SHUFFLE: tl.constexpr,
    ADDS: tl.constexpr,
    BIASED: tl.constexpr,
    HOW: tl.constexpr,
):
    """The epilogue of results `at` and outputs `channel`, and their place in memory."""
    image, within = at // (rows * columns), at % (rows * columns)
    row, column = (within // columns).to(tl.int64), (within % columns).to(tl.int64)
    image, channel = image.to(tl.int64), channel.to(tl.int64)
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


@triton.jit
def corners(
    at, x, rows, columns, x_n, x_h, x_w, STRIDE_Y, STRIDE_X, TOP: tl.constexpr, LEFT: tl.constexpr
):
    """Row, column and place in x of the windows of results `at`; in a pad rows are negative."""
    image, within = at // (rows * columns), at % (rows * columns)
    y, left = within // columns * STRIDE_Y - TOP, within % columns * STRIDE_X - LEFT
    return y, left, x + image.to(tl.int64) * x_n + y.to(tl.int64) * x_h + left.to(tl.int64) * x_w


@triton.jit
def of_taps(
    begin,
    o,
    wanted,
    there,
    y,
    left,
    corner,
    weights,
    outputs,
    height,
    width,
    x_c,
    x_h,
    x_w,
    KW: tl.constexpr,
    TAPS: tl.constexpr,
    DILATION_Y: tl.constexpr,
    DILATION_X: tl.constexpr,
    TILE_K: tl.constexpr,
):
    """TILE_K taps of one result's windows: what is seen there, whether anything is, weights."""
    taps = begin + tl.arange(0, TILE_K)
    dy, dx = taps // KW * DILATION_Y, taps % KW * DILATION_X
    inside = there & (taps < TAPS) & (y + dy >= 0) & (y + dy < height)
    inside = inside & (left + dx >= 0) & (left + dx < width)
    place = corner + dy.to(tl.int64) * x_h + dx.to(tl.int64) * x_w
    seen = inside[:, None] & wanted[None, :]
    one = tl.load(place[:, None] + (o.to(tl.int64) * x_c)[None, :], mask=seen, other=0)
    known = (taps < TAPS)[:, None] & wanted[None, :]
    w = tl.load(weights + taps[:, None] * outputs + o[None, :], mask=known, other=0)
    return one, seen, w


@triton.jit
def taken(
    begin,
    k,
    y,
    left,
    corner,
    there,
    channels,
    height,
    width,
    x_c,
    x_h,
    x_w,
    WHOLE: tl.constexpr,
    KW: tl.constexpr,
    TAPS: tl.constexpr,
    DILATION_Y: tl.constexpr,
    DILATION_X: tl.constexpr,
):
    """Where elements `k` of the windows lie, from `begin` on, and which are in the picture."""
    if WHOLE:  # one tap: its place is the same for all of k
        tap = begin // channels
        channel = (k - tap * channels).to(tl.int64)
        dy, dx = tap // KW * DILATION_Y, tap % KW * DILATION_X
        inside = there & (y + dy >= 0) & (y + dy < height)
        inside = (inside & (left + dx >= 0) & (left + dx < width))[:, None]
        place = (corner + dy * x_h + dx * x_w)[:, None] + channel[None, :] * x_c
    else:
        tap, channel = k // channels, (k % channels).to(tl.int64)
        dy, dx = tap // KW * DILATION_Y, tap % KW * DILATION_X
        real = k < TAPS * channels
        below, beside = y[:, None] + dy[None, :], left[:, None] + dx[None, :]
        inside = there[:, None] & real[None, :] & (below >= 0) & (below < height)
        inside = inside & (beside >= 0) & (beside < width)
        place = corner[:, None] + (dy * x_h + dx * x_w + channel * x_c)[None, :]
    return place, inside


@triton.jit
def convolve(
    x,
    out,
    weights,
    bias,
    slopes,
    added,
    parts,
    low,
    high,
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
    add_n,
    add_c,
    add_h,
    add_w,
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
    ADDS: tl.constexpr,
    BIASED: tl.constexpr,
    HOW: tl.constexpr,
    DEPTHWISE: tl.constexpr,
    SPLITS: tl.constexpr,
    TILE_M: tl.constexpr,
    TILE_N: tl.constexpr,
    TILE_K: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """Program: a tile of results of one group, or of a share of its sums.

    channels and outputs are a group's; CHANNELS as well, 0 where many are not compiled in. WHOLE:
    steps of k stay inside a tap. Depthwise, channels is 1 and outputs all, of one group.
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
    sums = tl.zeros((TILE_M, TILE_N), tl.float32)
    if DEPTHWISE and TILE_M == 1:
        each = tl.zeros((TILE_K, TILE_N), tl.float32)
        for begin in range(0, TAPS, TILE_K):
            one, _, w = of_taps(
                begin, o, wanted, there, y, left, corner, weights, outputs,
                height, width, x_c, x_h, x_w, KW, TAPS, DILATION_Y, DILATION_X, TILE_K,
            )  # fmt: skip
            each += one.to(tl.float32) * w.to(tl.float32)
        sums += tl.sum(each, 0)[None, :]
    elif DEPTHWISE:
        channel_at = o.to(tl.int64) * x_c
        for tap in tl.static_range(TAPS):
            dy, dx = tap // KW * DILATION_Y, tap % KW * DILATION_X
            inside = there & (y + dy >= 0) & (y + dy < height)
            inside = inside & (left + dx >= 0) & (left + dx < width)
            place = corner + dy * x_h + dx * x_w
            one = tl.load(
                place[:, None] + channel_at[None, :],
                mask=inside[:, None] & wanted[None, :],
                other=0.0,
            )
            w = tl.load(weights + tap * outputs + o, mask=wanted, other=0.0)
            sums += one.to(tl.float32) * w[None, :].to(tl.float32)
    else:
        corner += group.to(tl.int64) * channels * x_c
        held = weights + group.to(tl.int64) * TAPS * channels * outputs
        for begin in range(split * share, tl.minimum((split + 1) * share, TAPS * channels), TILE_K):
            k = begin + tl.arange(0, TILE_K)
            place, inside = taken(
                begin, k, y, left, corner, there, channels, height, width, x_c, x_h, x_w,
                WHOLE, KW, TAPS, DILATION_Y, DILATION_X,
            )  # fmt: skip
            a = tl.load(place, mask=inside, other=0.0)
            known = (k < TAPS * channels)[:, None] & wanted[None, :]
            b = tl.load(held + k[:, None] * outputs + o[None, :], mask=known, other=0.0)
            sums = tl.dot(a, b, sums, input_precision=PRECISION)
    channel = group * outputs + o
    if SPLITS > 1:
        every = outputs * GROUPS
        place = parts + (split.to(tl.int64) * pixels + at)[:, None] * every + channel[None, :]
        tl.store(place, sums, mask=there[:, None] & wanted[None, :])
    else:
        ended(
            sums, at, channel, there, wanted, out, bias, slopes, added, low, high, columns, rows,
            out_n, out_c, out_h, out_w, add_n, add_c, add_h, add_w, SHUFFLE, ADDS, BIASED, HOW,
        )  # fmt: skip


@triton.jit
def finish(
    out,
    bias,
    slopes,
    added,
    parts,
    low,
    high,
    pixels,
    columns,
    rows,
    outputs,
    splits,
    out_n,
    out_c,
    out_h,
    out_w,
    add_n,
    add_c,
    add_h,
    add_w,
    SHUFFLE: tl.constexpr,
    ADDS: tl.constexpr,
    BIASED: tl.constexpr,
    HOW: tl.constexpr,
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
    step = tl.cast(pixels, tl.int64) * outputs
    sums = tl.load(place, mask=inside, other=0.0)
    for _ in range(1, splits):
        place += step
        sums += tl.load(place, mask=inside, other=0.0)
    ended(
        sums, at, o, there, wanted, out, bias, slopes, added, low, high, columns, rows,
        out_n, out_c, out_h, out_w, add_n, add_c, add_h, add_w, SHUFFLE, ADDS, BIASED, HOW,
    )  # fmt: skip
