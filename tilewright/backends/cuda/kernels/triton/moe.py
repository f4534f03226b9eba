"""moe: what a layer of experts does beside its products, and its first product where Triton has it.

    multiply_chosen    rows of x by index, times an expert's matrix, and what becomes of the sums

        index   row .. row + TILE_M          w[g]   gate: col ..      up: n + col ..
          |  (which rows of x)                       |                 |
          v                                          v                 v
        x [T, k]: gathered  ---------------->   +----------+     +----------+
                                       TILE_M   |  sums    |     |  sums    |   -> h, both halves
                                                +----------+     +----------+
                                                     f(gate) * up               -> c [rows, n]

    differentiate      gradients of both halves and of the weights, and weight * c, a row at a time
    combine            out[t] = sum of weight * y over the rows that token t got, in their order

FORM: 0 the sums themselves, 1 f of them, 2 f(gate) * up. KIND: 0 silu, 1 gelu (erf), 2 relu,
3 relu squared. Halves are rounded to h's type before f, as they are when gradients read them.
"""

import triton
import triton.language as tl


@triton.jit
def _f(x, KIND: tl.constexpr):
    """The activation."""
    if KIND == 0:
        y = x / (1 + tl.exp(-x))
    elif KIND == 1:
        y = 0.5 * x * (1 + tl.erf(x * 0.7071067811865476))
    else:
        y = tl.where(x < 0, 0.0, x)
        if KIND == 3:
            y = y * y
    return y


@triton.jit
def _slope(x, KIND: tl.constexpr):
    """Its derivative."""
    if KIND == 0:
        s = 1 / (1 + tl.exp(-x))
        y = s * (1 + x * (1 - s))
    elif KIND == 1:
        density = 0.3989422804014327 * tl.exp(-0.5 * x * x)
        y = 0.5 * (1 + tl.erf(x * 0.7071067811865476)) + x * density
    elif KIND == 2:
        y = tl.where(x > 0, 1.0, 0.0).to(x.dtype)
    else:
        y = 2 * tl.where(x < 0, 0.0, x)
    return y


@triton.jit
def _added(
    gate,
    up,
    left,
    right,
    far,
    steps,
    masks,
    begin,
    end,
    TILE_K: tl.constexpr,
    PRECISION: tl.constexpr,
    PAIR: tl.constexpr,
):
    """Both sums with the products of k from `begin` to `end`, and where the blocks go on."""
    depth = tl.arange(0, TILE_K)
    for at in range(begin, end, TILE_K):
        here = depth < end - at
        a = tl.load(left, mask=masks[0] & here[None, :], other=0.0)
        b = tl.load(right, mask=masks[1] & here[:, None], other=0.0)
        gate = tl.dot(a, b, gate, input_precision=PRECISION, out_dtype=gate.dtype)
        if PAIR:
            b = tl.load(right + far, mask=masks[1] & here[:, None], other=0.0)
            up = tl.dot(a, b, up, input_precision=PRECISION, out_dtype=up.dtype)
        left += steps[0]
        right += steps[1]
    return gate, up, left, right


@triton.jit
def _sums(
    left,
    right,
    far,
    steps,
    masks,
    k,
    SUM: tl.constexpr,
    TILE_M: tl.constexpr,
    TILE_N: tl.constexpr,
    TILE_K: tl.constexpr,
    PRECISION: tl.constexpr,
    EXACT: tl.constexpr,
    PAIR: tl.constexpr,
    CHAIN: tl.constexpr = 128,
):
    """A tile of the product, and where PAIR the one `far` beside it. EXACT as ragged.py has it."""
    gate = tl.zeros((TILE_M, TILE_N), SUM)
    up = tl.zeros((TILE_M, TILE_N), SUM) if PAIR else gate
    if EXACT:
        for begin in range(0, k, CHAIN):
            one = tl.zeros((TILE_M, TILE_N), SUM)
            two = tl.zeros((TILE_M, TILE_N), SUM) if PAIR else one
            end = begin + tl.minimum(k - begin, CHAIN)
            one, two, left, right = _added(
                one, two, left, right, far, steps, masks, begin, end, TILE_K, PRECISION, PAIR
            )
            gate += one
            up += two
    else:
        gate, up, left, right = _added(
            gate, up, left, right, far, steps, masks, 0, k, TILE_K, PRECISION, PAIR
        )
    return gate, up


@triton.jit
def multiply_chosen(
    x,
    w,
    h,
    c,
    index,
    table,
    n,
    k,
    x_row,
    x_col,
    w_group,
    w_row,
    w_col,
    FORM: tl.constexpr,
    KIND: tl.constexpr,
    KEEP: tl.constexpr,
    SUM: tl.constexpr,
    TILE_M: tl.constexpr,
    TILE_N: tl.constexpr,
    TILE_K: tl.constexpr,
    BAND: tl.constexpr,
    PRECISION: tl.constexpr,
    EXACT: tl.constexpr,
):
    """Tiles of c; h, [rows, n] or both halves side by side, is written where KEEP."""
    down = tl.load(table)
    across = tl.cdiv(n, TILE_N)
    depth = tl.arange(0, TILE_K)
    steps = (tl.full((), TILE_K, tl.int64) * x_col, tl.full((), TILE_K, tl.int64) * w_row)
    far = tl.full((), 1, tl.int64) * n * w_col
    wide = tl.full((), 1, tl.int64) * n * (2 if FORM == 2 else 1)
    for tile in range(tl.program_id(0), down * across, tl.num_programs(0)):
        band = tile // (BAND * across)
        within = tile - band * BAND * across
        height = tl.minimum(down - band * BAND, BAND)
        entry = table + 4 + 4 * (band * BAND + within % height)
        col = (within // height) * TILE_N + tl.arange(0, TILE_N)
        group = tl.load(entry).to(tl.int64)
        row = tl.load(entry + 1).to(tl.int64) + tl.arange(0, TILE_M)
        inside = row < tl.load(entry + 2)
        source = tl.load(index + row, mask=inside, other=0).to(tl.int64)
        left = x + source[:, None] * x_row + depth[None, :].to(tl.int64) * x_col
        right = w + group * w_group
        right += depth[:, None].to(tl.int64) * w_row + col[None, :].to(tl.int64) * w_col
        masks = (inside[:, None], (col < n)[None, :])
        pair: tl.constexpr = FORM == 2
        gate, up = _sums(
            left, right, far, steps, masks, k, SUM, TILE_M, TILE_N, TILE_K, PRECISION, EXACT, pair
        )
        both = inside[:, None] & (col < n)[None, :]
        kind = c.dtype.element_ty
        value = gate.to(kind)
        if FORM > 0:
            if KEEP:
                tl.store(h + row[:, None] * wide + col[None, :], value, mask=both)
            made = _f(value.to(SUM), KIND)
            if FORM == 2:
                other = up.to(kind)
                if KEEP:
                    tl.store(h + row[:, None] * wide + n + col[None, :], other, mask=both)
                made = made * other.to(SUM)
            value = made.to(kind)
        tl.store(c + row[:, None] * n + col[None, :], value, mask=both)


@triton.jit
def _halves(h, row, col, both, n, FORM: tl.constexpr, SUM: tl.constexpr):
    """What h has for elements of c: the gate, and what it is multiplied by."""
    place = h + row[:, None] * n * (2 if FORM == 2 else 1) + col[None, :]
    gate = tl.load(place, mask=both, other=0.0).to(SUM)
    up = gate
    if FORM == 2:
        up = tl.load(place + n, mask=both, other=0.0).to(SUM)
    return gate, up


@triton.jit
def differentiate(
    h,
    c,
    of_h,
    order,
    weights,
    of_weights,
    last,
    n,
    top,
    weight_row,
    weight_col,
    FORM: tl.constexpr,
    KIND: tl.constexpr,
    SUM: tl.constexpr,
    HIGH: tl.constexpr,
    WIDE: tl.constexpr,
):
    """Program p has HIGH rows. c comes as the gradient of what the down projection read, without
    the weight, and leaves as weight times what it read; `of_weights` [T, K] is dense.
    """
    row = tl.program_id(0).to(tl.int64) * HIGH + tl.arange(0, HIGH)
    inside = row < tl.load(last)
    slot = tl.load(order + row, mask=inside, other=0)
    place = weights + (slot // top).to(tl.int64) * weight_row + (slot % top) * weight_col
    weight = tl.load(place, mask=inside, other=0.0).to(SUM)[:, None]
    found = tl.zeros((HIGH,), SUM)
    kind = c.dtype.element_ty
    for start in range(0, n, WIDE):
        col = start + tl.arange(0, WIDE)
        both = inside[:, None] & (col < n)[None, :]
        gate, up = _halves(h, row, col, both, n, FORM, SUM)
        at = c + row[:, None] * n + col[None, :]
        pull = tl.load(at, mask=both, other=0.0).to(SUM)
        made = _f(gate, KIND)
        slope = _slope(gate, KIND)
        to = of_h + row[:, None] * n * (2 if FORM == 2 else 1) + col[None, :]
        if FORM == 2:
            tl.store(to + n, (weight * pull * made).to(kind), mask=both)
            made = made * up
            slope = slope * up
        tl.store(to, (weight * pull * slope).to(kind), mask=both)
        found += tl.sum(tl.where(both, pull * made, 0.0), 1)
        tl.store(at, (weight * made).to(kind), mask=both)
    tl.store(of_weights + slot, found.to(of_weights.dtype.element_ty), mask=inside)


@triton.jit
def combine(
    y,
    places,
    weights,
    out,
    across,
    d,
    weight_row,
    weight_col,
    TOP: tl.constexpr,
    WEIGHTED: tl.constexpr,
    SUM: tl.constexpr,
    WIDE: tl.constexpr,
):
    """out [T, d]: program p has WIDE columns of token p // across. Rows of y, [rows, d], are read
    in the order of the token's slots, so the sum is the same each time.
    """
    token = (tl.program_id(0) // across).to(tl.int64)
    col = (tl.program_id(0) % across) * WIDE + tl.arange(0, WIDE)
    sums = tl.zeros((WIDE,), SUM)
    for slot in tl.static_range(TOP):
        row = tl.load(places + token * TOP + slot).to(tl.int64)
        end = tl.where(row < 0, 0, d)  # a slot without a row adds nothing
        value = tl.load(y + row * d + col, mask=col < end, other=0.0).to(SUM)
        if WEIGHTED:
            value *= tl.load(weights + token * weight_row + slot * weight_col).to(SUM)
        sums += tl.where(col < end, value, 0.0)
    tl.store(out + token * d + col, sums.to(out.dtype.element_ty), mask=col < d)
