"""3x3 convolutions of few input channels, plainly: pixels x channels of the output in registers.

    planes of the input:   the 3 numbers beside each other of each row of the window, broadcast
                           x   weights [rows of windows][3][channels]

A picture's one or three channels would leave most of a vector of channels empty, and Winograd's
transforms nothing to gain on.
"""

from __future__ import annotations

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from tilewright.backends.host.kernels.conv_product import (
    BYTES,
    FLOAT,
    FLOATS,
    INT,
    POINTER,
    ROWS,
    at,
    counted,
    fused,
    load_floats,
    private,
    store_floats,
)
from tilewright.backends.host.kernels.lanes import WIDTH, broadcast
from tilewright.backends.host.kernels.winograd import clipped

PIXELS = {vectors: shapes[0] for vectors, shapes in ROWS.items()}
LEAST = 2  # what every width is a multiple of


def _few(module, name, pixels, vectors):
    """Pixels side by side: see `few_of`."""
    kinds = [POINTER, INT, INT, POINTER, POINTER, INT, POINTER, FLOAT, FLOAT]
    builder, arguments = private(module, name, kinds)
    table, rows, start, weights, out, block, bias, low, high = arguments
    pointers = builder.bitcast(table, POINTER.as_pointer())

    def body(row, sums):
        sums = list(sums)
        numbers = at(builder, builder.load(builder.gep(pointers, [row])), start)
        place = at(builder, weights, builder.mul(row, INT(3 * vectors * BYTES)))
        for tap in range(3):
            loaded = [
                load_floats(builder, at(builder, place, (tap * vectors + vector) * BYTES))
                for vector in range(vectors)
            ]
            for pixel in range(pixels):
                one = load_floats(builder, at(builder, numbers, 4 * (pixel + tap)), FLOAT)
                wide = broadcast(builder, one, FLOATS)
                for vector in range(vectors):
                    index = pixel * vectors + vector
                    sums[index] = fused(builder, wide, loaded[vector], sums[index])
        return sums

    zero = ir.Constant(FLOATS, [0.0] * WIDTH)
    sums = counted(builder, rows, [zero] * (pixels * vectors), body)
    low, high = (broadcast(builder, value, FLOATS) for value in (low, high))
    for vector in range(vectors):
        added = load_floats(builder, at(builder, bias, vector * BYTES))
        place = at(builder, out, builder.mul(block, INT(vector)))
        for pixel in range(pixels):
            value = builder.fadd(sums[pixel * vectors + vector], added)
            value = clipped(builder, value, low, high)
            store_floats(builder, value, at(builder, place, pixel * BYTES))
    builder.ret_void()


def few_of(pixels, vectors):
    """few(table, rows, start, weights, out, block, bias, low, high), for so many pixels.

    table    addresses of the windows' rows: those of a channel together, one channel after another
    start    bytes from there to the first pixel's window
    out      float32 [vectors][pixels][16]; a vector lies `block` bytes after the one before
    """

    @intrinsic
    def few(typing, table, rows, start, weights, out, block, bias, low, high):
        def generate(context, builder, signature, arguments):
            name = f"tilewright_few_{pixels}x{vectors}"
            if name not in builder.module.globals:
                _few(builder.module, name, pixels, vectors)
            function = builder.module.globals[name]
            given = [
                builder.inttoptr(value, kind) if kind == POINTER else value
                for value, kind in zip(arguments, function.function_type.args, strict=True)
            ]
            builder.call(function, given)
            return context.get_dummy_value()

        signature = types.void(*[types.intp] * 7, types.float32, types.float32)
        return signature, generate

    return few
