"""int8 convolutions of every channel by itself, three taps across: 64 channels of a few pixels.

    pixels side by side, 64 channels each     p0  p1  p2  p3     bytes of two, then of four pixels
    interleaved:                              [c: p0 p1 p2 p3]   are put beside each other, so that
    x weights                                 [c: w0 w1 w2 0 ]   one instruction multiplies three
    and, at a step of 1, also                 [c: 0 w0 w1 w2 ]   taps, for one pixel or for two

Interleaving and packing both work within quarters of a register, so that channels come out in the
order in which they went in: lane 4k + d of vector i is channel 16k + 4i + d.
"""

from __future__ import annotations

from itertools import pairwise

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from tilewright.backends.host.kernels.conv_product import INT, POINTER, at, counted, private
from tilewright.backends.host.kernels.lanes import broadcast, overloaded
from tilewright.backends.host.kernels.whole_dot import I8, I16, I32, INTS, LANES, WIDE, dot
from tilewright.backends.host.kernels.whole_ends import packed_wide, rounded_sums

PIXELS, VECTORS = 7, 4
CHANNELS = LANES * VECTORS
THERE = WIDE  # 28 sums want 32 registers
_LINE = ir.VectorType(I8, CHANNELS)
_BYTES = 4 * LANES


def _woven(builder, one, other, item, high):
    """Items of two registers in turns, of the lower or the upper half of each quarter."""
    kind = ir.VectorType(item, 8 * CHANNELS // item.width)
    each = 128 // item.width  # items of a quarter
    places = []
    for quarter in range(4):
        first = quarter * each + (each // 2 if high else 0)
        for number in range(first, first + each // 2):
            places += [I32(number), I32(kind.count + number)]
    both = [builder.bitcast(value, kind) for value in (one, other)]
    return builder.shuffle_vector(*both, ir.Constant(ir.VectorType(I32, kind.count), places))


def _quads(builder, pixels):
    """Of each two pixels and the two after them: four vectors of four bytes a channel."""
    pairs = [
        [_woven(builder, *pixels[first : first + 2], I8, high) for high in (False, True)]
        for first in range(0, len(pixels), 2)
    ]
    found = []
    for pair, after in pairwise(pairs):
        found.append(
            [
                builder.bitcast(_woven(builder, pair[half], after[half], I16, high), INTS)
                for half in range(2)
                for high in (False, True)
            ]
        )
    return found


def _row(builder, sums, base, stride, weights, step):
    """One row of the window, into all sums."""
    count = (PIXELS - 1) * step + 3
    # The last of four is not multiplied: another pixel stands for one beyond the row.
    pixels = []
    for pixel in range(count + 1):
        place = builder.gep(base, [builder.mul(stride, INT(min(pixel, count - 1)))])
        pixels.append(builder.load(builder.bitcast(place, _LINE.as_pointer()), align=1))
    sums = list(sums)
    for number, quad in enumerate(_quads(builder, pixels)):
        for shift in range(2 if step == 1 else 1):
            pixel = number * (2 if step == 1 else 1) + shift
            for vector in range(VECTORS if pixel < PIXELS else 0):
                at_ = at(builder, weights, _BYTES * (VECTORS * shift + vector))
                loaded = builder.load(builder.bitcast(at_, INTS.as_pointer()), align=4)
                index = pixel * VECTORS + vector
                sums[index] = dot(builder, sums[index], quad[vector], loaded)
    return sums


def _depth(module, step):
    """A function of its own, so that every sum keeps its register."""
    name = f"tilewright_whole_depth_{step}"
    if name in module.globals:
        return module.globals[name]
    kinds = [POINTER, INT, INT, POINTER, POINTER, POINTER, POINTER, INT, INT]
    builder, arguments = private(module, name, kinds)
    table, rows, stride, weights, start, ends, out, apart, left = arguments
    pointers = builder.bitcast(table, POINTER.as_pointer())

    def body(number, sums):
        base = builder.load(builder.gep(pointers, [number]))
        place = builder.gep(weights, [builder.mul(number, INT(2 * VECTORS * _BYTES))])
        return _row(builder, sums, base, stride, place, step)

    begin = []
    for vector in range(VECTORS):
        place = at(builder, start, _BYTES * vector)
        begin.append(builder.load(builder.bitcast(place, INTS.as_pointer()), align=4))
    sums = counted(builder, rows, begin * PIXELS, body)
    whole, numbers = rounded_sums(builder, sums, ends, VECTORS)
    lanes = ir.Constant(ir.VectorType(INT, CHANNELS), list(range(CHANNELS)))
    mask = builder.icmp_signed("<", lanes, broadcast(builder, left, lanes.type))
    for pixel, made in enumerate(packed_wide(builder, whole, numbers, woven=True)):
        place = builder.gep(out, [builder.mul(apart, INT(pixel))])
        place = builder.bitcast(place, _LINE.as_pointer())
        kind = _LINE, place.type, I32, mask.type
        store = "llvm.masked.store.v64i8.p0v64i8"
        function = overloaded(builder, store, ir.VoidType(), *kind)
        builder.call(function, [made, place, I32(1), mask])
    builder.ret_void()
    return module.globals[name]


def _depth_of(step):
    """depth(table, rows, stride, weights, start, ends, out, apart, left).

    table    addresses [rows] of the first pixel's window, of the first of the channels
    stride   bytes from a pixel of the source to the next
    weights  int8 [rows][2][vectors][16 lanes][4]: w0 w1 w2 0, then 0 w0 w1 w2
    start, ends   as of `whole_tile`, lanes woven
    apart    bytes from a result's pixel to the next
    left     channels that are stored
    """

    @intrinsic
    def depth(typing, table, rows, stride, weights, start, ends, out, apart, left):
        def generate(context, builder, signature, arguments):
            if not THERE:
                return context.get_dummy_value()
            function = _depth(builder.module, step)
            given = [
                builder.inttoptr(value, kind) if kind == POINTER else value
                for value, kind in zip(arguments, function.function_type.args, strict=True)
            ]
            builder.call(function, given)
            return context.get_dummy_value()

        return types.void(*[types.intp] * 9), generate

    return depth


depth_one, depth_two = _depth_of(1), _depth_of(2)
