"""How sums of small whole numbers end: as bytes, as they are, or four outputs' parts added up.

    y = float32(sum) * scale      q = y / step, rounded once      byte = saturated(round(q) + shift)

A division takes sixteen cycles a register. In its place y is multiplied by 1 / step, and what that
misses is added, with fused multiply-adds: the same float32 but for ties that `conv_whole_pack`
looks for in advance, where it finds one sums end as they are and are divided.

`ends` is [scale: float32 [vectors][16]][1 / step, step: float32][shift, low, high, flip, plain:
int32]; plain where all but the scales and steps leaves bytes as they are.
"""

from __future__ import annotations

from llvmlite import ir
from numba.core import cgutils

from tilewright.backends.host.kernels.conv_product import BYTE, INT, at, fused
from tilewright.backends.host.kernels.lanes import broadcast, overloaded
from tilewright.backends.host.kernels.whole_dot import I8, I16, I32, INTS, LANES, WIDE

FLOATS = ir.VectorType(ir.FloatType(), LANES)
_BYTES = ir.VectorType(I8, LANES)
RECIPROCAL, STEP, SHIFT, LOW, HIGH, FLIP, PLAIN = range(7)  # numbers after the scales


def _load(builder, pointer, kind):
    return builder.load(builder.bitcast(pointer, kind.as_pointer()), align=1)


def _store(builder, value, pointer):
    builder.store(value, builder.bitcast(pointer, value.type.as_pointer()), align=1)


def sums_end(builder, sums, out):
    """int32 [pixels][vectors][16]."""
    for index, one in enumerate(sums):
        _store(builder, one, at(builder, out, 4 * LANES * index))


def bytes_end(builder, sums, ends, places, left, vectors):
    """Rounded, to the pixels' places; of each pixel the first `left` channels."""
    whole, numbers = rounded_sums(builder, sums, ends, vectors)
    packed = _parts_wide if WIDE else _packed_plainly
    masks = [_first(builder, left, v) for v in range(vectors)]
    for index, part in enumerate(packed(builder, whole, numbers)):
        place = at(builder, places[index // vectors], LANES * (index % vectors))
        _store_some(builder, part, place, *masks[index % vectors])


def dense_end(builder, sums, ends, out, vectors):
    """Rounded, all side by side; limits and a shift where `ends` says that there are any."""
    whole, numbers = rounded_sums(builder, sums, ends, vectors)
    if not WIDE:
        for index, part in enumerate(_packed_plainly(builder, whole, numbers)):
            _store(builder, part, at(builder, out, LANES * index))
        return
    told = _load(builder, at(builder, numbers, 4 * PLAIN), I32)
    plain = builder.icmp_signed("!=", told, I32(0))
    with builder.if_else(plain, likely=True) as (then, otherwise):
        for branch, given in ((then, None), (otherwise, numbers)):
            with branch:
                for index, four in enumerate(packed_wide(builder, whole, given)):
                    _store(builder, four, at(builder, out, 4 * LANES * index))


def rounded_sums(builder, sums, ends, vectors):
    """Sums as they are rounded, int32, and the numbers behind their scales."""
    scales = [_load(builder, at(builder, ends, 64 * v), FLOATS) for v in range(vectors)]
    numbers = at(builder, ends, 64 * vectors)
    reciprocal, step = (
        broadcast(builder, _load(builder, at(builder, numbers, 4 * place), ir.FloatType()), FLOATS)
        for place in (RECIPROCAL, STEP)
    )
    whole = [
        _rounded(builder, one, scales[i % vectors], reciprocal, step) for i, one in enumerate(sums)
    ]
    return whole, numbers


def _rounded(builder, one, scale, reciprocal, step):
    """round(float32(sum) * scale / step), as int32."""
    y = builder.fmul(builder.sitofp(one, FLOATS), scale)
    near = builder.fmul(y, reciprocal)
    missed = fused(builder, builder.fneg(near), step, y)
    return to_ints(builder, fused(builder, missed, reciprocal, near))


def to_ints(builder, value):
    """Rounded, halves to even; for numbers that int32 holds."""
    if WIDE:
        name = "llvm.x86.avx512.mask.cvtps2dq.512"
        mask = ir.IntType(LANES)
        function = overloaded(builder, name, INTS, FLOATS, INTS, mask, I32)
        return builder.call(function, [value, ir.Constant(INTS, None), mask(-1), I32(4)])
    function = overloaded(builder, f"llvm.rint.v{LANES}f32", FLOATS, FLOATS)
    return builder.fptosi(builder.call(function, [value]), INTS)


def _number(builder, numbers, place, kind, vector):
    """A number of `ends`, in all lanes of a type."""
    value = _load(builder, at(builder, numbers, 4 * place), I32)
    return broadcast(builder, builder.trunc(value, kind), vector)


def packed_wide(builder, whole, numbers, *, woven=False):
    """Bytes of four vectors in one; `numbers` are None where they are plain.

    One vector after the other, or woven as `whole_depth` says.
    """
    shorts, bytes_ = ir.VectorType(I16, 32), ir.VectorType(I8, 64)
    if numbers is not None:
        shift = _number(builder, numbers, SHIFT, I16, shorts)
        low, high, flip = (_number(builder, numbers, n, I8, bytes_) for n in (LOW, HIGH, FLIP))
    halves = overloaded(builder, "llvm.x86.avx512.packssdw.512", shorts, INTS, INTS)
    quarters = overloaded(builder, "llvm.x86.avx512.packuswb.512", bytes_, shorts, shorts)
    added = overloaded(builder, "llvm.sadd.sat.v32i16", shorts, shorts, shorts)
    # Packing leaves lane 4k..4k+3 of vector j at 4k + j, of words of four bytes.
    order = ir.Constant(INTS, [I32(4 * (n % 4) + n // 4) for n in range(LANES)])
    found = []
    for first in range(0, len(whole), 4):
        four = whole[first : first + 4]
        pairs = [builder.call(halves, four[i : i + 2]) for i in (0, 2)]
        if numbers is not None:
            pairs = [builder.call(added, [pair, shift]) for pair in pairs]
        one = builder.call(quarters, pairs)
        if numbers is not None:
            one = builder.select(builder.icmp_unsigned(">", one, low), one, low)
            one = builder.select(builder.icmp_unsigned("<", one, high), one, high)
            one = builder.xor(one, flip)
        words = builder.bitcast(one, INTS)
        words = words if woven else builder.shuffle_vector(words, words, order)
        found.append(builder.bitcast(words, bytes_))
    return found


def _parts_wide(builder, whole, numbers):
    """The same, vector by vector."""
    found = []
    for four in packed_wide(builder, whole, numbers):
        for part in range(4):
            lanes = [I32(LANES * part + lane) for lane in range(LANES)]
            places = ir.Constant(ir.VectorType(I32, LANES), lanes)
            found.append(builder.shuffle_vector(four, four, places))
    return found


def _packed_plainly(builder, whole, numbers):
    """The same, vector by vector."""
    shift, low, high, flip = (
        _number(builder, numbers, place, I32, INTS) for place in (SHIFT, LOW, HIGH, FLIP)
    )
    found = []
    for one in whole:
        value = builder.add(one, shift)
        value = builder.select(builder.icmp_signed(">", value, low), value, low)
        value = builder.select(builder.icmp_signed("<", value, high), value, high)
        found.append(builder.trunc(builder.xor(value, flip), _BYTES))
    return found


def _first(builder, left, vector):
    """Whether all lanes of a vector are channels, how many are, and a mask of those."""
    rest = builder.sub(left, INT(LANES * vector))
    numbers = ir.Constant(ir.VectorType(ir.IntType(64), LANES), list(range(LANES)))
    mask = builder.icmp_signed("<", numbers, broadcast(builder, rest, numbers.type))
    return rest, mask


def _store_some(builder, value, pointer, rest, mask):
    """Sixteen bytes, of which `rest` are stored; the mask says the same."""
    if WIDE:
        pointer = builder.bitcast(pointer, value.type.as_pointer())
        kinds = value.type, pointer.type, I32, mask.type
        name = f"llvm.masked.store.v{LANES}i8.p0v{LANES}i8"
        function = overloaded(builder, name, ir.VoidType(), *kinds)
        builder.call(function, [value, pointer, I32(1), mask])
        return
    whole = builder.icmp_signed(">=", rest, INT(LANES))
    with builder.if_else(whole, likely=True) as (then, otherwise):
        with then:
            _store(builder, value, pointer)
        with otherwise:
            room = cgutils.alloca_once(builder, value.type)
            builder.store(value, room)
            with builder.if_then(builder.icmp_signed(">", rest, INT(0))):
                source = builder.bitcast(room, BYTE.as_pointer())
                cgutils.raw_memcpy(builder, pointer, source, rest, 1)


def few_end(builder, sums, ends, out, shuffled, row):
    """Four outputs, float32 within limits: [output][pixels], or shuffled by 2 [2][2 x pixels].

    ends: scale [4 outputs][4 times], then low and high. `row`: bytes from an output to the next, or
    from a row to the next.
    """
    scale = _load(builder, ends, FLOATS)
    low, high = (
        broadcast(builder, _load(builder, at(builder, ends, 64 + 4 * n), ir.FloatType()), FLOATS)
        for n in range(2)
    )
    values = []
    for first in range(0, len(sums), 4):
        total = _parts_added(builder, sums[first : first + 4])
        y = builder.fmul(builder.sitofp(total, FLOATS), scale)
        y = builder.select(builder.fcmp_ordered("<", y, low), low, y)
        values.append(builder.select(builder.fcmp_ordered(">", y, high), high, y))
    asked = builder.icmp_signed("!=", shuffled, INT(0))
    with builder.if_else(asked) as (then, otherwise):
        with then:
            for index, value in enumerate(values):
                _two_rows(builder, value, at(builder, out, 32 * index), row)
        with otherwise:
            for index, value in enumerate(values):
                _quarters(builder, value, at(builder, out, 16 * index), row)


def _parts_added(builder, four):
    """Of four pixels' sums, [4 outputs][4 parts] each: [4 outputs][4 pixels]."""

    def mixed(one, other, lanes):
        numbers = [I32(4 * part + lane % 4 + (LANES if lane > 3 else 0))
                   for part in range(4) for lane in lanes]  # fmt: skip
        return builder.shuffle_vector(one, other, ir.Constant(INTS, numbers))

    a, b, c, d = four
    low = builder.add(mixed(a, b, (0, 4, 1, 5)), mixed(a, b, (2, 6, 3, 7)))
    high = builder.add(mixed(c, d, (0, 4, 1, 5)), mixed(c, d, (2, 6, 3, 7)))
    return builder.add(mixed(low, high, (0, 1, 4, 5)), mixed(low, high, (2, 3, 6, 7)))


def _two_rows(builder, value, out, row):
    """Outputs 0 and 1 side by side in one row of pixels, 2 and 3 in the next."""
    order = [4 * (2 * (lane // 8) + lane % 2) + lane % 8 // 2 for lane in range(LANES)]
    shuffled = builder.shuffle_vector(value, value, ir.Constant(INTS, [I32(n) for n in order]))
    for half in range(2):
        lanes = [I32(8 * half + lane) for lane in range(8)]
        places = ir.Constant(ir.VectorType(I32, 8), lanes)
        part = builder.shuffle_vector(shuffled, shuffled, places)
        _store(builder, part, builder.gep(out, [builder.mul(row, INT(half))]))


def _quarters(builder, value, out, row):
    for part in range(4):
        lanes = [I32(4 * part + lane) for lane in range(4)]
        places = ir.Constant(ir.VectorType(I32, 4), lanes)
        one = builder.shuffle_vector(value, value, places)
        _store(builder, one, builder.gep(out, [builder.mul(row, INT(part))]))
