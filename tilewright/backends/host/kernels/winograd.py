"""Winograd's transforms of 3x3 convolutions, F(4x4, 3x3) and F(2x2, 3x3), sixteen channels at once.

    rows [S][columns][16]  --tiles_in-->   planes [S * S][GROUP][16]      S = M + 2, M = 4 or 2
                                             | products, one a plane
    rows [M][columns][16]  <--tiles_out--  sums [S * S][2][GROUP][16]

A tile is S x S pixels of the input and M x M of the output; tiles stand side by side in a row.
Its two outer columns are the next tile's first, whose vertical transforms are carried over.

Lavin and Gray, "Fast Algorithms for Convolutional Neural Networks", 2015, at other points: their 1
and 2 rounded twice as much in the mean, four times at worst, as 5/8 and 3/2 do.
"""

from __future__ import annotations

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from tilewright.backends.host.kernels.conv_product import (
    BYTES,
    FLOAT,
    FLOATS,
    GROUP,
    I32,
    INT,
    POINTER,
    at,
    counted,
    fused,
    load_floats,
    private,
    store_floats,
)
from tilewright.backends.host.kernels.conv_table import FAR, NEAR
from tilewright.backends.host.kernels.lanes import WIDTH, broadcast

PLANE = (GROUP + 1) * BYTES  # a vector more, or planes would fall on the same lines of a cache
SUMS = (2 * GROUP + 1) * BYTES  # the same, of a plane of sums: two vectors of channels


def _all(value):
    return ir.Constant(FLOATS, [float(value)] * WIDTH)


def _less(builder, times, x, y):
    """y - times * x."""
    return fused(builder, _all(-times), x, y)


def _more(builder, times, x, y):
    """y + times * x."""
    return fused(builder, _all(times), x, y)


def _in(builder, d):
    """One column of a tile's transform, of six numbers or of four."""
    if len(d) == 4:
        return [
            builder.fsub(d[0], d[2]),
            builder.fadd(d[1], d[2]),
            builder.fsub(d[2], d[1]),
            builder.fsub(d[3], d[1]),
        ]
    ends = [_less(builder, NEAR**2 + FAR**2, d[2 + odd], d[4 + odd]) for odd in (0, 1)]
    found = [_more(builder, (NEAR * FAR) ** 2, d[0], ends[0])]
    for point, other in ((NEAR, FAR), (FAR, NEAR)):
        even, odd = (_less(builder, other**2, d[1 + last], d[3 + last]) for last in (1, 0))
        found += [_more(builder, point, odd, even), _less(builder, point, odd, even)]
    return [*found, _more(builder, (NEAR * FAR) ** 2, d[1], ends[1])]


def _out(builder, m):
    """One column of the transform back."""
    even, odd = builder.fadd(m[1], m[2]), builder.fsub(m[1], m[2])
    if len(m) == 4:
        return [builder.fadd(m[0], even), builder.fadd(odd, m[3])]
    even_far, odd_far = builder.fadd(m[3], m[4]), builder.fsub(m[3], m[4])
    found = [builder.fadd(builder.fadd(m[0], even), even_far)]
    for power, near, far in ((1, odd, odd_far), (2, even, even_far), (3, odd, odd_far)):
        near = builder.fmul(_all(NEAR**power), near)
        found.append(_more(builder, FAR**power, far, near))
    return [*found[:3], builder.fadd(found[3], m[5])]


def _pointers(builder, table, count):
    """Addresses that a table holds."""
    typed = builder.bitcast(table, POINTER.as_pointer())
    return [builder.load(builder.gep(typed, [INT(index)])) for index in range(count)]


def _tiles_in(module, m):
    size = m + 2
    builder, (table, planes, tiles) = private(
        module, f"tilewright_tiles_in_{m}", [POINTER, POINTER, INT]
    )
    rows = _pointers(builder, table, size)

    def column(offset):
        return _in(builder, [load_floats(builder, at(builder, row, offset)) for row in rows])

    def body(index, carried):
        columns = [carried[:size], carried[size:]]
        start = builder.mul(index, INT(m * BYTES))
        for further in range(2, size):
            columns.append(column(builder.add(start, INT(further * BYTES))))
        place = at(builder, planes, builder.mul(index, INT(BYTES)))
        for row in range(size):
            for number, value in enumerate(_in(builder, [each[row] for each in columns])):
                store_floats(builder, value, at(builder, place, (row * size + number) * PLANE))
        return columns[m] + columns[m + 1]

    counted(builder, tiles, column(0) + column(BYTES), body)
    builder.ret_void()


def tiles_in_of(m):
    """tiles_in(rows, planes, tiles): `rows` is a table of m + 2 addresses of the first pixel."""

    @intrinsic
    def tiles_in(typing, rows, planes, tiles):
        def generate(context, builder, signature, arguments):
            name = f"tilewright_tiles_in_{m}"
            if name not in builder.module.globals:
                _tiles_in(builder.module, m)
            pointers = [builder.inttoptr(place, POINTER) for place in arguments[:2]]
            builder.call(builder.module.globals[name], [*pointers, arguments[2]])
            return context.get_dummy_value()

        return types.void(*[types.intp] * 3), generate

    return tiles_in


def _folded(builder, pixels):
    """Lanes of 4 channels x 4 parts of sums, a pixel each of 4 (or 2) -> 4 channels of each pixel.

    Added as a tree: the parts by pairs, then the pairs.
    """
    pixels = pixels + [_all(0)] * (4 - len(pixels))

    def joined(first, second):
        """Neighbours added: eight of the first, then eight of the second."""
        even, odd = (
            builder.shuffle_vector(first, second, _lanes(range(start, 32, 2))) for start in (0, 1)
        )
        return builder.fadd(even, odd)

    return joined(joined(*pixels[:2]), joined(*pixels[2:]))


def _lanes(numbers):
    numbers = list(numbers)
    return ir.Constant(ir.VectorType(I32, len(numbers)), [I32(number) for number in numbers])


def clipped(builder, value, low, high):
    """The value between two vectors; NaN stays."""
    value = builder.select(builder.fcmp_ordered("<", value, low), low, value)
    return builder.select(builder.fcmp_ordered(">", value, high), high, value)


def _unusual(builder, values):
    """1 where any lane of any value may be infinite or NaN: their sum then is, whatever else."""
    total = values[0]
    for value in values[1:]:
        total = builder.fadd(total, value)
    none = builder.fsub(total, total)
    bits = builder.bitcast(builder.fcmp_unordered("uno", none, none), ir.IntType(WIDTH))
    return builder.zext(builder.icmp_unsigned("!=", bits, ir.IntType(WIDTH)(0)), INT)


def _tiles_out(module, name, m, quad):
    size = m + 2
    kinds = [POINTER, POINTER, INT, POINTER, FLOAT, FLOAT]
    builder, (table, sums, tiles, bias, low, high) = private(module, name, kinds, INT)
    rows = _pointers(builder, table, m)
    low, high = (broadcast(builder, value, FLOATS) for value in (low, high))
    added = load_floats(builder, bias)

    def transformed(index):
        """The tile's pixels [row][column], without the bias."""
        place = at(builder, sums, builder.mul(index, INT(BYTES)))
        columns = []
        for column in range(size):
            planes = [(row * size + column) * SUMS for row in range(size)]
            values = [load_floats(builder, at(builder, place, plane)) for plane in planes]
            columns.append(_out(builder, values))
        return [_out(builder, [column[row] for column in columns]) for row in range(m)]

    def body(index, found):
        pixels = transformed(index)
        flag = _unusual(builder, [value for row in pixels for value in row])
        step = m * (16 if quad else BYTES)
        start = builder.mul(index, INT(step))
        for row, values in zip(rows, pixels, strict=True):
            place = at(builder, row, start)
            if quad:
                values = [_folded(builder, values)]
            for number, value in enumerate(values):
                ended = clipped(builder, builder.fadd(value, added), low, high)
                if quad and m == 2:
                    ended = builder.shuffle_vector(ended, ended, _lanes(range(8)))
                store_floats(builder, ended, at(builder, place, number * BYTES))
        return [builder.or_(found[0], builder.shl(flag, index))]

    builder.ret(counted(builder, tiles, [INT(0)], body)[0])


def tiles_out_of(m, quad):
    """tiles_out(rows, sums, tiles, bias, low, high): transform back, add the bias, clip, store.

    Gives a bit for each tile: whether it may hold infinities or NaN, which a transform spreads over
    all of it. `quad`: four output channels, a pixel's side by side, of lanes that hold four parts
    of each sum; the bias then is repeated four times.
    """

    @intrinsic
    def tiles_out(typing, rows, sums, tiles, bias, low, high):
        def generate(context, builder, signature, arguments):
            rows, sums, tiles, bias, low, high = arguments
            name = f"tilewright_tiles_out_{m}{'_quad' if quad else ''}"
            if name not in builder.module.globals:
                _tiles_out(builder.module, name, m, quad)
            rows, sums, bias = (builder.inttoptr(place, POINTER) for place in (rows, sums, bias))
            given = [rows, sums, tiles, bias, low, high]
            return builder.call(builder.module.globals[name], given)

        return types.intp(*[types.intp] * 4, types.float32, types.float32), generate

    return tiles_out
