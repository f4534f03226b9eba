"""Blocks of a matrix turned in registers: what lies along columns is written along rows.

    memory                     registers                       panel
    column c    r0 r1 r2 ...   vector c                        row r0    c0 c1 c2 ...
    column c+1  r0 r1 r2 ...   vector c+1   halves of 8, 4,    row r1    c0 c1 c2 ...
    ...                        ...          2, 1 exchanged     ...

Sixteen loads, four exchanges of halves between vectors that lie 8, 4, 2 and 1 apart (K. S. Eklundh,
"A fast computer method for matrix transposing", 1972) and sixteen stores move 256 numbers of
float32; one by one they took four times as long. A weight [n, k] of a linear layer is read so.
"""

from __future__ import annotations

from llvmlite import ir

from tilewright.backends.host.kernels.conv_product import INT, POINTER, at
from tilewright.backends.host.kernels.grouped_tile import I32, REGISTER, typed


def exchanged(builder, vectors):
    """The matrix of these rows turned: a power of two of them, of as many elements each."""
    count = len(vectors)
    apart = count // 2
    while apart:
        first = [lane if not lane & apart else lane - apart + count for lane in range(count)]
        second = [lane + apart if not lane & apart else lane + count for lane in range(count)]
        for one in range(count):
            if not one & apart:
                a, b = vectors[one], vectors[one + apart]
                vectors[one] = _picked(builder, a, b, first)
                vectors[one + apart] = _picked(builder, a, b, second)
        apart //= 2
    return vectors


def _picked(builder, a, b, lanes):
    mask = ir.Constant(ir.VectorType(I32, len(lanes)), [I32(lane) for lane in lanes])
    return builder.shuffle_vector(a, b, mask)


@typed("", "iiiii")
def turn(builder, kind, source, apart, target, pitch, columns):
    """A vector's width of rows x as many columns, of which there are `columns`; others are copies
    of the last. `apart`: bytes from a column to the next; `pitch`: from a row of the target's."""
    source, target = (builder.inttoptr(place, POINTER) for place in (source, target))
    last = builder.sub(columns, INT(1))
    vectors = []
    for column in range(kind.lanes):
        few = builder.icmp_signed("<", INT(column), last)
        place = builder.mul(apart, builder.select(few, INT(column), last))
        vectors.append(kind.load(builder, at(builder, source, place)))
    for row, vector in enumerate(exchanged(builder, vectors)):
        place = at(builder, target, builder.mul(pitch, INT(row)))
        pointer = builder.bitcast(place, vector.type.as_pointer())
        builder.store(vector, pointer, align=REGISTER // kind.lanes)
