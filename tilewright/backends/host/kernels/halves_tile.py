"""Elements of 16 bits, which are multiplied as float32: read wider, written narrower.

    bfloat16   the upper half of a float32: shifted; written to the nearest, ties to even
    float16    by the processor's conversions

They stand in the kinds of `grouped_tile.py` under integers of 16 bits, which Numba has: uint16 for
bfloat16, int16 for float16.
"""

from __future__ import annotations

import numpy as np
from llvmlite import ir
from numba import types

from tilewright.backends.host.kernels.conv_product import INT, POINTER, at
from tilewright.backends.host.kernels.grouped_tile import KINDS, SINGLE, repeated, typed

_I16, _I32 = ir.IntType(16), ir.IntType(32)
BFLOAT16, FLOAT16 = np.uint16(0), np.int16(0)  # the numbers that stand for the kinds


class Half:
    """Elements of 16 bits in memory, of float32 in registers."""

    item, lanes = 2, SINGLE.lanes
    number = types.float32

    def __init__(self, name):
        self.name = name

    def load(self, builder, pointer, lanes=SINGLE.lanes):
        """So many elements, as float32."""
        bits = ir.VectorType(_I16, lanes)
        found = builder.load(builder.bitcast(pointer, bits.as_pointer()), align=2)
        floats = ir.VectorType(ir.FloatType(), lanes)
        if self.name == "float16":
            return builder.fpext(
                builder.bitcast(found, ir.VectorType(ir.HalfType(), lanes)), floats
            )
        words = ir.VectorType(_I32, lanes)
        shift = ir.Constant(words, [16] * lanes)
        return builder.bitcast(builder.shl(builder.zext(found, words), shift), floats)

    def store(self, builder, value, pointer):
        """The other way."""
        lanes = value.type.count
        bits = ir.VectorType(_I16, lanes)
        if self.name == "float16":
            found = builder.bitcast(
                builder.fptrunc(value, ir.VectorType(ir.HalfType(), lanes)), bits
            )
        else:
            words = builder.bitcast(value, ir.VectorType(_I32, lanes))
            found = builder.trunc(to_bfloat16(builder, words), bits)
        builder.store(found, builder.bitcast(pointer, bits.as_pointer()), align=2)


def to_bfloat16(builder, bits):
    """Bits of float32, of one or of a vector, to the nearest bfloat16, ties to even, as the low
    half of 32 bits; NaN stays one."""

    def number(value):
        if isinstance(bits.type, ir.VectorType):
            return ir.Constant(bits.type, [_I32(value)] * bits.type.count)
        return _I32(value)

    upper = builder.lshr(bits, number(16))
    odd = builder.and_(upper, number(1))
    near = builder.lshr(builder.add(builder.add(bits, number(0x7FFF)), odd), number(16))
    size = builder.and_(bits, number(0x7FFFFFFF))
    is_nan = builder.icmp_unsigned(">", size, number(0x7F800000))
    return builder.select(is_nan, builder.or_(upper, number(0x40)), near)


KINDS |= {types.uint16: Half("bfloat16"), types.int16: Half("float16")}


def _each(builder, kind, count, move):
    """`move(element number, how many)` for whole vectors, then for what is left, one by one."""
    whole = builder.and_(count, INT(-kind.lanes))
    repeated(builder, INT(0), whole, kind.lanes, [], lambda i, _: move(i, kind.lanes))
    repeated(builder, whole, count, 1, [], lambda i, _: move(i, 1))


@typed("", "iiii")
def widen(builder, kind, source, apart, target, count):
    """So many elements, `apart` bytes from each other, as float32 that follow each other."""
    source, target = (builder.inttoptr(place, POINTER) for place in (source, target))

    def move(index, lanes):
        found = kind.load(builder, at(builder, source, builder.mul(index, apart)), lanes)
        place = at(builder, target, builder.mul(index, INT(4)))
        pointer = builder.bitcast(place, found.type.as_pointer())
        builder.store(found, pointer, align=4)
        return []

    one_by_one = builder.icmp_signed("!=", apart, INT(kind.item))
    with builder.if_else(one_by_one) as (then, otherwise):
        with then:
            repeated(builder, INT(0), count, 1, [], lambda i, _: move(i, 1))
        with otherwise:
            _each(builder, kind, count, move)


@typed("", "iiii")
def narrow(builder, kind, sums, target, count, bias):
    """float32 that follow each other, and elements of a bias at an address or 0, as elements."""
    sums, target, shift = (builder.inttoptr(place, POINTER) for place in (sums, target, bias))
    adds = builder.icmp_signed("!=", bias, INT(0))

    def move(index, lanes):
        floats = ir.VectorType(ir.FloatType(), lanes)
        place = builder.bitcast(at(builder, sums, builder.mul(index, INT(4))), floats.as_pointer())
        value = builder.load(place, align=4)
        offset = builder.mul(index, INT(kind.item))
        before, then = builder.block, builder.append_basic_block("biased")
        after = builder.append_basic_block("after")
        builder.cbranch(adds, then, after)
        builder.position_at_end(then)
        more = builder.fadd(value, kind.load(builder, at(builder, shift, offset), lanes))
        builder.branch(after)
        builder.position_at_end(after)
        made = builder.phi(floats)
        made.add_incoming(value, before)
        made.add_incoming(more, then)
        kind.store(builder, made, at(builder, target, offset))
        return []

    _each(builder, kind, count, move)
