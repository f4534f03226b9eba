"""A tile of a depthwise convolution over rows that hold their zeros too: no window is cut.

    row 0   p p p p p p        3 x 3 at steps of one: two rows of four results, each sixteen
    row 1   p p p p p p        channels, in eight registers; a row's six pixels are loaded once
    row 2   p p p p p p        and serve both rows of results and all of their windows
    row 3   p p p p p p

5 x 5 and steps of two likewise. Rows lie anywhere, as those of a ring do.
"""

from __future__ import annotations

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from tilewright.backends.host.kernels.lanes import (
    WIDTH,
    broadcast,
    overloaded,
    store_masked,
)

SIDE, ROWS = 4, 2  # pixels of a tile
_I64 = ir.IntType(64)
_FLOATS = ir.VectorType(ir.FloatType(), WIDTH)


def _vector(builder, address):
    return builder.inttoptr(address, _FLOATS.as_pointer())


def _sums(builder, taps, step, arguments):
    """The eight sums: [row][pixel]."""
    ring, first, line, count, pixel, weights, bias = arguments
    fused = overloaded(builder, "llvm.fma.v16f32", _FLOATS, *[_FLOATS] * 3)
    begin = builder.load(_vector(builder, bias), align=4)
    sums = [[begin] * SIDE for _ in range(ROWS)]
    for row in range((ROWS - 1) * step + taps):
        slot = builder.srem(builder.add(first, _I64(row)), count)
        place = builder.add(ring, builder.mul(slot, line))
        pixels = [
            builder.load(
                _vector(builder, builder.add(place, builder.mul(pixel, _I64(at)))), align=4
            )
            for at in range((SIDE - 1) * step + taps)
        ]
        for result in range(ROWS):
            down = row - result * step
            for across in range(taps) if 0 <= down < taps else ():
                at = builder.add(weights, _I64(4 * WIDTH * (down * taps + across)))
                weight = builder.load(_vector(builder, at), align=4)
                for x in range(SIDE):
                    given = [pixels[x * step + across], weight, sums[result][x]]
                    sums[result][x] = builder.call(fused, given)
    return sums


def _finish(builder, sums, arguments):
    """Bounds, and what there are of rows and channels to where they belong."""
    out, out_row, out_pixel, rows, channels, low, high = arguments
    numbers = ir.Constant(ir.VectorType(_I64, WIDTH), list(range(WIDTH)))
    mask = builder.icmp_signed("<", numbers, broadcast(builder, channels, numbers.type))
    low, high = (broadcast(builder, bound, _FLOATS) for bound in (low, high))
    for row in range(ROWS):
        with builder.if_then(builder.icmp_signed(">", rows, _I64(row)), likely=True):
            start = builder.add(out, builder.mul(out_row, _I64(row)))
            for x in range(SIDE):
                value = sums[row][x]
                value = builder.select(builder.fcmp_ordered(">", low, value), low, value)
                value = builder.select(builder.fcmp_ordered("<", high, value), high, value)
                place = builder.add(start, builder.mul(out_pixel, _I64(x)))
                store_masked(builder, value, _vector(builder, place), mask)


def ring_tile_of(taps, step):
    """ring_tile(ring, first, line, count, pixel, weights, bias, out, ..., high).

    ring, line, count  address of slot 0, bytes of a slot, how many there are
    first              the slot of the tile's first row, if rows were counted on without end
    pixel              bytes from one pixel of the ring to the next
    weights, bias      addresses of float32 [taps * taps, 16] and [16]
    out                address of the first result; out_row and out_pixel bytes to the next
    rows, channels     how many are stored, 1 or 2 rows
    low, high          bounds of the results; NaN passes
    """

    @intrinsic
    def ring_tile(
        typing, ring, first, line, count, pixel, weights, bias, out, out_row, out_pixel, rows,
        channels, low, high,
    ):  # fmt: skip
        def generate(context, builder, signature, arguments):
            sums = _sums(builder, taps, step, arguments[:7])
            _finish(builder, sums, arguments[7:])
            return context.get_dummy_value()

        return types.void(*[types.intp] * 12, types.float32, types.float32), generate

    return ring_tile
