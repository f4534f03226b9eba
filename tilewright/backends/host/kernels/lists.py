"""Products of lists, cut into tasks in a pass of machine code, from records that were read.

    records of `lists_read.py` -> tiles in the order of the products, and the first tile of every
    task; a product whose smallest tile is too long is cut along k: its parts are records too

        k ->   part 0 | part 1 | part 2      each [m][n] of `sums`, then added in order

Columns of a thousand products, made by NumPy's functions one after another, took 0.55 ms a call,
two thirds of what products of 1 to 64 themselves take; reading and cutting takes 0.05 ms.
"""

from __future__ import annotations

from numba import njit, types

from tilewright.backends.host.kernels.grouped import (
    A_COL,
    B_ROW,
    BIAS,
    BLOCK,
    C_COL,
    C_ROW,
    CHAIN,
    ENDS,
    PANEL,
    PART,
    PLAIN,
    RECORD,
    TILE,
    A,
    B,
    C,
    K,
    M,
    N,
    even,
)
from tilewright.backends.host.kernels.grouped_tile import number as number_of
from tilewright.backends.host.kernels.helpers import helper
from tilewright.backends.host.kernels.lanes import put, whole
from tilewright.backends.host.kernels.lists_read import DEEP, HOME_GAME, SHAPE, SHAPES

# What `cut` finds: products' tasks, pieces of sums, and what it would have had room for.
TASKS, PIECES, ALL_TILES, ALL_SUMS = range(4)
# Tiles of so many times the operations are as deep as k where threads get as many each: a thread's
# share and what rounding to blocks adds. With AVX2 a product of 300 x 700 x 5000 takes 10.4 ms as
# two tiles, 12.1 as six of the next shape, which copy more of B; parts take 5 % longer than whole.
WHOLE = 17
PIECE_ROWS = 8  # rows of sums that are added up by one task


@helper
def _part_records(record, parts, depth, sums, item, made):
    """Records of a product's parts along k, `depth` steps each, at `made`: C lies in `sums`, and
    what ends the product waits for the last of them."""
    m, n, k = whole(record, M), whole(record, N), whole(record, K)
    for part in range(parts):
        one, begin = made + 8 * RECORD * part, part * depth
        for word in range(RECORD):
            put(one, word, whole(record, word))
        put(one, A, whole(record, A) + begin * whole(record, A_COL))
        put(one, B, whole(record, B) + begin * whole(record, B_ROW))
        put(one, BIAS, 0)
        put(one, C, sums + part * m * n * item)
        put(one, C_ROW, n * item)
        put(one, C_COL, item)
        put(one, ENDS, PLAIN)
        put(one, K, min(depth, k - begin))


@helper
def _note(entry, first, second, third, fourth, fifth):
    """Five words, one after another."""
    put(entry, 0, first)
    put(entry, 1, second)
    put(entry, 2, third)
    put(entry, 3, fourth)
    put(entry, 4, fifth)


@helper
def _note_pieces(record, rows, sums, parts, pieces):
    """Bands of rows of a product whose parts lie at `sums`: what adds them up, a piece each."""
    for band in range(-(-rows // PIECE_ROWS)):
        row = band * PIECE_ROWS
        _note(pieces + 8 * PART * band, record, sums, parts, row, min(PIECE_ROWS, rows - row))


@helper
def _most_of(k, most):
    """Operations of a tile: twice as many where k can be cut, as such a product has many tiles that
    are alike."""
    return 2.0 * most if k >= DEEP else most


@helper
def _sides(m, n, item, shape):
    """Rows and columns of a product's tiles."""
    return even(m, whole(shape, 0), BLOCK), even(n, whole(shape, 1), PANEL // item)


@helper
def _shape_of(m, n, depth, item, shapes, most):
    """The largest shape whose tiles, so deep, have at most so many operations, or the smallest:
    smaller tiles copy more of B for each operation than parts add up."""
    for at in range(SHAPES - 1, 0, -1):
        high, wide = _sides(m, n, item, shapes + 8 * SHAPE * at)
        if 2.0 * min(high, m) * min(wide, n) * depth <= most:
            return at
    return 0


@helper
def _dealt(m, n, k, item, shapes, threads, most):
    """The largest shape whose tiles, as deep as k, every thread gets as many of, and of at most so
    many operations; -1 where there is none."""
    for at in range(SHAPES - 1, -1, -1):
        high, wide = _sides(m, n, item, shapes + 8 * SHAPE * at)
        tiles = -(-m // high) * -(-n // wide)
        if tiles % threads == 0 and 2.0 * min(high, m) * min(wide, n) * k <= most:
            return at
    return -1


@njit(nogil=True, cache=True)
def cut(
    records, count, results, item, shapes, threads, spares, most, overhead, task, tables, found
):
    """Tiles and tasks of all products; whether there was room for them, else how many there are.

    records     of `read`, behind which is room for those of parts; C moves by the address `results`
    threads     how many there are: a product whose tiles they can share evenly stays whole
    spares      whether large products have no tiles: somebody else multiplies them
    most        operations of a tile: of the largest shape whose tiles have no more, or the first
    overhead    seconds that any tile takes
    task        seconds of a task
    tables      words: tiles, TILE words each; first tiles of tasks; room for so many tiles (one
                more of tasks); sums, room for so many elements; pieces, room for so many, and for
                so many parts
    found       words: TASKS, PIECES, ALL_TILES, ALL_SUMS
    """
    tiles, cuts, room = whole(tables, 0), whole(tables, 1), whole(tables, 2)
    sums, room_of_sums = whole(tables, 3), whole(tables, 4)
    pieces, room_of_pieces, room_of_parts = whole(tables, 5), whole(tables, 6), whole(tables, 7)
    tasks, seconds = 0, 0.0
    all_tiles, all_sums, all_pieces, all_parts = 0, 0, 0, 0
    put(cuts, 0, 0)
    for number in range(count):
        record = records + 8 * RECORD * number
        put(record, C, whole(record, C) + results)
        m, n, k = whole(record, M), whole(record, N), whole(record, K)
        if m == 0 or n == 0 or (spares and whole(record, ENDS) & HOME_GAME):
            continue
        fits = _most_of(k, most)
        at = _dealt(m, n, k, item, shapes, threads, WHOLE * most) if k >= DEEP else -1
        if at < 0:
            at = _shape_of(m, n, min(k, DEEP), item, shapes, fits)
        else:
            fits = WHOLE * most
        shape = shapes + 8 * SHAPE * at
        high, wide = _sides(m, n, item, shape)
        rate = 2.0 * number_of(0.0, shape + 16)
        work, parts, depth = 2.0 * min(high, m) * min(wide, n) * k, 1, k
        bands = -(-m // PIECE_ROWS)
        if work > fits and k >= DEEP and all_pieces + bands <= room_of_pieces:
            depth = CHAIN * -(-max(int(k * (fits / work)), 1) // CHAIN)
            parts = -(-k // depth)
            if all_parts + parts > room_of_parts:
                parts, depth = 1, k
        first = record
        if parts > 1:
            first = records + 8 * RECORD * (count + all_parts)
            place = sums + item * all_sums
            all_sums += parts * m * n
            _part_records(record, parts, depth, place, item, first)
            all_parts += parts
            _note_pieces(record, m, place, parts, pieces + 8 * PART * all_pieces)
            all_pieces += bands
        for part in range(parts):
            each = rate * min(depth, k - part * depth)
            for row in range(0, m, high):
                for col in range(0, n, wide):
                    rows, cols = min(high, m - row), min(wide, n - col)
                    if all_tiles < room:
                        entry = tiles + 8 * TILE * all_tiles
                        _note(entry, first + 8 * RECORD * part, row, col, rows, cols)
                        seconds += overhead + each * rows * cols
                        if seconds >= task:
                            tasks, seconds = tasks + 1, 0.0
                            put(cuts, tasks, all_tiles + 1)
                    all_tiles += 1
    has_room = all_tiles <= room and all_sums <= room_of_sums
    if has_room and whole(cuts, tasks) < all_tiles:
        tasks += 1
        put(cuts, tasks, all_tiles)
    put(found, TASKS, tasks)
    put(found, PIECES, all_pieces)
    put(found, ALL_TILES, all_tiles)
    put(found, ALL_SUMS, all_sums)
    return has_room


def compile_cut():
    """By words."""
    words, reals = types.int64, (types.float64,) * 3
    cut.compile((*[words] * 7, *reals, *[words] * 2))
