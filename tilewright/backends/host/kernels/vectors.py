"""LLVM vectors for Numba: what the loops of bits.py are made of, as wide as the processor is.

count_tile    ROWS x COLUMNS words of sums in registers: the inner loop of every product
int_row       one row of a tile from counts to dot products; real_row and threshold_row go on
signs         64 numbers to the word of their signs
ones          popcount of one word

Numba vectorises what LLVM's loop vectoriser finds, which is not a block of registers; here the
block is written down in LLVM's own vectors, and LLVM makes AVX-512, AVX2 or NEON of it.
"""

from __future__ import annotations

import llvmlite.ir as ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from tilewright.backends.host.kernels.emitted import emitted
from tilewright.backends.host.kernels.lanes import apart, broadcast, overloaded
from tilewright.backends.host.kernels.popcounts import (
    ARM,
    LANES,
    ROWS,
    VECTORS,
    WORDS,
    Sum,
    add_each,
    as_ints,
    by_groups,
    differing,
    laid,
)

I32, I64 = ir.IntType(32), ir.IntType(64)


COLUMNS = LANES * VECTORS


def _constant(type_, values):
    return ir.Constant(type_, [ir.Constant(type_.element, value) for value in values])


def _pointer(builder, address, type_, index=None):
    base = builder.inttoptr(address, I64.as_pointer() if index is not None else type_.as_pointer())
    if index is None:
        return base
    return builder.bitcast(builder.gep(base, [index]), type_.as_pointer())


def tile_of_counts(builder, a, stride, rows, b, words, out):
    """Add popcount(a[r] xor b[c]) over `words` words to int32 out[r][c], a ROWS x COLUMNS tile.

    a      the first row of words as it lies, `stride` bytes to the next; of the ROWS `rows` are
           there, and the last of them stands for the others
    b      [pairs][VECTORS][2][LANES] words: a pair, as `popcounts.laid` has them
    words  at most MOST

    All are addresses or counts, intp.
    """
    last = builder.sub(rows, I64(1))
    starts = []
    for row in range(ROWS):
        beyond = builder.icmp_signed(">", I64(row), last)
        starts.append(builder.add(a, builder.mul(stride, builder.select(beyond, last, I64(row)))))
    sums = [Sum(builder) for _ in range(ROWS * VECTORS)]
    for one in sums:
        one.clear(builder)
    sides = b, apart(builder, b) if ARM else b
    by_groups(builder, words, lambda at, pairs: _advance(builder, starts, sides, at, sums, pairs))
    address = out
    for row in range(ROWS):
        for value in as_ints(builder, sums[row * VECTORS : (row + 1) * VECTORS]):
            place = _pointer(builder, address, value.type)
            builder.store(builder.add(builder.load(place, align=4), value), place, align=4)
            address = builder.add(address, I64(4 * value.type.count))


count_tile = emitted(types.void, *[types.intp] * 6)(tile_of_counts)


def _advance(builder, starts, b, index, sums, pairs):
    """So many pairs of words from number `index` on into the sums; 0: a last word alone."""
    indices = [builder.add(index, I64(pair)) for pair in range(max(pairs, 1))]
    heads = [[_of_row(builder, start, at, pairs) for at in indices] for start in starts]

    def each():
        for vector in range(VECTORS):
            found = [_of_columns(builder, b, at, vector) for at in indices]
            for row, given in enumerate(heads):
                those = [differing(builder, *both) for both in zip(given, found, strict=True)]
                yield sums[row * VECTORS + vector], those

    add_each(builder, each(), lone=not pairs)


def _of_row(builder, start, index, pairs):
    """Words 0 and 1 of a pair in every lane, laid as b's are; or one alone."""
    at = builder.mul(index, I64(2))
    places = [at, builder.add(at, I64(1))] if pairs else [at]
    words = [builder.load(_pointer(builder, start, I64, at), align=8) for at in places]
    return laid(builder, [broadcast(builder, word, WORDS) for word in words])


def _of_columns(builder, b, index, vector):
    """The same of a vector of columns, as they lie."""
    at = builder.add(builder.mul(index, I64(2 * COLUMNS)), I64(2 * vector * LANES))
    places = at, builder.add(at, I64(LANES))
    return tuple(
        builder.load(_pointer(builder, side, WORDS, at), align=8)
        for side, at in zip(b, places, strict=True)
    )


@emitted(types.void, types.intp, types.int32, types.intp, types.int32, types.intp)
def int_row(builder, counts, base, columns, double, out):
    """COLUMNS int32 at `out`: base + columns - 2 * counts where `double` is 1; half of
    base + columns - counts where it is 0. `out` may be `counts`."""
    ints = ir.VectorType(I32, COLUMNS)
    count = builder.load(_pointer(builder, counts, ints), align=4)
    column = builder.load(_pointer(builder, columns, ints), align=4)
    value = builder.add(column, broadcast(builder, base, ints))
    value = builder.sub(value, builder.shl(count, broadcast(builder, double, ints)))
    halve = builder.sub(I32(1), double)
    value = builder.ashr(value, broadcast(builder, halve, ints))
    builder.store(value, _pointer(builder, out, ints), align=4)


@emitted(types.void, types.intp, types.intp, types.intp, types.intp)
def real_row(builder, values, scale, shift, out):
    """COLUMNS float32 at `out`: scale * values + shift, rounded twice. `out` may be `values`."""
    ints, reals = (ir.VectorType(type_, COLUMNS) for type_ in (I32, ir.FloatType()))
    value = builder.load(_pointer(builder, values, ints), align=4)
    factor, term = (builder.load(_pointer(builder, x, reals), align=4) for x in (scale, shift))
    real = builder.fmul(builder.sitofp(value, reals), factor)
    builder.store(builder.fadd(real, term), _pointer(builder, out, reals), align=4)


@emitted(types.void, types.intp, types.intp, types.intp)
def copy_row(builder, source, target, columns):
    """The first `columns` of COLUMNS elements of 32 bits."""
    ints = ir.VectorType(I32, COLUMNS)
    whole = builder.icmp_signed("==", columns, I64(COLUMNS))
    with builder.if_else(whole) as (then, otherwise):
        with then:
            value = builder.load(_pointer(builder, source, ints), align=4)
            builder.store(value, _pointer(builder, target, ints), align=4)
        with otherwise, cgutils.for_range(builder, columns) as loop:
            at = builder.mul(loop.index, I64(4))
            value = builder.load(_pointer(builder, builder.add(source, at), I32))
            builder.store(value, _pointer(builder, builder.add(target, at), I32))


@emitted(types.void, types.intp, types.intp, types.intp, types.intp)
def threshold_row(builder, values, thresholds, flips, out):
    """COLUMNS int32 values >= thresholds, xor the bits at `flips`, to COLUMNS bits at `out`."""
    ints, bits = ir.VectorType(I32, COLUMNS), ir.IntType(COLUMNS)
    value = builder.load(_pointer(builder, values, ints), align=4)
    threshold = builder.load(_pointer(builder, thresholds, ints), align=4)
    answer = builder.bitcast(builder.icmp_signed(">=", value, threshold), bits)
    answer = builder.xor(answer, builder.load(_pointer(builder, flips, bits), align=1))
    builder.store(answer, _pointer(builder, out, bits), align=1)


@intrinsic
def signs(typingctx, numbers, start, mask, infinity, plus):
    """The signs of numbers[start : start + 64]: words of those above 0, of zeros and of NaN.

    `numbers` is an array of signed integers: floats by their bit patterns, whose order they share.
    `mask` clears the sign of floats, `infinity` is the largest magnitude that is a number; `plus`
    (0 or -1) says whether 0 counts as above 0.
    """
    width = numbers.dtype.bitwidth

    def generate(context, builder, signature, args):
        array, start, mask, infinity, plus = args
        data = context.make_array(numbers)(context, builder, array).data
        lane = ir.IntType(width)
        vector = ir.VectorType(lane, 64)

        def splat(value):
            narrow = value if width == 64 else builder.trunc(value, lane)
            return broadcast(builder, narrow, vector)

        typed = builder.bitcast(builder.gep(data, [start]), vector.as_pointer())
        value = builder.load(typed, align=width // 8)
        zero = _constant(vector, [0] * 64)
        size = builder.and_(value, splat(mask))
        zeros = builder.bitcast(builder.icmp_signed("==", size, zero), I64)
        nans = builder.bitcast(builder.icmp_unsigned(">", size, splat(infinity)), I64)
        above = builder.bitcast(builder.icmp_signed(">", value, zero), I64)
        above = builder.or_(above, builder.and_(zeros, plus))
        return context.make_tuple(builder, signature.return_type, (above, zeros, nans))

    result = types.UniTuple(types.uint64, 3)
    return result(numbers, types.intp, types.int64, types.int64, types.int64), generate


@emitted(types.uint64, types.uint64)
def ones(builder, word):
    """popcount of one uint64, which LLVM vectorises in a loop."""
    return builder.call(overloaded(builder, "llvm.ctpop.i64", I64, I64), [word])
