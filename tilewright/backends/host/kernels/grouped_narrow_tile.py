"""Sums of products of bfloat16 and int8, held in registers: rows x vectors of columns of C.

    for each word of k:     A[row][word], broadcast     x     panel[word][columns], loaded
                            sums[row][columns] +=   all products of the word

    a word: 32 bits, two bfloat16 or four int8 that follow each other along k

                    k, a word each               columns: WIDEST vectors of 16
             A: R   +---+---+---+---        +--------------+  starts of the sums
             rows   |w0 |w1 |w2 |           | w0 | w0 | .. |  R x V sums: 8 x 2 where there are
             as it  +---+---+---+---        | w1 | w1 | .. |  32 registers of 64 bytes, 4 x 1 of
             lies   |w0 |w1 |w2 |           panel of B       sixteen lanes elsewhere, 6 x 1 by sdot

B is copied to panels in that order, which takes a load, a shuffle and a store for every word of a
column where a product takes one multiplication for every row; A is read where it lies.

    bfloat16   vdpbf16ps of AVX-512, bfdot of ARM: two products a lane, added in float32.
               Elsewhere both halves are made float32, a shift and a mask, and fused
    int8       `whole_dot.dot`: vpdpbusd, sdot, or pairs of 16 bits. One factor of vpdpbusd is
               unsigned: A + 128, so that sums start at -128 times the sum of B's column
"""

from __future__ import annotations

from functools import partial

from llvmlite import ir
from numba import types
from numba.core import cgutils

from tilewright.backends.host.kernels.conv_product import INT, POINTER, at, fused, private
from tilewright.backends.host.kernels.emitted import emitted
from tilewright.backends.host.kernels.features import features
from tilewright.backends.host.kernels.grouped_tile import by_size, kept, repeated, typed
from tilewright.backends.host.kernels.lanes import apart, broadcast, overloaded
from tilewright.backends.host.kernels.popcounts import ARM
from tilewright.backends.host.kernels.popcounts import FLOATS as WIDTH
from tilewright.backends.host.kernels.whole_dot import (
    DOTS,
    INTS,
    LANES,
    SIGNED,
    WIDE,
    dot,
    everywhere,
    in_parts,
    in_register,
)

I8, I16, I32 = (ir.IntType(bits) for bits in (8, 16, 32))
FLOATS = ir.VectorType(ir.FloatType(), LANES)
ROWS, WIDEST = (8, 2) if WIDE else (6 if SIGNED else 4, 1)
BYTES = 4 * LANES  # of a vector
PITCH = BYTES * WIDEST  # of a row of a panel
# Whether a part of a vector of B can be read; if not, words are put together one by one.
MASKS = WIDE
# Whether a lane multiplies two bfloat16 at once.
_ARM_PAIRS = ARM and "bf16" in features()
PAIRS = _ARM_PAIRS or (WIDE and "avx512bf16" in features())
# Rows of a tile of bfloat16: on NEON halves of B take the registers of two rows.
BRAIN_ROWS = 4 if ARM and not PAIRS else ROWS
_WAITING = 8  # sums that keep a core's multipliers busy
FLIP = 0x80808080  # a number of eight bits and 128


class _Brain(ir.Type):
    """LLVM's type of bfloat16, which llvmlite does not name."""

    def _to_string(self):
        return "bfloat"


_BRAINS = ir.VectorType(_Brain(), 8)


class Kind:
    """Elements of one type: how many make a word, and what their products are summed in."""

    def __init__(self, name):
        self.name = name
        self.item = 2 if name == "bfloat16" else 1
        self.group = 4 // self.item
        self.rows = BRAIN_ROWS if name == "bfloat16" else ROWS
        self.scalar = I16 if name == "bfloat16" else I8
        self.vector = FLOATS if name == "bfloat16" else INTS
        self.number = types.float32 if name == "bfloat16" else types.int32  # a sum

    def zero(self):
        """Sixteen sums of nothing."""
        return ir.Constant(self.vector, [0.0 if self.item == 2 else I32(0)] * LANES)

    def left(self, builder, word):
        """A word of A in every lane, as `product` takes it: a part each of what it multiplies."""
        if self.item == 1 and not SIGNED:  # of a vector LLVM 22 would turn it for ever
            return broadcast(builder, builder.xor(word, I32(FLIP)), INTS)
        if not ARM:
            return self.right(builder, broadcast(builder, word, INTS))
        four = in_register(builder, word)
        if self.item == 1 or PAIRS:
            return everywhere(builder, four)
        return [everywhere(builder, part) for part in self.right(builder, four)]

    def right(self, builder, words):
        """A vector of the panel in the same parts."""
        if self.item == 1 or PAIRS:
            return words
        kind = words.type
        floats = ir.VectorType(ir.FloatType(), kind.count)
        high = builder.and_(words, ir.Constant(kind, [I32(0xFFFF0000)] * kind.count))
        low = builder.shl(words, ir.Constant(kind, [I32(16)] * kind.count))
        return [builder.bitcast(half, floats) for half in (low, high)]

    def product(self, builder, sums, left, right):
        """The sums and the products of a word."""
        if self.item == 1:
            return dot(builder, sums, left, right, is_signed=SIGNED)
        if _ARM_PAIRS:
            return in_parts(builder, _pairs, 4, sums, left, right)
        if PAIRS:
            name = "llvm.x86.avx512bf16.dpbf16ps.512"  # by bits: LLVM makes bfloat of them
            call = overloaded(builder, name, FLOATS, FLOATS, INTS, INTS)
            return builder.call(call, [sums, left, right])
        for one, other in zip(left, right, strict=True):
            sums = fused(builder, one, other, sums)
        return sums

    def add(self, builder, one, other):
        """Sums of the same."""
        return (builder.fadd if self.item == 2 else builder.add)(one, other)


def _pairs(builder, sums, left, right):
    """Two products of bfloat16 a lane, of four lanes."""
    kind, name = sums.type, "llvm.aarch64.neon.bfdot.v4f32.v8bf16"
    call = overloaded(builder, name, kind, kind, _BRAINS, _BRAINS)
    return builder.call(call, [sums, *[builder.bitcast(one, _BRAINS) for one in (right, left)]])


BRAIN, BYTE = Kind("bfloat16"), Kind("int8")


def speed(item):
    """Multiplications beside those of float32 in the same time, by the instructions there are."""
    if item == 2:
        return 2.0 if PAIRS else 0.5
    return 4.0 if DOTS else 1.0


def vector_at(builder, pointer, kind):
    """A vector, or one number of 32 bits, from a byte pointer."""
    return builder.load(builder.bitcast(pointer, kind.as_pointer()), align=4)


def put(builder, value, pointer):
    """The other way."""
    builder.store(value, builder.bitcast(pointer, value.type.as_pointer()), align=4)


def word_at(builder, pointer):
    """32 bits from anywhere."""
    return builder.load(builder.bitcast(pointer, I32.as_pointer()), align=1)


def gathered(builder, kind, pointer, step, count=None):
    """A word of elements `step` bytes apart; of `count` the others are zeros, and not read."""
    word = I32(0)
    for number in range(kind.group):
        offset, there = builder.mul(step, INT(number)), None
        if count is not None and number:
            there = builder.icmp_signed(">", count, INT(number))
            offset = builder.select(there, offset, INT(0))
        place = builder.bitcast(at(builder, pointer, offset), kind.scalar.as_pointer())
        one = builder.zext(builder.load(place, align=1), I32)
        one = builder.shl(one, I32(8 * kind.item * number))
        word = builder.or_(word, one if there is None else builder.select(there, one, I32(0)))
    return word


def product(module, kind, rows, vectors):
    """to[rows][vectors] = A[rows][k] @ panel, of so many `words` and a `rest` of elements of k.

    `adds`: what lies there is added.
    """
    name = f"tilewright_narrow_{kind.name}_{rows}x{vectors}"
    if name in module.globals:
        return module.globals[name]
    builder, given = private(module, name, [POINTER, INT, POINTER, POINTER] + [INT] * 4)
    a, a_row, panel, to, pitch, words, rest, adds = given
    starts = [kept(builder, at(builder, a, builder.mul(a_row, INT(row)))) for row in range(rows)]
    first = at(builder, panel, PITCH)
    sums = _summed(builder, kind, starts, a_row, first, vectors, words, rest)
    if kind.item == 1 and not SIGNED:
        heads = [
            vector_at(builder, at(builder, panel, BYTES * one), INTS) for one in range(vectors)
        ]
        sums = [builder.add(value, heads[i % vectors]) for i, value in enumerate(sums)]
    places = [
        at(builder, to, builder.add(builder.mul(pitch, INT(row)), INT(BYTES * vector)))
        for row in range(rows)
        for vector in range(vectors)
    ]
    with builder.if_else(builder.icmp_signed("!=", adds, INT(0))) as (then, otherwise):
        with then:
            for value, place in zip(sums, places, strict=True):
                before = vector_at(builder, place, kind.vector)
                put(builder, kind.add(builder, before, value), place)
        with otherwise:
            for value, place in zip(sums, places, strict=True):
                put(builder, value, place)
    builder.ret_void()
    return module.globals[name]


def _summed(builder, kind, starts, a_row, panel, vectors, words, rest):
    """The sums of a product, row by row; words in turn have sums of their own where few wait."""
    each = len(starts) * vectors
    sets = max(1, min(4, _WAITING // (each * LANES // WIDTH)))

    def whole(row, offset):
        return word_at(builder, at(builder, starts[row], offset))

    def step(index, sums, read):
        offset = builder.mul(index, INT(PITCH))
        loaded = [
            kind.right(builder, vector_at(builder, at(builder, panel, place), INTS))
            for place in [
                builder.add(offset, INT(BYTES * vector)) if vector else offset
                for vector in range(vectors)
            ]
        ]
        found = []
        for row in range(len(starts)):
            left = kind.left(builder, read(row, builder.mul(index, INT(4))))
            for vector, right in enumerate(loaded):
                found.append(kind.product(builder, sums[row * vectors + vector], left, right))
        return found

    def several(index, flat):
        found = []
        for one in range(sets):
            own = flat[each * one : each * (one + 1)]
            found += step(builder.add(index, INT(one)), own, whole)
        return found

    done, sums = INT(0), [kind.zero()] * (each * sets)
    if sets > 1:
        done = builder.and_(words, INT(-sets))
        sums = repeated(builder, INT(0), done, sets, sums, several)
        for one in range(1, sets):
            for i in range(each):
                sums[i] = kind.add(builder, sums[i], sums[each * one + i])
        sums = sums[:each]
    sums = repeated(builder, done, words, 1, sums, lambda i, flat: step(i, flat, whole))
    some = builder.zext(builder.icmp_signed("!=", rest, INT(0)), INT)
    read = _of_the_rest(builder, kind, starts, a_row, rest)
    last = lambda i, flat: step(i, flat, read(builder.mul(i, INT(4))))  # noqa: E731
    return repeated(builder, words, builder.add(words, some), 1, sums, last)


def _of_the_rest(builder, kind, starts, a_row, rest):
    """`offset -> read(row, offset)`, the word of a row that `rest` elements of k fill in part.

    On NEON words of all rows are put together in memory, row by row: at once LLVM takes so many
    registers for their addresses that the loop over whole words reads its own from memory.
    """
    item = INT(kind.item)
    if not ARM:
        given = lambda row, offset: gathered(  # noqa: E731
            builder, kind, at(builder, starts[row], offset), item, rest
        )
        return lambda _: given
    room = cgutils.alloca_once(builder, ir.ArrayType(I32, len(starts)))

    def read(offset):
        def one(row, _):
            start = at(builder, starts[0], builder.add(builder.mul(row, a_row), offset))
            word = gathered(builder, kind, start, item, rest)
            builder.store(word, builder.gep(room, [INT(0), row]))
            return []

        repeated(builder, INT(0), apart(builder, INT(len(starts))), 1, [], one)
        return lambda row, _: builder.load(builder.gep(room, [INT(0), INT(row)]))

    return read


# A uint16 stands for bfloat16, an int8 for int8; r of letters is a sum.
of_kind = partial(typed, kinds={types.uint16: BRAIN, types.int8: BYTE})


@of_kind("", "i" * 10)
def multiply(builder, kind, rows, vectors, a, a_row, panel, to, pitch, words, rest, adds):
    """`product` of so many rows and vectors, up to a kind's `rows` and `WIDEST`; all in bytes."""
    a, panel, to = (builder.inttoptr(place, POINTER) for place in (a, panel, to))
    given = [a, a_row, panel, to, pitch, words, rest, adds]
    by_size(
        builder, rows, vectors, (kind.rows, WIDEST), partial(product, builder.module, kind), given
    )


@emitted(types.void, *[types.intp] * 11)
def multiply_at(builder, code, rows, vectors, a, a_row, panel, to, pitch, words, rest, adds):
    """`multiply`, by the address of its machine code."""
    given = [rows, vectors, a, a_row, panel, to, pitch, words, rest, adds]
    kind = ir.FunctionType(ir.VoidType(), (INT,) * 10)
    builder.call(builder.inttoptr(code, kind.as_pointer()), given)
