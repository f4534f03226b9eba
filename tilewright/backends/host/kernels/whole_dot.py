"""Products of small whole numbers: sums of four of them at once, by what the processor has.

    sums [16 lanes of int32] += in each: four bytes of x (0 to 255) x four weights (-128 to 127)

`vpdpbusd` of AVX-512 VNNI or AVX-VNNI and `sdot` of ARM do that in one instruction a register. AVX2
alone would add pairs of products in 16 bits and cut them off there, so that bytes are widened
first; what has none of these multiplies 32 bits. All give the same numbers.
"""

from __future__ import annotations

from llvmlite import ir

from tilewright.backends.host.kernels.features import features
from tilewright.backends.host.kernels.lanes import broadcast, overloaded

_FOUND = features()
LANES = 16
I8, I16, I32 = (ir.IntType(bits) for bits in (8, 16, 32))
INTS = ir.VectorType(I32, LANES)
# 32 registers of sixteen lanes; elsewhere LLVM makes parts of every vector.
WIDE = {"avx512f", "avx512bw", "avx512vl"} <= _FOUND
_DOTS = WIDE and "avx512vnni" in _FOUND
_HALF_DOTS = not WIDE and "avxvnni" in _FOUND
_ARM = "dotprod" in _FOUND
DOTS = _DOTS or _HALF_DOTS or _ARM  # whether four products are one instruction
_PAIRS = "llvm.x86.avx512.pmaddw.d.512" if WIDE else "llvm.x86.avx2.pmadd.wd"


def dot(builder, sums, x, weights, is_signed=False):
    """`sums` and the products of both, all of sixteen lanes of 32 bits.

    `is_signed`: bytes of x are -128 to 127, where the processor multiplies such (`SIGNED`).
    """
    if _DOTS:
        name = "llvm.x86.avx512.vpdpbusd.512"
        return builder.call(overloaded(builder, name, INTS, INTS, INTS, INTS), [sums, x, weights])
    if _HALF_DOTS:
        return in_parts(builder, _half_dot, 8, sums, x, weights)
    if _ARM:
        return in_parts(builder, _signed_dot if is_signed else _arm_dot, 4, sums, x, weights)
    if "avx2" in _FOUND:
        return in_parts(builder, _pairs, LANES if WIDE else 8, sums, x, weights)
    return _plainly(builder, sums, x, weights)


def in_parts(builder, what, count, *values):
    """`what` of so many lanes at a time."""
    found = [
        what(builder, *[_lanes(builder, value, first, count) for value in values])
        for first in range(0, LANES, count)
    ]
    while len(found) > 1:
        pairs = zip(found[::2], found[1::2], strict=True)
        found = [_lanes(builder, one, 0, 2 * one.type.count, other) for one, other in pairs]
    return found[0]


def _lanes(builder, value, first, count, other=None):
    """Lanes of a vector, or of two one after the other."""
    if other is None and count == value.type.count:
        return value
    places = ir.VectorType(I32, count)
    numbers = ir.Constant(places, [I32(first + lane) for lane in range(count)])
    return builder.shuffle_vector(value, value if other is None else other, numbers)


def _half_dot(builder, sums, x, weights):
    kind = sums.type
    name = "llvm.x86.avx512.vpdpbusd.256"  # LLVM's name of AVX-VNNI's too
    return builder.call(overloaded(builder, name, kind, kind, kind, kind), [sums, x, weights])


def _arm_dot(builder, sums, x, weights):
    """Both signed: x less 128; `pack` adds 128 times the weights to the start of every sum."""
    flip = ir.Constant(sums.type, [I32(0x80808080)] * sums.type.count)
    return _signed_dot(builder, sums, builder.xor(x, flip), weights)


def _signed_dot(builder, sums, x, weights):
    kind, bytes_ = sums.type, ir.VectorType(I8, 4 * sums.type.count)
    name = "llvm.aarch64.neon.sdot.v4i32.v16i8"
    # The last is the one that may be an element: x is often the same in all lanes.
    given = [builder.bitcast(value, bytes_) for value in (weights, x)]
    return builder.call(overloaded(builder, name, kind, kind, bytes_, bytes_), [sums, *given])


SIGNED = _ARM  # whether x can be multiplied as a signed number


def _pairs(builder, sums, x, weights):
    """Even bytes and odd ones as 16 bits, pairs of whose products are added in 32."""
    kind = ir.VectorType(I16, 2 * sums.type.count)
    x, weights = builder.bitcast(x, kind), builder.bitcast(weights, kind)
    eight = ir.Constant(kind, [I16(8)] * kind.count)
    low = ir.Constant(kind, [I16(255)] * kind.count)
    even = builder.and_(x, low), builder.ashr(builder.shl(weights, eight), eight)
    odd = builder.lshr(x, eight), builder.ashr(weights, eight)
    pairs = overloaded(builder, _PAIRS, sums.type, kind, kind)
    for both in (even, odd):
        sums = builder.add(sums, builder.call(pairs, both))
    return sums


def _plainly(builder, sums, x, weights):
    kind = sums.type
    top = ir.Constant(kind, [I32(24)] * kind.count)
    for byte in range(4):
        left = ir.Constant(kind, [I32(24 - 8 * byte)] * kind.count)
        one = builder.lshr(builder.shl(x, left), top)
        other = builder.ashr(builder.shl(weights, left), top)
        sums = builder.add(sums, builder.mul(one, other))
    return sums


def quad(builder, pointer):
    """Four bytes from a pointer, in every lane."""
    four = builder.load(builder.bitcast(pointer, I32.as_pointer()), align=1)
    return (
        everywhere(builder, in_register(builder, four)) if _ARM else broadcast(builder, four, INTS)
    )


def in_register(builder, word):
    """A word in the first of four lanes, of which LLVM does not know that it was loaded: it would
    load it into every lane, which takes a vector unit of Cortex-A76 beside the load, where an
    instruction of ARM's that multiplies by an element takes nothing."""
    four = ir.VectorType(I32, 4)
    one = builder.insert_element(ir.Constant(four, ir.Undefined), word, I32(0))
    same = ir.InlineAsm(ir.FunctionType(four, [four]), "", "=w,0")
    return builder.call(same, [one])


def everywhere(builder, four):
    """The first of four lanes in all sixteen."""
    first = ir.Constant(INTS, [I32(0)] * LANES)
    return builder.shuffle_vector(four, ir.Constant(four.type, ir.Undefined), first)


def four_quads(builder, pointer):
    """Sixteen bytes from a pointer, in every four lanes."""
    kind = ir.VectorType(I32, 4)
    four = builder.load(builder.bitcast(pointer, kind.as_pointer()), align=1)
    again = ir.Constant(INTS, [I32(lane % 4) for lane in range(LANES)])
    return builder.shuffle_vector(four, four, again)
