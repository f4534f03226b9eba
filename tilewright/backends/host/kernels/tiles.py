"""The inner loops of convolutions: a tile of pixels by 32 channels, its sums held in registers.

    for every tap:   a word (or float) of each pixel, broadcast   x   32 channels of weights, loaded
                     sums[pixel][channels] += popcount(x ^ w)  or  x * w

A tap is one word (64 input channels) or one float of the window; where it lies relative to the
window's first is read from a table, so that stride, dilation and the width of the source are all
one loop, and no im2col is written. Channels lie side by side in the lanes, so that nothing is
summed across a register.
"""

from __future__ import annotations

from llvmlite import ir
from numba import types

from tilewright.backends.host.kernels.emitted import emitted
from tilewright.backends.host.kernels.lanes import broadcast, element, overloaded, vector_at

CHANNELS = 32
BIT_PIXELS = 4  # by four registers of eight 64-bit counts: 16 of 32 registers hold sums
REAL_PIXELS = 8  # by two registers of sixteen floats
_INT = ir.IntType(64)
_WORDS = ir.VectorType(_INT, 8)
_COUNTS = ir.VectorType(ir.IntType(32), 8)
_FLOATS = ir.VectorType(ir.FloatType(), 16)


@emitted(types.void, *[types.intp] * 8)
def count_tile(builder, source, origins, first, last, taps, count, weights, out):
    """Differing bits of pixels first..first+3 (pixels from `last` on repeat the first).

    All are numbers; of arrays, their addresses:

    source   uint64 words; pixel i's window begins at source[origins[i]], origins int64
    taps     int64 [count], where each word of the window lies from there
    weights  uint64 [count, 32]
    out      int32 [4, 32], as much as `lanes.scratch` has
    """

    def step(builder, x, weight, total):
        popcount = overloaded(builder, "llvm.ctpop.v8i64", _WORDS, _WORDS)
        return builder.add(total, builder.call(popcount, [builder.xor(x, weight)]))

    arguments = (source, origins, first, last, taps, count, weights, out)
    _tile(builder, arguments, BIT_PIXELS, _WORDS, step)


@emitted(types.void, *[types.intp] * 8)
def sum_tile(builder, source, origins, first, last, taps, count, weights, out):
    """Sums of products, like `count_tile`, of float32; out is float32 [8, 32]."""

    def step(builder, x, weight, total):
        fused = overloaded(builder, "llvm.fma.v16f32", _FLOATS, *[_FLOATS] * 3)
        return builder.call(fused, [x, weight, total])

    arguments = (source, origins, first, last, taps, count, weights, out)
    _tile(builder, arguments, REAL_PIXELS, _FLOATS, step)


def _tile(builder, arguments, pixels, vector, step):
    """Code of one tile: `step` adds one tap to one register; counts are stored as int32."""
    registers = CHANNELS // vector.count
    where = [(pixel, register) for pixel in range(pixels) for register in range(registers)]
    source, origins, first, last, taps, count, weights, out = arguments
    windows = []
    for pixel in range(pixels):
        index = builder.add(first, _INT(pixel))
        index = builder.select(builder.icmp_signed("<", index, last), index, first)
        origin = builder.load(element(builder, origins, index, _INT))
        windows.append(element(builder, source, origin, vector.element))
    before = builder.block
    loop = builder.append_basic_block("taps")
    done = builder.append_basic_block("done")
    builder.branch(loop)

    builder.position_at_end(loop)
    tap = builder.phi(_INT)
    sums = {place: builder.phi(vector) for place in where}
    offset = builder.load(element(builder, taps, tap, _INT))
    row = builder.mul(tap, _INT(CHANNELS))
    loaded = []
    for register in range(registers):
        index = builder.add(row, _INT(register * vector.count))
        place = vector_at(builder, weights, index, vector)
        loaded.append(builder.load(place, align=4))
    new = {}
    for pixel in range(pixels):
        x = broadcast(builder, builder.load(builder.gep(windows[pixel], [offset])), vector)
        for register in range(registers):
            new[pixel, register] = step(builder, x, loaded[register], sums[pixel, register])
    following = builder.add(tap, _INT(1))
    tap.add_incoming(_INT(0), before)
    tap.add_incoming(following, loop)
    for place in where:
        sums[place].add_incoming(ir.Constant(vector, [0] * vector.count), before)
        sums[place].add_incoming(new[place], loop)
    builder.cbranch(builder.icmp_signed("<", following, count), loop, done)

    builder.position_at_end(done)
    for pixel, register in where:
        value = new[pixel, register]
        value = builder.trunc(value, _COUNTS) if vector is _WORDS else value
        index = _INT(pixel * CHANNELS + register * vector.count)
        place = vector_at(builder, out, index, value.type)
        builder.store(value, place, align=4)
