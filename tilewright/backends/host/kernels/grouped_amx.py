"""Products of bfloat16 and int8 on AMX's tiles: up to 32 x 32 of C, in four of eight tiles.

                          panel of B, as `grouped_narrow.py` packs it: a word of k a row
                               +------+------+
    for each line of k:        |  B0  |  B1  |      16 words x 16 columns a tile
                               +------+------+
        16 rows   +----+       +------+------+
        x a line  | A0 |       | C00  | C01  |      sums: float32 or int32, 16 x 16 a tile
        of 64     +----+       +------+------+
        bytes     | A1 |       | C10  | C11  |
                  +----+       +------+------+

A tile is whole: 16 rows of 64 bytes. One configuration serves every product, as a new one empties
all tiles and takes some 200 cycles. What is not whole is made so in memory of the thread: lines of
A and words of the panel are filled with zeros along k; of rows and columns beyond the product's
there is only room, and what they sum to is never looked at. So nothing behind an array is read.

Tiles are named by number, and LLVM gives none out: it writes these instructions as they stand.
"""

from __future__ import annotations

from functools import cache, partial

import numpy as np
from llvmlite import binding, ir
from numba import cfunc, config, types
from numba.core import cgutils

from tilewright.backends.host.kernels.conv_product import INT, POINTER, at, private
from tilewright.backends.host.kernels.emitted import emitted
from tilewright.backends.host.kernels.features import features
from tilewright.backends.host.kernels.grouped import K
from tilewright.backends.host.kernels.grouped_narrow_rows import copied, some
from tilewright.backends.host.kernels.grouped_narrow_tile import (
    I8,
    PITCH,
    of_kind,
    put,
)
from tilewright.backends.host.kernels.grouped_tile import by_size, repeated
from tilewright.backends.host.kernels.helpers import helper
from tilewright.backends.host.kernels.lanes import whole
from tilewright.backends.host.kernels.whole_dot import WIDE

LINE, SIDE = 64, 16  # bytes of a tile's row; its rows, and words of its lines
ROWS = 2 * SIDE  # of a product, at most
WORDS = LINE // 4
_SUMS, _LEFT, _RIGHT = 0, 4, 6  # numbers of the first tile of C, of A, of B
# Cycles, modelled and not measured: of a tile's product or of sixteen numbers multiplied in vectors
# (one of bfloat16, two of int8 a cycle); of a line of A that is copied; of what a tile of C begins
# and ends with, loads, sums and stores that wait for each other.
_PRODUCT, _COPY, _BEGIN = 16, 3, 256
# Palette 1: eight tiles of 64 bytes a row, and of 16 rows.
_CONFIGURATION = bytes([1, *[0] * 15, *[LINE, 0] * 8, *[0] * 16, *[SIDE] * 8, *[0] * 8])


def _is_held():
    """Whether NUMBA_CPU_NAME alone holds the process to another processor than this."""
    named = config.CPU_NAME not in (None, binding.get_host_cpu_name())
    return named and config.CPU_FEATURES is None


def has(item):
    """Whether what Numba compiles for has tiles of elements of so many bytes."""
    needed = {"amx-tile", {1: "amx-int8", 2: "amx-bf16"}.get(item, "none")}
    return WIDE and needed <= features() and not _is_held()


THERE = has(1) or has(2)


@helper
def suits(item, entry):
    """Whether tiles multiply a tile of C of a queue sooner than vectors."""
    return is_sooner(item, whole(entry, 3), whole(entry, 4), whole(whole(entry, 0), K))


@helper
def is_sooner(item, rows, cols, depth):
    """Whether they do so of a block of C, by the cycles of either."""
    words, vectors = -(-depth * item // 4), -(-cols // SIDE)
    lines = -(-depth * item // LINE)
    by_vectors = rows * vectors * words * item // 2
    by_tiles = _PRODUCT * -(-rows // SIDE) * vectors * lines + _COPY * rows * lines + _BEGIN
    return by_tiles < by_vectors


def _call(builder, name, *values):
    """An instruction of AMX's; a number is that of a tile."""
    values = [I8(value) if isinstance(value, int) else value for value in values]
    kind = ir.FunctionType(ir.VoidType(), [value.type for value in values])
    function = cgutils.get_or_insert_function(builder.module, kind, f"llvm.x86.{name}")
    builder.call(function, values)


def zero_tile(builder, tile):
    """Sixteen rows of zeros."""
    _call(builder, "tilezero", tile)


def load_tile(builder, tile, pointer, pitch):
    """Sixteen rows of a line, so many bytes apart."""
    _call(builder, "tileloadd64", tile, pointer, pitch)


def store_tile(builder, tile, pointer, pitch):
    """The other way."""
    _call(builder, "tilestored64", tile, pointer, pitch)


def multiply_tiles(builder, kind, sums, left, right):
    """sums += left @ right, words of both by words."""
    _call(builder, "tdpbf16ps" if kind.item == 2 else "tdpbssd", sums, left, right)


def set_tiles(builder):
    """The configuration."""
    text = ir.Constant(ir.ArrayType(I8, LINE), bytearray(_CONFIGURATION))
    place = cgutils.global_constant(builder, "tilewright_amx_tiles", text)
    _call(builder, "ldtilecfg", builder.bitcast(place, POINTER))


def drop_tiles(builder):
    """As before: a thread whose tiles hold something has 8 KiB more to be put aside."""
    _call(builder, "tilerelease")


@emitted(types.void)
def configure(builder):
    """Before the first product of a thread."""
    if THERE:
        set_tiles(builder)


@emitted(types.void)
def release(builder):
    """After the last."""
    if THERE:
        drop_tiles(builder)


def product(module, kind, rows, vectors):
    """to[rows][vectors] = A[rows][words] @ panel, rows and vectors in tiles, words in whole lines.

    `ends` is 0, or the address of a line of every row that follows those; `adds`: what lies in `to`
    is added.
    """
    name = f"tilewright_amx_{kind.name}_{rows}x{vectors}"
    if name in module.globals:
        return module.globals[name]
    builder, given = private(module, name, [POINTER, INT, POINTER, POINTER] + [INT] * 4)
    a, a_row, panel, to, pitch, words, ends, adds = given
    places = {
        2 * row + vector: at(
            builder, to, builder.add(builder.mul(pitch, INT(SIDE * row)), INT(LINE * vector))
        )
        for row in range(rows)
        for vector in range(vectors)
    }
    with builder.if_else(builder.icmp_signed("!=", adds, INT(0))) as (then, otherwise):
        with then:
            for tile, place in places.items():
                load_tile(builder, _SUMS + tile, place, pitch)
        with otherwise:
            for tile in places:
                zero_tile(builder, _SUMS + tile)

    def step(word, left, apart):
        first = at(builder, panel, builder.mul(builder.add(word, INT(1)), INT(PITCH)))
        for vector in range(vectors):
            load_tile(builder, _RIGHT + vector, at(builder, first, LINE * vector), INT(PITCH))
        for row in range(rows):
            load_tile(builder, _LEFT + row, left, apart)
            left = at(builder, left, builder.mul(apart, INT(SIDE)))
            for vector in range(vectors):
                tile = _SUMS + 2 * row + vector
                multiply_tiles(builder, kind, tile, _LEFT + row, _RIGHT + vector)
        return []

    def line(word, _):
        return step(word, at(builder, a, builder.mul(word, INT(4))), a_row)

    repeated(builder, INT(0), words, WORDS, [], line)
    with builder.if_then(builder.icmp_signed("!=", ends, INT(0))):
        step(words, builder.inttoptr(ends, POINTER), INT(LINE))
    for tile, place in places.items():
        store_tile(builder, _SUMS + tile, place, pitch)
    builder.ret_void()
    return module.globals[name]


@of_kind("", "i" * 10)
def multiply(builder, kind, rows, vectors, a, a_row, panel, to, pitch, words, ends, adds):
    """`product` of so many rows, up to `ROWS` of them, and vectors; called as that of
    `grouped_narrow_tile.py` is."""
    a, panel, to = (builder.inttoptr(place, POINTER) for place in (a, panel, to))
    tiles = builder.sdiv(builder.add(rows, INT(SIDE - 1)), INT(SIDE))
    given = [a, a_row, panel, to, pitch, words, ends, adds]
    by_size(builder, tiles, vectors, (2, 2), partial(product, builder.module, kind), given)


@of_kind("", "i")
def clear(builder, kind, address):
    """A line of zeros."""
    zeros = ir.Constant(ir.VectorType(I8, LINE), [I8(0)] * LINE)
    put(builder, zeros, builder.inttoptr(address, POINTER))


@of_kind("", "i" * 6)
def copy_rows(builder, kind, source, row, rows, steps, target, pitch):
    """Rows of elements that follow each other, to lines whose last one is filled with zeros."""
    source, target = (builder.inttoptr(place, POINTER) for place in (source, target))
    line = ir.VectorType(kind.scalar, LINE // kind.item)
    whole = builder.and_(steps, INT(-line.count))

    def one(number, _):
        here = at(builder, source, builder.mul(number, row))
        there = at(builder, target, builder.mul(number, pitch))

        def full(step, _):
            offset = builder.mul(step, INT(kind.item))
            pointer = builder.bitcast(at(builder, here, offset), line.as_pointer())
            put(builder, builder.load(pointer, align=kind.item), at(builder, there, offset))
            return []

        def last(step, _):
            offset, left = builder.mul(step, INT(kind.item)), builder.sub(steps, step)
            found = some(builder, kind, line, at(builder, here, offset), left)
            put(builder, found, at(builder, there, offset))
            return []

        repeated(builder, INT(0), whole, line.count, [], full)
        repeated(builder, whole, steps, line.count, [], last)
        return []

    repeated(builder, INT(0), rows, 1, [], one)


@helper
def lines_of(zero, item, a, row, col, rows, steps, own, pitch):
    """What tiles cannot read where it lies, in memory of the thread: the first row of which all is.

    Of rows before it only what does not fill a line is copied, to a line of each at `own`; the
    others to rows that are `pitch` bytes apart.
    """
    first, whole_steps = 0, steps // (LINE // item) * (LINE // item)
    if col == item:
        first = rows if rows % SIDE == 0 else rows // ROWS * ROWS
        if whole_steps < steps:
            copy_rows(zero, a + whole_steps * item, row, first, steps - whole_steps, own, LINE)
        copy_rows(zero, a + first * row, row, rows - first, steps, own + first * pitch, pitch)
    else:
        for r in range(rows):
            clear(zero, own + r * pitch + (steps * item - 1) // LINE * LINE)
        copied(zero, item, a, row, col, rows, steps, own, pitch)
    return first


@helper
def fill_panel(zero, panel, words, all_words, vectors):
    """Zeros behind so many words of a panel, to the end of a line of A."""
    for word in range(words, all_words):
        for vector in range(vectors):
            clear(zero, panel + (1 + word) * PITCH + vector * LINE)


def _brain(rows, vectors, a, a_row, panel, to, pitch, words, rest, adds):
    multiply(np.uint16(0), rows, vectors, a, a_row, panel, to, pitch, words, rest, adds)


def _byte(rows, vectors, a, a_row, panel, to, pitch, words, rest, adds):
    multiply(np.int8(0), rows, vectors, a, a_row, panel, to, pitch, words, rest, adds)


@cache
def multiply_code(item):
    """Products of tiles as machine code of their own, compiled once; its `address` is where."""
    return cfunc(types.void(*[types.intp] * 10), cache=True)(_brain if item == 2 else _byte)
