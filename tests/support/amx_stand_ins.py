"""AMX's tiles made of memory and vectors, so that all around them runs where there are none.

    install()    before kernels are imported, in a process without a cache: what is compiled there
                 is not what the same sources are compiled to elsewhere

Tiles are arrays of the function that multiplies; a load reads what the instruction would, byte for
byte. `counts` says how many were configured, released and multiplied. `always[0] = 1` puts tiles in
the place of vectors from the next product on: both rules run what was compiled once, which takes
fifteen seconds.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

I8, I16, I32, I64 = (ir.IntType(bits) for bits in (8, 16, 32, 64))
LINE, SIDE = ir.VectorType(I8, 64), 16
INTS, FLOATS = ir.VectorType(I32, SIDE), ir.VectorType(ir.FloatType(), SIDE)
TILE = ir.ArrayType(LINE, SIDE)
counts: Any = np.zeros(3, np.int64)
always: Any = np.zeros(1, np.int64)
_places: dict[tuple[str, str, int], Any] = {}


def install() -> None:
    """Put them in the place of the instructions, and a switch before the rule who multiplies."""
    from tilewright.backends.host import amx, compiled

    told = compiled.kernels("features")
    there = told.features() | {"amx-tile", "amx-int8", "amx-bf16"}
    told.features = lambda: there
    amx.is_granted = lambda: True  # type: ignore[assignment]
    tiles: Any = compiled.kernels("grouped_amx")
    for made in (zero_tile, load_tile, store_tile, multiply_tiles, set_tiles, drop_tiles):
        setattr(tiles, made.__name__, made)
    plain = tiles.is_sooner

    def is_sooner(item: int, rows: int, cols: int, depth: int) -> bool:
        return depth > 0 if _is_always() else plain(item, rows, cols, depth)

    tiles.is_sooner = tiles.helper(is_sooner)


def use_always() -> None:
    """Tiles for every product that has some depth, of a processor's own."""
    from tilewright.backends.host import compiled

    tiles: Any = compiled.kernels("grouped_amx")

    def is_sooner(item: int, rows: int, cols: int, depth: int) -> bool:
        return depth > 0

    tiles.is_sooner = tiles.helper(is_sooner)


@intrinsic
def _is_always(typing: Any) -> Any:
    def load(context: Any, builder: Any, signature: Any, given: Any) -> Any:
        place = builder.inttoptr(I64(always.ctypes.data), I64.as_pointer())
        return builder.icmp_signed("!=", builder.load(place), I64(0))

    return types.boolean(), load


def _tile(builder: Any, number: int) -> Any:
    key = builder.module.name, builder.function.name, number
    if key not in _places:
        _places[key] = cgutils.alloca_once(builder, TILE)
    return _places[key]


def _row(builder: Any, number: int, row: Any) -> Any:
    return builder.gep(_tile(builder, number), [I64(0), row])


def _counted(builder: Any, which: int) -> None:
    place = builder.inttoptr(I64(counts.ctypes.data + 8 * which), I64.as_pointer())
    builder.atomic_rmw("add", place, I64(1), "monotonic")


def set_tiles(builder: Any) -> None:
    """Instead of a configuration."""
    _counted(builder, 0)


def drop_tiles(builder: Any) -> None:
    """Instead of a release."""
    _counted(builder, 1)


def zero_tile(builder: Any, tile: int) -> None:
    """Sixteen rows."""
    with cgutils.for_range(builder, I64(SIDE)) as loop:
        builder.store(ir.Constant(LINE, [I8(0)] * 64), _row(builder, tile, loop.index))


def _moved(builder: Any, tile: int, pointer: Any, pitch: Any, *, is_load: bool) -> None:
    with cgutils.for_range(builder, I64(SIDE)) as loop:
        there = builder.gep(pointer, [builder.mul(loop.index, pitch)])
        there = builder.bitcast(there, LINE.as_pointer())
        here = _row(builder, tile, loop.index)
        source, target = (there, here) if is_load else (here, there)
        builder.store(builder.load(source, align=1), target, align=1)


def load_tile(builder: Any, tile: int, pointer: Any, pitch: Any) -> None:
    """Sixteen rows of 64 bytes."""
    _moved(builder, tile, pointer, pitch, is_load=True)


def store_tile(builder: Any, tile: int, pointer: Any, pitch: Any) -> None:
    """The other way."""
    _moved(builder, tile, pointer, pitch, is_load=False)


def multiply_tiles(builder: Any, kind: Any, sums: int, left: int, right: int) -> None:
    """A row of C at a time, a word of k at a time."""
    _counted(builder, 2)
    with cgutils.for_range(builder, I64(SIDE)) as rows:
        place = builder.bitcast(_row(builder, sums, rows.index), kind.vector.as_pointer())
        words = builder.bitcast(_row(builder, left, rows.index), I32.as_pointer())
        with cgutils.for_range(builder, I64(SIDE)) as step:
            word = builder.load(builder.gep(words, [step.index]))
            columns = builder.bitcast(_row(builder, right, step.index), INTS.as_pointer())
            value = builder.load(place)
            word = _everywhere(builder, word)
            for part in range(kind.group):
                one, other = (_part(builder, kind, x, part) for x in (word, builder.load(columns)))
                if kind.item == 2:
                    value = builder.fadd(value, builder.fmul(one, other))
                else:
                    value = builder.add(value, builder.mul(one, other))
            builder.store(value, place)


def _everywhere(builder: Any, word: Any) -> Any:
    nothing = ir.Constant(INTS, ir.Undefined)
    first = builder.insert_element(nothing, word, I32(0))
    return builder.shuffle_vector(first, nothing, ir.Constant(INTS, [I32(0)] * SIDE))


def _part(builder: Any, kind: Any, words: Any, part: int) -> Any:
    """Element `part` of every word: a float32, or an int32."""
    bits = 8 * kind.item
    up = ir.Constant(INTS, [I32(32 - bits * (part + 1))] * SIDE)
    down = ir.Constant(INTS, [I32(32 - bits)] * SIDE)
    high = builder.shl(words, up)
    if kind.item == 1:
        return builder.ashr(high, down)
    mask = ir.Constant(INTS, [I32(0xFFFF0000)] * SIDE)
    return builder.bitcast(builder.and_(high, mask), FLOATS)
