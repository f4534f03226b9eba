"""Lists of NumPy's matrices: read where they lie, cut into tasks, a pass of machine code each.

    object    header, whose last word is the type; in words of 8 bytes behind it
              data 0    nd 1    sizes* 2    strides* 3    dtype 5
    sizes     rows, columns; strides likewise, in bytes

    read      objects -> a record a product, and what is known of all of them; those that are a
              BLAS's home game are marked
    cut       records -> tiles in the order of the products, and the first tile of every task; a
              product whose smallest tile is too long is cut along k: its parts are records too

                  k ->   part 0 | part 1 | part 2      each [m][n] of `sums`, then added in order

Columns of a thousand products, made by NumPy's functions one after another, took 0.55 ms a call,
two thirds of what products of 1 to 64 themselves take; here it is 0.05 ms. The structure is part
of NumPy's stable ABI (PyArrayObject_fields); `arrays/addresses.py` proves it before it is trusted.
"""

from __future__ import annotations

from numba import njit, types

from tilewright.backends.host.kernels.grouped import (
    A_COL,
    A_ROW,
    ALPHA,
    B_COL,
    B_ROW,
    BETA,
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
from tilewright.backends.host.kernels.grouped_tile import put as put_real
from tilewright.backends.host.kernels.helpers import helper
from tilewright.backends.host.kernels.lanes import put, whole

_HEADER = object.__basicsize__ // 8
_TYPE, _DATA, _ND, _SIZES, _STRIDES, _DTYPE = (_HEADER + at for at in (-1, 0, 1, 2, 3, 5))
# What `read` finds: bytes of all results, elements of the largest, how many are large; doubles are
# the operations of all, of those that are not large where none counts more than `small`, of those
# that are, and of the largest tile of the first shape that cannot be cut along k.
BYTES, WIDEST, LARGE, FLOPS, CAPPED, LARGE_FLOPS, TILE_FLOPS = range(7)
FACTS = 7
HOME_GAME = 8  # a bit of ENDS: the product is large
# What `cut` finds: products' tasks, pieces of sums, and what it would have had room for.
TASKS, PIECES, ALL_TILES, ALL_SUMS = range(4)
DEEP = 2 * CHAIN  # steps of k from which on a product may be cut along it, in parts of half as many
# Tiles of so many times the operations are as deep as k where threads get as many each: a thread's
# share and what rounding to blocks adds. With AVX2 a product of 300 x 700 x 5000 takes 10.4 ms as
# two tiles, 12.1 as six of the next shape, which copy more of B; parts take 5 % longer than whole.
WHOLE = 17
PIECE_ROWS = 8  # rows of sums that are added up by one task
# Shapes of tiles, the smallest first: rows, columns, and a double, seconds of an operation.
SHAPE, SHAPES = 3, 3
_MOST, _ELEMENTS, _LINE = 2**31 - 64, 2**42, 64  # of a side; of a result, a BLAS's too


@helper
def _is_matrix(one, kind, dtype, item):
    """Whether an object is a matrix of NumPy's own type and this dtype, of aligned elements."""
    if whole(one, _TYPE) != kind or whole(one, _DTYPE) != dtype:
        return False
    if whole(one, _ND) & 0xFFFFFFFF != 2:
        return False
    strides = whole(one, _STRIDES)
    return (whole(one, _DATA) | whole(strides, 0) | whole(strides, 1)) & (item - 1) == 0


@njit(cache=True)
def read(lefts, rights, count, kind, dtype, item, narrow, small, large, shapes, records, facts):
    """Whether these are products of plain matrices; then their records and facts are written.

    lefts, rights   addresses of so many objects' addresses, which somebody holds
    kind, dtype     addresses of NumPy's type of arrays, and of the elements'
    narrow, small   a product with a side below this is narrow; operations
    large           operations from which on a product that is not narrow is large
    records         RECORD words a product; C counts from where the results begin

    The interpreter's lock is held: no other thread gives an array another shape meanwhile.
    """
    end, widest, many_large = 0, 0, 0
    flops, capped, of_large, tile = 0.0, 0.0, 0.0, 0.0
    high, wide = whole(shapes, 0), whole(shapes, 1)
    for number in range(count):
        x, y = whole(lefts, number), whole(rights, number)
        if not _is_matrix(x, kind, dtype, item) or not _is_matrix(y, kind, dtype, item):
            return False
        sizes, steps = whole(x, _SIZES), whole(x, _STRIDES)
        m, k = whole(sizes, 0), whole(sizes, 1)
        record = records + 8 * RECORD * number
        put(record, A, whole(x, _DATA))
        put(record, A_ROW, whole(steps, 0))
        put(record, A_COL, item if k == 1 else whole(steps, 1))
        sizes, steps = whole(y, _SIZES), whole(y, _STRIDES)
        n = whole(sizes, 1)
        if whole(sizes, 0) != k or max(m, n, k) > _MOST or m * n > _ELEMENTS or end > _ELEMENTS:
            return False
        put(record, B, whole(y, _DATA))
        put(record, B_ROW, whole(steps, 0))
        put(record, B_COL, item if n == 1 else whole(steps, 1))
        put(record, BIAS, 0)
        put(record, M, m)
        put(record, N, n)
        put(record, K, k)
        put(record, C, end)
        put(record, C_ROW, n * item)
        put(record, C_COL, item)
        put_real(0.0, record + 8 * ALPHA, 1.0)
        put_real(0.0, record + 8 * BETA, 0.0)
        put(record, ENDS, PLAIN)
        end += (m * n * item + _LINE - 1) & -_LINE
        work = 2.0 * m * n * k
        flops += work
        widest = max(widest, m * n)
        if min(m, n, k) >= narrow and work >= large:
            put(record, ENDS, PLAIN | HOME_GAME)
            of_large += work
            many_large += 1
        else:
            capped += min(work, small)
        tile = max(tile, 2.0 * min(m, high) * min(n, wide) * min(k, DEEP))
    put(facts, BYTES, end)
    put(facts, WIDEST, widest)
    put(facts, LARGE, many_large)
    put_real(0.0, facts + 8 * FLOPS, flops)
    put_real(0.0, facts + 8 * CAPPED, capped)
    put_real(0.0, facts + 8 * LARGE_FLOPS, of_large)
    put_real(0.0, facts + 8 * TILE_FLOPS, tile)
    return True


@njit(cache=True)
def data_of(one):
    """Where the elements of an array of NumPy's begin, by its object's address."""
    return whole(one, _DATA)


@helper
def _part_records(record, parts, depth, sums, item, made):
    """Records of a product's parts along k, `depth` steps each, at `made`: C lies in `sums`."""
    m, n, k = whole(record, M), whole(record, N), whole(record, K)
    for part in range(parts):
        one, begin = made + 8 * RECORD * part, part * depth
        for word in range(RECORD):
            put(one, word, whole(record, word))
        put(one, A, whole(record, A) + begin * whole(record, A_COL))
        put(one, B, whole(record, B) + begin * whole(record, B_ROW))
        put(one, C, sums + part * m * n * item)
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


def compile_both():
    """Read and cut, by words."""
    words = types.int64
    read.compile((*[words] * 7, *[types.float64] * 2, *[words] * 3))
    data_of.compile((words,))
    reals = (types.float64,) * 3
    cut.compile((*[words] * 7, *reals, *[words] * 2))
