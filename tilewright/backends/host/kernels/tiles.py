"""The inner loops of convolutions: a tile of pixels by 32 channels, its sums held in registers.

    for every tap:   a word (or float) of each pixel, broadcast   x   32 channels of weights, loaded
                     sums[pixel][channels] += popcount(x ^ w)  or  x * w

A tap is one word (64 input channels) or one float of the window; where it lies relative to the
window's first is read from a table, so that stride, dilation and the width of the source are all
one loop, and no im2col is written. Channels lie side by side in the lanes, so that nothing is
summed across a register.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from llvmlite import ir
from numba import types
from numba.core import cgutils

from tilewright.backends.host.kernels import popcounts
from tilewright.backends.host.kernels.emitted import emitted
from tilewright.backends.host.kernels.grouped_tile import SINGLE
from tilewright.backends.host.kernels.lanes import (
    apart,
    broadcast,
    element,
    keep_rolled,
    overloaded,
    vector_at,
)

CHANNELS = 32
BIT_PIXELS = 4  # by four registers of eight 64-bit counts: 16 of 32 registers hold sums
# By two registers of sixteen floats or eight, or four of NEON's four: 16, 12 and 24 sums beside
# what a tap takes. AVX2 and NEON do a half of the channels at a time.
REAL_PIXELS = {16: 8, 8: 6, 4: 6}[popcounts.FLOATS]
_INT = ir.IntType(64)
_WORDS = ir.VectorType(_INT, 8)
_COUNTS = ir.VectorType(ir.IntType(32), 8)


def tile_of_counts(builder, source, origins, first, last, taps, count, weights, out):
    """Differing bits of pixels first..first+3 (pixels from `last` on repeat the first).

    All are numbers; of arrays, their addresses:

    source   uint64 words; pixel i's window begins at source[origins[i]], origins int64
    taps     int64 [count], where each word of the window lies from there
    weights  uint64 [count, 32]
    out      int32 [4, 32], as much as `lanes.scratch` has
    """
    if popcounts.NATIVE:
        arguments = (source, origins, first, last, taps, count, weights, out)
        _tile(builder, arguments, BIT_PIXELS, (_WORDS, CHANNELS), _count_step)
        return
    ints = ir.VectorType(ir.IntType(32), popcounts.LANES)
    width = popcounts.LANES * popcounts.WINDOWS.vectors
    with cgutils.for_range(builder, _INT(BIT_PIXELS * CHANNELS // ints.count)) as loop:
        at = builder.mul(loop.index, _INT(ints.count))
        builder.store(
            ir.Constant(ints, [0] * ints.count), vector_at(builder, out, at, ints), align=4
        )
    parts = builder.sdiv(
        builder.add(count, _INT(popcounts.WINDOWS.most - 1)), _INT(popcounts.WINDOWS.most)
    )
    blocks = CHANNELS // width * BIT_PIXELS // popcounts.WINDOWS.rows
    with (
        cgutils.for_range(builder, parts) as part,
        cgutils.for_range(builder, _INT(blocks)) as loop,
    ):
        channel = builder.mul(builder.srem(loop.index, _INT(CHANNELS // width)), _INT(width))
        pixel = builder.sdiv(loop.index, _INT(CHANNELS // width))
        pixel = builder.mul(pixel, _INT(popcounts.WINDOWS.rows))
        begin = builder.mul(part.index, _INT(popcounts.WINDOWS.most))
        words = builder.sub(count, begin)
        fewer = builder.icmp_signed("<", words, _INT(popcounts.WINDOWS.most))
        words = builder.select(fewer, words, _INT(popcounts.WINDOWS.most))
        windows = _windows(builder, source, origins, builder.add(first, pixel), first, last)
        odd = apart(builder, weights) if popcounts.ARM else weights
        block = _Block(taps, (weights, odd), begin, channel)
        sums = [
            popcounts.Sum(builder, popcounts.WINDOWS)
            for _ in range(popcounts.WINDOWS.rows * popcounts.WINDOWS.vectors)
        ]
        for one in sums:
            one.clear(builder)
        popcounts.by_groups(
            builder, words, partial(block.advance, builder, windows, sums), popcounts.WINDOWS
        )
        to = builder.add(builder.mul(pixel, _INT(CHANNELS)), channel)
        for row in range(popcounts.WINDOWS.rows):
            place = builder.add(to, _INT(row * CHANNELS))
            first = row * popcounts.WINDOWS.vectors
            of_row = sums[first : first + popcounts.WINDOWS.vectors]
            for value in popcounts.as_ints(builder, of_row):
                held = vector_at(builder, out, place, value.type)
                builder.store(builder.add(builder.load(held, align=4), value), held, align=4)
                place = builder.add(place, _INT(value.type.count))


count_tile = emitted(types.void, *[types.intp] * 8)(tile_of_counts)


def _count_step(builder, x, weight, total):
    popcount = overloaded(builder, "llvm.ctpop.v8i64", _WORDS, _WORDS)
    return builder.add(total, builder.call(popcount, [builder.xor(x, weight)]))


def _windows(builder, source, origins, pixel, first, last):
    """Pointers to the windows of ROWS pixels."""
    found = []
    for row in range(popcounts.WINDOWS.rows):
        index = builder.add(pixel, _INT(row))
        index = builder.select(builder.icmp_signed("<", index, last), index, first)
        origin = builder.load(element(builder, origins, index, _INT))
        found.append(element(builder, source, origin, _INT))
    return found


@dataclass(frozen=True, slots=True)
class _Block:
    """Taps from `begin` on of some channels from `channel` on; addresses as `count_tile` has."""

    taps: ir.Value
    weights: tuple[ir.Value, ir.Value]  # of even vectors and of odd ones
    begin: ir.Value
    channel: ir.Value

    def advance(self, builder, windows, sums, index, pairs):
        """A step of `by_groups`: words of pixels against those of channels."""
        lines = [self._line(builder, index, pair, pairs) for pair in range(max(pairs, 1))]
        heads = [[self._pixel(builder, window, line) for line in lines] for window in windows]

        def each():
            for vector in range(popcounts.WINDOWS.vectors):
                found = [self._channels(builder, line, vector) for line in lines]
                for row, given in enumerate(heads):
                    both = zip(given, found, strict=True)
                    those = [popcounts.differing(builder, *two) for two in both]
                    yield sums[row * popcounts.WINDOWS.vectors + vector], those

        popcounts.add_each(builder, each(), lone=not pairs)

    def _line(self, builder, index, pair, pairs):
        """Numbers of the taps of a pair; of a lone one."""
        at = builder.mul(builder.add(index, _INT(pair)), _INT(2))
        at = builder.add(at, self.begin)
        return [at, builder.add(at, _INT(1))] if pairs else [at]

    def _pixel(self, builder, window, line):
        """Words of a pixel in every lane."""
        found = []
        for tap in line:
            offset = builder.load(element(builder, self.taps, tap, _INT))
            word = builder.load(builder.gep(window, [offset]))
            found.append(broadcast(builder, word, popcounts.WORDS))
        return popcounts.laid(builder, found)

    def _channels(self, builder, line, vector):
        """The same of a vector of channels."""
        found = []
        for tap in line:
            at = builder.add(builder.mul(tap, _INT(CHANNELS)), self.channel)
            at = builder.add(at, _INT(vector * popcounts.LANES))
            place = vector_at(builder, self.weights[vector % 2], at, popcounts.WORDS)
            found.append(builder.load(place, align=8))
        return popcounts.laid(builder, found)


def tile_of_sums(builder, source, origins, first, last, taps, count, weights, out):
    """Sums of products, like `tile_of_counts`, of float32; out is float32 [REAL_PIXELS, 32]."""
    item, width = _INT(4), SINGLE.columns
    with cgutils.for_range(builder, _INT(CHANNELS // width)) as part:
        offset = builder.mul(builder.mul(part.index, _INT(width)), item)
        here = (builder.add(place, offset) for place in (weights, out))
        arguments = (source, origins, first, last, taps, count, *here)
        _tile(builder, arguments, REAL_PIXELS, (SINGLE.vector, width), SINGLE.fused)


sum_tile = emitted(types.void, *[types.intp] * 8)(tile_of_sums)


def _tile(builder, arguments, pixels, across, step):
    """Code of one tile: `step` adds one tap to one register; counts are stored as int32.

    across  vectors, and how many of the channels they are that weights and `out` begin with
    """
    vector, width = across
    registers = width // vector.count
    weights = arguments[6]
    sides = weights, apart(builder, weights) if popcounts.ARM else weights
    where = [(pixel, register) for pixel in range(pixels) for register in range(registers)]
    source, origins, first, last, taps, count, _, out = arguments
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
        place = vector_at(builder, sides[register % 2], index, vector)
        loaded.append(builder.load(place, align=4))
    new = {}
    for pixel in range(pixels):
        x = broadcast(builder, builder.load(builder.gep(windows[pixel], [offset])), vector)
        for register in range(registers):
            new[pixel, register] = step(builder, x, loaded[register], sums[pixel, register])
    if popcounts.ARM:
        keep_rolled(builder)
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
