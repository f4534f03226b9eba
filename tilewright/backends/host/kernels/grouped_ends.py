"""Rows of a batch's results once they are summed: ended into C, and copied.

sums   [ s s s s | s s s s | s s . . ]      a register of columns at a time, the last one masked
C      alpha sums + beta C + bias, or nothing less than 0
"""

from __future__ import annotations

from llvmlite import ir

from tilewright.backends.host.kernels.conv_product import INT, POINTER, at
from tilewright.backends.host.kernels.grouped_tile import repeated, typed, where
from tilewright.backends.host.kernels.lanes import broadcast


@typed("", "iiirrii")
def finish(builder, kind, sums, c, count, alpha, beta, bias, positive):
    """One row of C, whose elements follow each other: c = alpha sums + beta c + bias.

    `bias` is an address, or 0. C is not read where beta is 0. `positive`: 0 in the place of what
    is less; NaN stays.
    """
    sums, c, shift = (builder.inttoptr(place, POINTER) for place in (sums, c, bias))
    wide, keep = (broadcast(builder, one, kind.vector) for one in (alpha, beta))
    reads = builder.fcmp_unordered("!=", beta, ir.Constant(kind.scalar, 0.0))
    adds = builder.icmp_signed("!=", bias, INT(0))
    clips = builder.icmp_signed("!=", positive, INT(0))
    zeros = kind.zero()

    def step(index, _):
        offset = builder.mul(index, INT(kind.item))
        mask = kind.mask(builder, builder.sub(count, index))
        to = at(builder, c, offset)
        ends = (
            (reads, lambda v: kind.fused(builder, keep, kind.load(builder, to, mask), v)),
            (
                adds,
                lambda v: builder.fadd(v, kind.load(builder, at(builder, shift, offset), mask)),
            ),
            (clips, lambda v: builder.select(builder.fcmp_ordered("<", v, zeros), zeros, v)),
        )
        value = builder.fmul(wide, kind.load(builder, at(builder, sums, offset), mask))
        for flag, change in ends:
            (value,) = where(builder, flag, [value], lambda held, change=change: [change(*held)])
        kind.store(builder, value, to, mask)
        return []

    repeated(builder, INT(0), count, kind.lanes, [], step)


@typed("", "iii")
def copy_row(builder, kind, source, target, count):
    """So many elements that follow each other."""
    source, target = (builder.inttoptr(place, POINTER) for place in (source, target))

    def step(index, _):
        offset = builder.mul(index, INT(kind.item))
        mask = kind.mask(builder, builder.sub(count, index))
        value = kind.load(builder, at(builder, source, offset), mask)
        kind.store(builder, value, at(builder, target, offset), mask)
        return []

    whole = builder.and_(count, INT(-kind.lanes))

    def full(index, _):
        offset = builder.mul(index, INT(kind.item))
        value = kind.load(builder, at(builder, source, offset))
        kind.store(builder, value, at(builder, target, offset))
        return []

    repeated(builder, INT(0), whole, kind.lanes, [], full)
    repeated(builder, whole, count, kind.lanes, [], step)
