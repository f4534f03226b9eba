"""Rows of products of bfloat16 and int8: B to panels of words, sums to results, and one by one.

    B, two rows of k        a0 a1 a2 ..       a word a column       a0 b0 | a1 b1 | a2 b2 ..
    of bfloat16             b0 b1 b2 ..       of the panel          32 bits each

Of int8 four rows make a word. Rows beyond k are zeros; columns beyond B's are zeros or are never
looked at. `grouped_narrow_tile.py` multiplies panels.
"""

from __future__ import annotations

from llvmlite import ir

from tilewright.backends.host.kernels.conv_product import INT, POINTER, at
from tilewright.backends.host.kernels.grouped_narrow_tile import (
    BYTES,
    FLIP,
    I8,
    I16,
    I32,
    MASKS,
    PITCH,
    WIDEST,
    gathered,
    of_kind,
    put,
    vector_at,
    word_at,
)
from tilewright.backends.host.kernels.grouped_tile import repeated
from tilewright.backends.host.kernels.halves_tile import to_bfloat16
from tilewright.backends.host.kernels.helpers import kept_helper
from tilewright.backends.host.kernels.lanes import broadcast, overloaded
from tilewright.backends.host.kernels.whole_dot import INTS, LANES, SIGNED, dot


@of_kind("", "i" * 5)
def pack(builder, kind, b, b_row, steps, cols, panel):
    """So many steps of k of up to `WIDEST` vectors of columns that follow each other: words.

    Where parts of a vector cannot be read there are as many columns as vectors have lanes.
    """
    b, panel = (builder.inttoptr(place, POINTER) for place in (b, panel))
    words, rest = builder.sdiv(steps, INT(kind.group)), builder.srem(steps, INT(kind.group))
    some = builder.zext(builder.icmp_signed("!=", rest, INT(0)), INT)

    def filled(vectors):
        def whole(index, _):
            _packed(builder, kind, vectors, b, b_row, index, INT(kind.group), cols, panel)
            return []

        def last(index, _):
            _packed(builder, kind, vectors, b, b_row, index, rest, cols, panel)
            return []

        repeated(builder, INT(0), words, 1, [], whole)
        repeated(builder, words, builder.add(words, some), 1, [], last)

    if WIDEST == 1:
        filled(1)
        return
    with builder.if_else(builder.icmp_signed(">", cols, INT(LANES))) as (then, otherwise):
        with then:
            filled(2)
        with otherwise:
            filled(1)


def _packed(builder, kind, vectors, b, b_row, index, count, cols, panel):
    """One row of the panel, of `count` rows of B."""
    row = ir.VectorType(kind.scalar, LANES * vectors)
    zeros = ir.Constant(row, [kind.scalar(0)] * row.count)
    start = at(builder, b, builder.mul(builder.mul(index, INT(kind.group)), b_row))
    found = []
    for number in range(kind.group):
        there = builder.icmp_signed(">", count, INT(number))
        offset = builder.select(there, builder.mul(b_row, INT(number)), INT(0))
        value = some(builder, kind, row, at(builder, start, offset), cols)
        found.append(value if number == 0 else builder.select(there, value, zeros))
    joined = found[0]
    while len(found) > 1:  # [a b ..] and [c d ..] to [a b .. c d ..]
        pairs = zip(found[::2], found[1::2], strict=True)
        found = [_shuffled(builder, *pair, range(2 * pair[0].type.count)) for pair in pairs]
        joined = found[0]
    nothing = ir.Constant(joined.type, ir.Undefined)
    place = at(builder, panel, builder.mul(builder.add(index, INT(1)), INT(PITCH)))
    for vector in range(vectors):
        order = [
            part * row.count + LANES * vector + lane
            for lane in range(LANES)
            for part in range(kind.group)
        ]
        words = builder.bitcast(_shuffled(builder, joined, nothing, order), INTS)
        put(builder, words, at(builder, place, BYTES * vector))


def _shuffled(builder, one, other, order):
    lanes = ir.VectorType(I32, len(order))
    return builder.shuffle_vector(one, other, ir.Constant(lanes, [I32(at_) for at_ in order]))


def some(builder, kind, row, pointer, cols):
    """A row's first `cols` elements, and zeros."""
    pointer = builder.bitcast(pointer, row.as_pointer())
    if not MASKS:
        return builder.load(pointer, align=kind.item)
    numbers = ir.Constant(ir.VectorType(I8, row.count), [I8(lane) for lane in range(row.count)])
    mask = builder.icmp_signed(
        "<", numbers, broadcast(builder, builder.trunc(cols, I8), numbers.type)
    )
    word = f"v{row.count}i{8 * kind.item}"
    name = f"llvm.masked.load.{word}.p0{word}"
    call = overloaded(builder, name, row, pointer.type, I32, mask.type, row)
    zeros = ir.Constant(row, [kind.scalar(0)] * row.count)
    return builder.call(call, [pointer, I32(kind.item), mask, zeros])


@of_kind("", "iii")
def begin(builder, kind, panel, words, vectors):
    """What sums of a panel start at: -128 times the sum of every column, of int8."""
    if kind.item == 2 or SIGNED:
        return
    panel = builder.inttoptr(panel, POINTER)
    flip = ir.Constant(INTS, [I32(FLIP)] * LANES)

    def one(vector, _):
        place = at(builder, panel, builder.mul(vector, INT(BYTES)))

        def step(index, sums):
            row = at(builder, place, builder.mul(index, INT(PITCH)))
            return [dot(builder, sums[0], flip, vector_at(builder, row, INTS))]

        found = repeated(builder, INT(1), builder.add(words, INT(1)), 1, [kind.zero()], step)
        put(builder, builder.sub(kind.zero(), found[0]), place)
        return []

    repeated(builder, INT(0), vectors, 1, [], one)


@of_kind("", "iii")
def shorten(builder, kind, sums, c, count):
    """So many sums to elements of C that follow each other: rounded to bfloat16, NaN staying one;
    of int8, whose results are their sums, nothing is done."""
    if kind.item == 1:
        return
    sums, c = (builder.inttoptr(place, POINTER) for place in (sums, c))
    whole = builder.and_(count, INT(-LANES))

    def several(index, _):
        bits = vector_at(builder, at(builder, sums, builder.mul(index, INT(4))), INTS)
        half = builder.trunc(to_bfloat16(builder, bits), ir.VectorType(I16, LANES))
        place = builder.bitcast(at(builder, c, builder.mul(index, INT(2))), half.type.as_pointer())
        builder.store(half, place, align=2)
        return []

    def one(index, _):
        bits = word_at(builder, at(builder, sums, builder.mul(index, INT(4))))
        half = builder.trunc(to_bfloat16(builder, bits), I16)
        place = builder.bitcast(at(builder, c, builder.mul(index, INT(2))), I16.as_pointer())
        builder.store(half, place, align=2)
        return []

    repeated(builder, INT(0), whole, LANES, [], several)
    repeated(builder, whole, count, 1, [], one)


@of_kind("", "iii")
def add_row(builder, kind, part, sums, count):
    """sums += part, so many."""
    part, sums = (builder.inttoptr(place, POINTER) for place in (part, sums))

    def step(index, _):
        offset = builder.mul(index, INT(4))
        there = at(builder, sums, offset)
        one = vector_at(builder, at(builder, part, offset), kind.vector.element)
        put(builder, kind.add(builder, vector_at(builder, there, kind.vector.element), one), there)
        return []

    repeated(builder, INT(0), count, 1, [], step)


@of_kind("r", "i")
def sum_at(builder, kind, address):
    """One sum."""
    return vector_at(builder, builder.inttoptr(address, POINTER), kind.vector.element)


@of_kind("", "ir")
def put_sum(builder, kind, address, value):
    """The other way."""
    put(builder, value, builder.inttoptr(address, POINTER))


@of_kind("r", "d")
def as_sum(builder, kind, value):
    """A float64 as a sum."""
    to = kind.vector.element
    return builder.fptrunc(value, to) if kind.item == 2 else builder.fptosi(value, to)


@of_kind("r", "rrr")
def scaled(builder, kind, one, other, added):
    """one * other + added; of int8 what 32 bits hold of it."""
    multiply = builder.fmul if kind.item == 2 else builder.mul
    return kind.add(builder, multiply(one, other), added)


@of_kind("r", "i")
def result_at(builder, kind, address):
    """One element of C as a sum: a bfloat16, or an int32."""
    pointer = builder.inttoptr(address, POINTER)
    if kind.item == 1:
        return word_at(builder, pointer)
    half = builder.load(builder.bitcast(pointer, I16.as_pointer()), align=2)
    return builder.bitcast(builder.shl(builder.zext(half, I32), I32(16)), ir.FloatType())


@of_kind("", "ir")
def put_result(builder, kind, address, value):
    """The other way."""
    pointer = builder.inttoptr(address, POINTER)
    if kind.item == 1:
        put(builder, value, pointer)
        return
    half = builder.trunc(to_bfloat16(builder, builder.bitcast(value, I32)), I16)
    builder.store(half, builder.bitcast(pointer, I16.as_pointer()), align=2)


@of_kind("", "iiii")
def put_word(builder, kind, source, step, target, count):
    """A word of up to `count` elements `step` bytes apart, to `target`."""
    source, target = (builder.inttoptr(place, POINTER) for place in (source, target))
    full = builder.icmp_signed(">=", count, INT(kind.group))
    with builder.if_else(full) as (then, otherwise):
        with then:
            put(builder, gathered(builder, kind, source, step), target)
        with otherwise:
            put(builder, gathered(builder, kind, source, step, count), target)


@of_kind("", "ii")
def copy_word(builder, kind, source, target):
    """A word that lies in one piece."""
    source, target = (builder.inttoptr(place, POINTER) for place in (source, target))
    put(builder, word_at(builder, source), target)


@kept_helper
def copied(zero, item, source, row, col, rows, steps, target, pitch):
    """Rows of A that do not lie along k, each to words that do, the last one filled with zeros."""
    group = 4 // item
    for r in range(rows):
        for step in range(0, steps, group):
            here = source + r * row + step * col
            put_word(zero, here, col, target + r * pitch + step * item, steps - step)
