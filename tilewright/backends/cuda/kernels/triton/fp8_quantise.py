"""fp8_quantise: 8-bit numbers and their scales, k contiguous, from a matrix that lies in any way.

    x [rows, k]                    values [rows, k], a scale for each
    +--------+--------+            ROW        whole row             SCALE 0
    | 128 k  | 128 k  | TILE_R     1 x 128    of a row              SCALE 1
    +--------+--------+            128 x 128  block                 SCALE 2

scale = largest finite magnitude / largest number of the type; 1 where all are zero. What is not
finite stays seen: NaN, and in e5m2, which has them, infinities.

INT8, of rows: whole numbers from -127 to 127; a row with what is not finite has scale NaN, as int8
has nothing that says so.

PADDED: k is cut into groups by ends on the device, and each begins at a multiple of 128 of what is
written; zeros fill it up. `pad_groups` says where they end there.
"""

import triton
import triton.language as tl

from tilewright.backends.cuda.kernels.triton.ragged_offsets import bounds


@triton.jit
def encoded(v, E5M2: tl.constexpr, NATIVE: tl.constexpr):
    """Bits of the nearest 8-bit float, ties to even, of numbers that are at most the largest."""
    if NATIVE:
        near = v.to(tl.float8e5) if E5M2 else v.to(tl.float8e4nv)
        return near.to(tl.uint8, bitcast=True)
    shift: tl.constexpr = 21 if E5M2 else 20  # bits of a float32's fraction that are dropped
    bias: tl.constexpr = (15 - 127) if E5M2 else (7 - 127)
    # Beside this number the last bit of a float32 is the smallest step of the type.
    step: tl.constexpr = 128.0 if E5M2 else 16384.0
    small: tl.constexpr = 0.00006103515625 if E5M2 else 0.015625
    most: tl.constexpr = 0x7B if E5M2 else 0x7E
    size = tl.abs(v)
    bits = size.to(tl.int32, bitcast=True)
    beside = tl.full(v.shape, step, tl.float32)
    tiny = (size + beside).to(tl.int32, bitcast=True) - beside.to(tl.int32, bitcast=True)
    odd = (bits >> shift) & 1
    usual = (bits + bias * 8388608 + ((1 << (shift - 1)) - 1) + odd) >> shift
    code = tl.minimum(tl.where(size < small, tiny, usual), most)
    sign = (v.to(tl.int32, bitcast=True) >> 24) & 0x80
    return (code | sign).to(tl.uint8)


@triton.jit
def _sizes(v):
    """Magnitudes; zero of what is not finite."""
    return tl.where(v - v == 0, tl.abs(v), 0.0)


@triton.jit
def _scale(most, E5M2: tl.constexpr):
    largest: tl.constexpr = 57344.0 if E5M2 else 448.0
    scale = tl.maximum(
        tl.div_rn(most, tl.full(most.shape, largest, tl.float32)), 1.1754943508222875e-38
    )
    return tl.where(most == 0, 1.0, scale)


@triton.jit
def _whole_bits(v, scale):
    """Bits of v / scale as int8, rounded to nearest, ties to even; zero where either is not finite.

    Beside 1.5 * 2^23 the last bit of a float32 is 1. Cut off first, so that no compiler makes one
    rounding of the product and the sum (nor of what the product is subtracted from).
    """
    inverse = tl.div_rn(tl.full(scale.shape, 1.0, tl.float32), scale)
    near = tl.where(v - v == 0, v, 0.0) * tl.where(scale == scale, inverse, 0.0)
    near = tl.minimum(tl.maximum(near, -127.0), 127.0)
    return (near + 12582912.0).to(tl.int32, bitcast=True).to(tl.uint8)


@triton.jit
def _whole_scale(most, finite):
    scale = tl.div_rn(most, tl.full(most.shape, 127.0, tl.float32))
    scale = tl.where(most == 0, 1.0, tl.maximum(scale, 1.1754943508222875e-38))
    return tl.where(finite, scale, float("nan"))


@triton.jit
def _bits(v, scale, E5M2: tl.constexpr, NATIVE: tl.constexpr):
    """Bits of v / scale."""
    finite = v - v == 0
    found = encoded(
        tl.where(finite, v, 0.0) * tl.div_rn(tl.full(scale.shape, 1.0, tl.float32), scale),
        E5M2,
        NATIVE,
    )
    other = tl.full(v.shape, 0x7F, tl.int32)
    if E5M2:
        other = tl.where(v == v, 0x7C, 0x7F)
    sign = (v.to(tl.int32, bitcast=True) >> 24) & 0x80
    return tl.where(finite, found.to(tl.int32), other | sign).to(tl.uint8)


@triton.jit(do_not_specialize=["rows", "k"])
def quantise_rows(
    x,
    values,
    scales,
    rows,
    k,
    x_batch,
    x_row,
    x_col,
    v_batch,
    v_row,
    E5M2: tl.constexpr,
    INT8: tl.constexpr,
    NATIVE: tl.constexpr,
    TILE_R: tl.constexpr,
    TILE_K: tl.constexpr,
):
    """SCALE 0: a program reads TILE_R rows twice, the second time from cache."""
    tiles = tl.cdiv(rows, TILE_R)
    batch = (tl.program_id(0) // tiles).to(tl.int64)
    row_tile = tl.program_id(0) % tiles
    row = row_tile.to(tl.int64) * TILE_R + tl.arange(0, TILE_R)
    inside = (row < rows)[:, None]
    at = x + batch * x_batch + row[:, None] * x_row
    most = tl.zeros((TILE_R,), tl.float32)
    strange = tl.zeros((TILE_R,), tl.int32)  # of INT8: whether something is not finite
    place = tl.arange(0, TILE_K)[None, :]
    whole = tl.where(rows - row_tile * TILE_R >= TILE_R, k // TILE_K * TILE_K, 0)
    for begin in range(0, whole, TILE_K):  # without masks 16 bytes are read at once
        v = tl.load(at + (begin + place).to(tl.int64) * x_col).to(tl.float32)
        most = tl.maximum(most, tl.max(_sizes(v), 1))
        if INT8:
            strange |= tl.max((v - v != 0).to(tl.int32), 1)
    for begin in range(whole, k, TILE_K):
        here = inside & (begin + place < k)
        v = tl.load(at + (begin + place).to(tl.int64) * x_col, mask=here, other=0.0).to(tl.float32)
        most = tl.maximum(most, tl.max(_sizes(v), 1))
        if INT8:
            strange |= tl.max((v - v != 0).to(tl.int32), 1)
    scale = _whole_scale(most, strange == 0) if INT8 else _scale(most, E5M2)
    tl.store(scales + batch * rows + row, scale, mask=row < rows)
    into = values + batch * v_batch + row[:, None] * v_row
    for begin in range(0, whole, TILE_K):
        v = tl.load(at + (begin + place).to(tl.int64) * x_col).to(tl.float32)
        if INT8:
            tl.store(into + begin + place, _whole_bits(v, scale[:, None]))
        else:
            tl.store(into + begin + place, _bits(v, scale[:, None], E5M2, NATIVE))
    for begin in range(whole, k, TILE_K):
        here = inside & (begin + place < k)
        v = tl.load(at + (begin + place).to(tl.int64) * x_col, mask=here, other=0.0).to(tl.float32)
        if INT8:
            tl.store(into + begin + place, _whole_bits(v, scale[:, None]), mask=here)
        else:
            tl.store(into + begin + place, _bits(v, scale[:, None], E5M2, NATIVE), mask=here)


@triton.jit
def _source(block, ends, padded, groups, step):
    """Where a block of 128 of the padded k comes from, and where its group ends there."""
    low = tl.zeros((), tl.int32)  # the first group whose padded end lies past the block
    high = low + groups
    while low < high:
        middle = (low + high) // 2
        past = tl.load(padded + middle) > block * 128
        high = tl.where(past, middle, high)
        low = tl.where(past, low, middle + 1)
    live = low < groups
    place = ends + low.to(tl.int64) * step
    first = tl.load(place - step, mask=live & (low > 0), other=0).to(tl.int64)
    begin = tl.load(padded + low - 1, mask=live & (low > 0), other=0).to(tl.int64)
    last = tl.load(place, mask=live, other=0).to(tl.int64)
    return first + block.to(tl.int64) * 128 - begin, last


@triton.jit(do_not_specialize=["rows", "k", "written", "blocks", "groups"])
def quantise_blocks(
    x,
    values,
    scales,
    ends,
    padded,
    rows,
    k,
    written,
    blocks,
    groups,
    step,
    x_batch,
    x_row,
    x_col,
    v_batch,
    v_row,
    s_batch,
    s_row,
    s_block,
    SCALE: tl.constexpr,
    PADDED: tl.constexpr,
    E5M2: tl.constexpr,
    NATIVE: tl.constexpr,
    TILE_R: tl.constexpr,
    WIDE: tl.constexpr,
):
    """A program for TILE_R rows of a block of 128 of k; SCALE 2 has TILE_R 128.

    `written` is how much of k has room. WIDE: a tile of x reaches over 2^31 elements or more.
    """
    tiles = tl.cdiv(rows, TILE_R)
    block = tl.program_id(0) % blocks
    tile = (tl.program_id(0) // blocks) % tiles
    batch = (tl.program_id(0) // blocks // tiles).to(tl.int64)
    top, row, place = tile.to(tl.int64) * TILE_R, tl.arange(0, TILE_R), tl.arange(0, 128)
    inside = (row < tl.minimum(rows - tile * TILE_R, TILE_R))[:, None]
    first, last = block.to(tl.int64) * 128, tl.full((), 0, tl.int64) + k
    if PADDED:
        first, last = _source(block, ends, padded, groups, step)
    width = tl.minimum(tl.minimum(last, k) - first, 128).to(tl.int32)
    live = inside & (place < width)[None, :]
    whole = rows - tile * TILE_R >= TILE_R
    corner = x + batch * x_batch + top * x_row + first * x_col
    if WIDE:
        at = corner + (row.to(tl.int64)[:, None] * x_row + place.to(tl.int64)[None, :] * x_col)
        v = tl.load(at, mask=live, other=0.0).to(tl.float32)
    else:
        at = corner + (row[:, None] * x_row + place[None, :] * x_col)
        if whole & (width == 128):  # without masks 16 bytes are read at once
            v = tl.load(at).to(tl.float32)
        else:
            v = tl.load(at, mask=live, other=0.0).to(tl.float32)
    into = values + batch * v_batch + (top + row)[:, None] * v_row + block.to(tl.int64) * 128
    of_block = scales + batch * s_batch + block.to(tl.int64) * s_block
    if SCALE == 1:
        scale = _scale(tl.max(_sizes(v), 1), E5M2)
        tl.store(of_block + (top + row) * s_row, scale, mask=row < rows - tile * TILE_R)
        bits = _bits(v, scale[:, None], E5M2, NATIVE)
    else:
        most = tl.max(tl.max(_sizes(v), 1), 0)
        scale = _scale(tl.full((1, 1), 0.0, tl.float32) + most, E5M2)
        tl.store(of_block + tile.to(tl.int64) * s_row + tl.zeros((1, 1), tl.int64), scale)
        bits = _bits(v, scale, E5M2, NATIVE)
    # The room past k is not seen, and a multiple of 16 bytes.
    if whole & (written - block * 128 >= 128):
        tl.store(into + place[None, :], bits)
    else:
        tl.store(
            into + place[None, :], bits, mask=inside & (place < written - block * 128)[None, :]
        )


@triton.jit(do_not_specialize=["k", "groups"])
def pad_groups(ends, padded, fault, k, groups, step, BLOCK: tl.constexpr):
    """One program: where each group ends once every one begins at a multiple of 128."""
    before = tl.zeros((), tl.int64)
    for start in range(0, groups, BLOCK):
        group = start + tl.arange(0, BLOCK)
        live = group < groups
        begin, end, bad = bounds(ends, step, group, live, k, 0)
        if tl.max(bad.to(tl.int32)) > 0:
            tl.store(fault, tl.min(tl.where(bad, group, groups)) + 1)
        length = tl.where(live & (bad == 0), (end - begin).to(tl.int64), 0)
        room = (length + 127) // 128 * 128
        tl.store(
            padded + group, (before + tl.cumsum(room, 0)).to(padded.dtype.element_ty), mask=live
        )
        before += tl.sum(room, 0)
