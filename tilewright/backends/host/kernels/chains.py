"""Chains of fused multiply-adds in the registers of one core, compiled by Numba: a probe.

    chain 0    c0 <- c0*x + y   c0*x + y   ...        eight steps unrolled, `rounds` times
    chain 1    c1 <- c1*x + y   c1*x + y   ...        each a vector that waits for itself alone

The vectors are LLVM's own type, so that no vectoriser decides on their width. x and y come with
the call and every chain starts elsewhere: there is nothing to fold. All elements enter the result.
"""

from __future__ import annotations

from functools import cache

from llvmlite import ir
from numba import njit, types

from tilewright.backends.host.kernels.emitted import emitted
from tilewright.backends.host.kernels.lanes import broadcast, overloaded

STEPS = 8
_TYPES = {
    "float32": (types.float32, ir.FloatType(), "f32"),
    "float64": (types.float64, ir.DoubleType(), "f64"),
}


@cache
def chains_of(dtype, vector, chains):
    """run(x, y, rounds) for vectors of so many elements; it holds no lock."""
    real, element, suffix = _TYPES[dtype]
    wide = ir.VectorType(element, vector)

    @emitted(real, real, real, types.int64)
    def chained(builder, x, y, rounds):
        fma = overloaded(builder, f"llvm.fma.v{vector}{suffix}", wide, wide, wide, wide)
        xs, ys = (broadcast(builder, value, wide) for value in (x, y))
        starts = [ir.Constant(wide, [float(chain)] * vector) for chain in range(chains)]
        return _total(builder, _loop(builder, fma, (xs, ys), starts, rounds), vector)

    def run(x, y, rounds):
        return chained(x, y, rounds)

    return njit(real(real, real, types.int64), nogil=True)(run)


def _loop(builder, fma, factors, starts, rounds):
    """The chains after all rounds."""
    before = builder.block
    loop, after = (builder.append_basic_block(name) for name in ("rounds", "done"))
    builder.branch(loop)
    builder.position_at_end(loop)
    index = builder.phi(rounds.type)
    sums = [builder.phi(start.type) for start in starts]
    values = list(sums)
    for _ in range(STEPS):
        values = [builder.call(fma, (value, *factors)) for value in values]
    following = builder.add(index, ir.Constant(rounds.type, 1))
    index.add_incoming(ir.Constant(rounds.type, 0), before)
    index.add_incoming(following, loop)
    for total, start, value in zip(sums, starts, values, strict=True):
        total.add_incoming(start, before)
        total.add_incoming(value, loop)
    builder.cbranch(builder.icmp_signed("<", following, rounds), loop, after)
    builder.position_at_end(after)
    return values


def _total(builder, sums, vector):
    """The sum of every element of every chain."""
    total = sums[0]
    for value in sums[1:]:
        total = builder.fadd(total, value)
    lanes = [
        builder.extract_element(total, ir.Constant(ir.IntType(32), lane)) for lane in range(vector)
    ]
    result = lanes[0]
    for lane in lanes[1:]:
        result = builder.fadd(result, lane)
    return result
