"""Products of groups of rows (or of k): planned and multiplied in one call from Python.

    offsets  3 | 3 | 7          read and checked; a record a group, as `grouped.py` has them
    queue    tile tile tile     every group's C cut into tiles of one shape, the shape of which
                                all threads are predicted to end first
    tasks    [tile][tile tile]  of about the same time; a thread takes the next when it is done

What one call cannot change (sizes, strides, what is compiled) stands in a `job`, int64 words that
are made once; addresses and the number of rows are arguments. So a call costs a microsecond beside
its products, where torch's loop takes six a group. Threads are the OpenMP pool that torch's own
products run on, where there is one: nobody waits for a core that another pool's threads spin on.
"""

from __future__ import annotations

from functools import cache

import numpy as np
from llvmlite import ir
from numba import cfunc, njit, types

from tilewright.backends.host.kernels.atomics import clear, tell
from tilewright.backends.host.kernels.atomics import take as taken
from tilewright.backends.host.kernels.emitted import emitted
from tilewright.backends.host.kernels.grouped import (
    A_COL,
    A_ROW,
    B_COL,
    B_ROW,
    BIAS,
    C_ROW,
    CHAIN,
    RECORD,
    TILE,
    A,
    B,
    C,
    K,
    M,
    N,
    even,
    run_tile,
)
from tilewright.backends.host.kernels.grouped_ends import finish
from tilewright.backends.host.kernels.grouped_narrow import run_tile as run_narrow_tile
from tilewright.backends.host.kernels.grouped_narrow_tile import PAIRS
from tilewright.backends.host.kernels.grouped_tile import (
    PITCH,
    REGISTER,
    ROWS,
    WIDEST,
    multiply_at,
)
from tilewright.backends.host.kernels.grouped_tile import put as put_real
from tilewright.backends.host.kernels.halves_tile import BFLOAT16, FLOAT16, narrow, widen
from tilewright.backends.host.kernels.helpers import helper
from tilewright.backends.host.kernels.lanes import element, put, whole
from tilewright.backends.host.kernels.turned_tile import turn

# Words of a job. Steps: bytes for each row (or of k) before a group, and for each group before it.
GROUPS, FIRST, WIDE_OFFSETS, ITEM, ROWS_OF, CLEAR = range(6)  # ROWS_OF: rows are ragged, else k
N_OF, A_STEP, A_GROUP, B_STEP, B_GROUP, C_STEP, C_GROUP, BIAS_GROUP = range(6, 14)
RECORDS, QUEUE, CUTS, ROOM, COUNTERS, SCRATCH, SCRATCH_PITCH = range(14, 21)
MULTIPLY, WORK, POOL, TASKS, SHAPES = range(21, 26)
MOST_SHAPES = 3
WORDS = SHAPES + 2 * MOST_SHAPES
# float64 words behind those: of a model of seconds.
OVERHEAD, RATE, MOVE, TASK, WAKE = range(WORDS, WORDS + 5)
THEIRS, THEIR_RATE, THEIR_MOVE, THEIR_ROW_MOVE, SHARE = range(WORDS + 5, WORDS + 10)
SIZE = WORDS + 10 + MOST_SHAPES
# What a call asks: whether another way is faster; nothing; or that alone, and nothing is written.
ASKS, MUST, LOOKS = range(3)
DONE, THEIRS_IS_FASTER, WRONG, POSTED, OURS_IS_FASTER, THEIRS_IS_WHOLE = 0, -1, -2, -3, -4, -5
_HALF_ROWS, _HALF_COLUMNS = 72, 128  # the largest tile of elements of 16 bits
_GAP = 64
_LENGTH, _OBJECTS = object.__basicsize__ // 8, tuple.__basicsize__  # of a tuple: a word, bytes


def scratch():
    """Bytes of a thread's own for elements of 16 bits: sums, a panel of B, A, a tile of C."""
    tile = _HALF_ROWS * _HALF_COLUMNS * 4
    return (ROWS + CHAIN) * PITCH + _HALF_ROWS * (CHAIN * 4 + _GAP) + tile


@emitted(types.void, types.intp, types.intp, types.intp, types.intp)
def _fork(builder, pool, work, job, threads):
    """Run `work(job)` on so many threads of the pool whose `GOMP_parallel` lies at `pool`."""
    byte, i32, i64 = ir.IntType(8).as_pointer(), ir.IntType(32), ir.IntType(64)
    kind = ir.FunctionType(ir.VoidType(), (i64, byte, i32, i32))
    function = builder.inttoptr(pool, kind.as_pointer())
    count = builder.trunc(threads, i32)
    builder.call(function, [work, builder.inttoptr(job, byte), count, i32(0)])


@emitted(types.void, types.intp, types.intp)
def _call(builder, work, job):
    """`work(job)`, by the address of its machine code."""
    kind = ir.FunctionType(ir.VoidType(), (ir.IntType(64),))
    builder.call(builder.inttoptr(work, kind.as_pointer()), [job])


@emitted(types.int64, types.intp, types.intp)
def _int32(builder, address, index):
    """The int32 of that number."""
    place = builder.inttoptr(address, ir.IntType(32).as_pointer())
    return builder.sext(builder.load(builder.gep(place, [index]), align=4), ir.IntType(64))


@emitted(types.float64, types.intp, types.intp)
def _real(builder, address, index):
    """The float64 of that number."""
    return builder.load(element(builder, address, index, ir.DoubleType()))


@helper
def _end(job, offsets, index):
    """An offset."""
    return whole(offsets, index) if whole(job, WIDE_OFFSETS) else _int32(offsets, index)


@helper
def _recorded(job, a, b, offsets, bias, c, t):
    """Write every group's record. Returns the first and the last offset, or -1, -1."""
    groups, first, records = whole(job, GROUPS), whole(job, FIRST), whole(job, RECORDS)
    begin = _end(job, offsets, 0) if first else 0
    beginning = begin
    if begin < 0:
        return -1, -1
    for group in range(groups):
        end = _end(job, offsets, group + first)
        if end < begin or end > t:
            return -1, -1
        record = records + 8 * RECORD * group
        put(record, A, a + begin * whole(job, A_STEP) + group * whole(job, A_GROUP))
        put(record, B, b + begin * whole(job, B_STEP) + group * whole(job, B_GROUP))
        put(record, C, c + begin * whole(job, C_STEP) + group * whole(job, C_GROUP))
        if bias:
            put(record, BIAS, bias + group * whole(job, BIAS_GROUP))
        put(record, M if whole(job, ROWS_OF) else K, end - begin)
        begin = end
    return beginning, begin


@helper
def _seconds(job, m, n, k, share):
    """Of a tile: registers in whole rows and vectors, and B read through the caches."""
    item = whole(job, ITEM)
    lanes = REGISTER // max(item, 4)
    work = 2.0 * (-(-m // 4) * 4) * (-(-n // lanes) * lanes) * k / (_real(job, RATE) * share)
    return _real(job, OVERHEAD) + work + k * n * item / _real(job, MOVE)


@helper
def _of_shape(job, shape, threads):
    """Seconds until all threads are done with tiles of a shape, how many tiles those are, and the
    seconds of one thread."""
    high, wide = whole(job, SHAPES + 2 * shape), whole(job, SHAPES + 2 * shape + 1)
    share = _real(job, SHARE + shape)
    groups, records = whole(job, GROUPS), whole(job, RECORDS)
    total, longest, tiles = 0.0, 0.0, 0
    for group in range(groups):
        record = records + 8 * RECORD * group
        m, n, k = whole(record, M), whole(record, N), whole(record, K)
        if m == 0 or n == 0:
            continue
        rows, columns = even(m, high, ROWS), even(n, wide, 32)
        down, across = -(-m // rows), -(-n // columns)
        one = _seconds(job, min(rows, m), min(columns, n), k, share)
        # The last row and column of tiles are smaller: their seconds go with what they hold.
        part = (m / (down * min(rows, m))) * (n / (across * min(columns, n)))
        total += down * across * one * part
        longest = max(longest, one)
        tiles += down * across
    rounds = -(-tiles // threads)  # of tiles of the mean size: three on two threads are two
    return max(total / threads, longest, rounds * total / max(1, tiles)), tiles, total


@helper
def _chosen(job, threads):
    """The shape of tiles whose threads are done first, their seconds, how many tiles there are, and
    the seconds of one thread."""
    chosen, tiles = 0, 0
    best, alone = 1e30, 0.0
    for shape in range(MOST_SHAPES):
        found, count, total = _of_shape(job, shape, threads)
        if found < best:
            chosen, best, tiles, alone = shape, found, count, total
    return chosen, best, tiles, alone


@helper
def _theirs(job, threads):
    """Seconds of the loop of a BLAS, which all threads share product by product."""
    groups, records = whole(job, GROUPS), whole(job, RECORDS)
    total, count = 0.0, 0
    for group in range(groups):
        record = records + 8 * RECORD * group
        m, n, k = whole(record, M), whole(record, N), whole(record, K)
        if m:
            total += 2.0 * m * n * k / _real(job, THEIR_RATE)
            move = _real(job, THEIR_MOVE if m > 1 else THEIR_ROW_MOVE)
            total += k * n * whole(job, ITEM) / move
            count += 1
    return total / threads + count * _real(job, THEIRS)


@helper
def _queued(job, shape, tasks, total):
    """Write tiles and tasks of about the same time."""
    high, wide = whole(job, SHAPES + 2 * shape), whole(job, SHAPES + 2 * shape + 1)
    share = _real(job, SHARE + shape)
    groups, records, cuts = whole(job, GROUPS), whole(job, RECORDS), whole(job, CUTS)
    entry, tile, task, seconds = whole(job, QUEUE), 0, 1, 0.0
    put(cuts, 0, 0)
    for group in range(groups):
        record = records + 8 * RECORD * group
        m, n, k = whole(record, M), whole(record, N), whole(record, K)
        if m == 0 or n == 0:
            continue
        rows, columns = even(m, high, ROWS), even(n, wide, 32)
        for col in range(0, n, columns):
            for row in range(0, m, rows):
                put(entry, 0, record)
                put(entry, 1, row)
                put(entry, 2, col)
                put(entry, 3, min(rows, m - row))
                put(entry, 4, min(columns, n - col))
                entry += 8 * TILE
                tile += 1
                if tasks > 1:
                    seconds += _seconds(job, min(rows, m - row), min(columns, n - col), k, share)
                    if seconds * tasks >= total * task and task < tasks:
                        put(cuts, task, tile)
                        task += 1
    if whole(cuts, task - 1) < tile:
        put(cuts, task, tile)
        task += 1
    put(job, TASKS, task - 1)


@helper
def _cleared(job, out, t, first, last):
    """Zeros into the rows that no group has."""
    row, size = whole(job, C_STEP), whole(job, N_OF) * whole(job, ITEM)
    for at in range(first):
        clear(out + at * row, size)
    for at in range(last, t):
        clear(out + at * row, size)


@helper
def _hold(tensors, count, begins, item, wide):
    """What `are_within` says, of so many objects' addresses from `tensors` on."""
    for number in range(count):
        record = whole(whole(tensors, number), 2)
        last, is_empty = whole(record, begins + 11), False
        for axis in range(whole(record, begins)):
            size = whole(record, begins + 1 + axis)
            is_empty |= size == 0
            last += (size - 1) * whole(record, begins + 6 + axis)
        each = item if number != 2 else 8 if wide else 4
        if not is_empty and (last + 1) * each > whole(whole(record, 2), 6):
            return False
    return True


@njit(cache=True)
def are_within(given, how):
    """Whether the elements of torch's tensors x, w, offsets (and a bias) lie in their storages.

    given   the address of a tuple of them
    how     what `asked` makes: each word more would take Numba 0.04 us to unpack
    """
    count, tensors = whole(given, _LENGTH), given + _OBJECTS
    return _hold(tensors, count, how >> 16, (how >> 8) & 255, how & 1)


def asked(begins, item, wide):
    """In a word: the word of a tensor's record where its dimensions stand (machine/addresses.py),
    bytes of an element but of the offsets, and whether these are int64 or else int32."""
    return begins << 16 | item << 8 | wide


@njit(cache=True)
def are_whole(tensors, begins, item, along, groups, needs_all):
    """Whether x, w and int32 offsets do, and these ends of groups neither decrease nor begin below
    0, nor run past what x has along that dimension, nor (`needs_all`) leave some of it out."""
    if not _hold(tensors, 3, begins, item, False):
        return False
    t = whole(whole(whole(tensors, 0), 2), begins + 1 + along)
    offsets = whole(whole(tensors, 2), 2)
    ends = whole(whole(offsets, 2), 2) + 4 * whole(offsets, begins + 11)
    begin = 0
    for group in range(groups):
        end = _int32(ends, group)
        if end < begin or end > t:
            return False
        begin = end
    return begin == t or not needs_all


@njit(cache=True)
def weigh(job, offsets, t, threads, facts):
    """Whether offsets are right; then what `run` would find by them: which shape of tiles, how many
    there are (words), seconds of all threads, of one, and of the other way (float64)."""
    first, _ = _recorded(job, 0, 0, offsets, 0, 0, t)
    if first < 0:
        return False
    chosen, best, tiles, alone = _chosen(job, threads)
    put(facts, 0, chosen)
    put(facts, 1, tiles)
    put_real(0.0, facts + 16, best + _real(job, WAKE))
    put_real(0.0, facts + 24, alone)
    put_real(0.0, facts + 32, _theirs(job, threads))
    return True


@njit(nogil=True, cache=True)
def run(job, own, a, b, offsets, bias, c, t, threads, asks):
    """The products of groups at these addresses.

    own       memory of this thread and of those that help it, `SCRATCH_PITCH` bytes each
    t         rows (or steps of k) there are
    asks      ASKS, MUST or LOOKS
    Returns DONE; POSTED, where there is no pool: tasks wait for `work`; or with nothing written
    WRONG (offsets), OURS_IS_FASTER, THEIRS_IS_FASTER, THEIRS_IS_WHOLE (faster, and every row has a
    group), or how many tiles there must be room for.
    """
    first, last = _recorded(job, a, b, offsets, bias, c, t)
    if first < 0:
        return WRONG
    chosen, best, tiles, alone = _chosen(job, threads)
    if tiles > whole(job, ROOM):
        return tiles
    together = best + _real(job, WAKE)
    if asks != MUST and _theirs(job, threads) < min(alone, together):
        return THEIRS_IS_FASTER if whole(job, CLEAR) and last < t else THEIRS_IS_WHOLE
    if asks == LOOKS:
        return OURS_IS_FASTER
    if alone <= together:
        threads = 1
    if whole(job, CLEAR):
        _cleared(job, c, t, first, last)
    if not tiles:
        return DONE
    tasks = 1 if threads == 1 else max(1, min(tiles, int(alone / _real(job, TASK))))
    _queued(job, chosen, tasks, alone)
    put(job, SCRATCH, own)
    counters = whole(job, COUNTERS)
    tell(counters, 0)
    tell(counters + 64, 0)
    if threads == 1:
        _call(whole(job, WORK), job)
    elif whole(job, POOL):
        _fork(whole(job, POOL), whole(job, WORK), job, threads)
    else:
        return POSTED
    return DONE


@njit(nogil=True, cache=True)
def work(job):
    """One thread's part of what was posted."""
    _call(whole(job, WORK), job)


@helper
def _widened(zero, source, row, col, rows, cols, target, pitch):
    """[rows][cols] elements of 16 bits however they lie, to rows of float32."""
    lanes = REGISTER // 4
    if row == 2 and col != 2 and rows >= lanes:
        for r in range(0, rows, lanes):
            first = min(r, rows - lanes)
            for c in range(0, cols, lanes):
                here, there = source + first * row + c * col, target + first * pitch + c * 4
                turn(zero, here, col, there, pitch, min(lanes, cols - c))
    else:
        for r in range(rows):
            widen(zero, source + r * row, col, target + r * pitch, cols)


@helper
def _half_tile(zero, item, code, entry, following, scratch):
    """One tile of elements of 16 bits: operands made wider on their way, sums of float32."""
    single = np.float32(1)
    columns = REGISTER * WIDEST // 4
    sums = scratch
    panel = sums + ROWS * PITCH
    wider, gap = panel + CHAIN * PITCH, CHAIN * 4 + _GAP
    tile, line = wider + _HALF_ROWS * gap, 4 * _HALF_COLUMNS
    record, row, col = whole(entry, 0), whole(entry, 1), whole(entry, 2)
    rows, cols, depth = whole(entry, 3), whole(entry, 4), whole(record, K)
    a_row, a_col = whole(record, A_ROW), whole(record, A_COL)
    b_row, b_col = whole(record, B_ROW), whole(record, B_COL)
    a, b = whole(record, A) + row * a_row, whole(record, B) + col * b_col
    begin = 0
    while True:
        steps = min(CHAIN, depth - begin)
        _widened(zero, a + begin * a_col, a_row, a_col, rows, steps, wider, gap)
        for j in range(0, cols, columns):
            wide = min(columns, cols - j)
            vectors = -(-wide // (REGISTER // 4))
            here = b + begin * b_row + j * b_col
            _widened(zero, here, b_row, b_col, steps, wide, panel, PITCH)
            i = 0
            while i < rows:
                left = rows - i
                high = min(left, ROWS)
                if ROWS < left < 2 * ROWS:
                    high = (left + 1) // 2
                place = tile + i * line + j * 4
                to, by = (sums, PITCH) if begin else (place, line)
                multiply_at(
                    *(code, high, vectors, wider + i * gap, gap, 4, panel, PITCH, to, by, steps),
                    *(REGISTER // 4, 0, 0, 1, high * gap, sums, sums),
                )
                if begin:
                    for r in range(high):
                        finish(
                            single, sums + r * PITCH, place + r * line, wide, single, single, 0, 0
                        )
                i += high
        begin += steps
        if begin >= depth:
            break
    c, bias = whole(record, C) + row * whole(record, C_ROW) + 2 * col, whole(record, BIAS)
    shift = bias + 2 * col if bias else 0
    for r in range(rows):
        narrow(zero, tile + r * line, c + r * whole(record, C_ROW), cols, shift)


@helper
def _pair_tile(zero, item, code, entry, following, scratch):
    """One tile where the processor multiplies pairs of bfloat16 itself."""
    run_narrow_tile(zero, item, code, 0, entry, following, scratch)


def _working(tile):
    """What a thread does whose tiles are `tile`'s: tasks until none is left."""

    @helper
    def worked(zero, item, job):
        counters, cuts, queue = whole(job, COUNTERS), whole(job, CUTS), whole(job, QUEUE)
        own = whole(job, SCRATCH) + taken(counters, 1) * whole(job, SCRATCH_PITCH)
        tasks, code = whole(job, TASKS), whole(job, MULTIPLY)
        tiles = whole(cuts, tasks)
        while True:
            task = taken(counters + 64, 1)
            if task >= tasks:
                break
            for number in range(whole(cuts, task), whole(cuts, task + 1)):
                entry = queue + 8 * TILE * number
                following = entry + 8 * TILE if number + 1 < tiles else 0
                tile(zero, item, code, entry, following, own)

    return worked


_worked, _worked_on_halves, _worked_on_pairs = map(_working, (run_tile, _half_tile, _pair_tile))


def _single(job):
    _worked(np.float32(0), 4, job)


def _double(job):
    _worked(0.0, 8, job)


def _bfloat16(job):
    _worked_on_halves(BFLOAT16, 2, job)


def _pairs(job):
    _worked_on_pairs(BFLOAT16, 2, job)


def _float16(job):
    _worked_on_halves(FLOAT16, 2, job)


_WORKS = {
    "float32": _single,
    "float64": _double,
    "bfloat16": _pairs if PAIRS else _bfloat16,
    "float16": _float16,
}


@cache
def code_of(dtype):
    """What one thread does, as machine code; its `address` is where."""
    return cfunc(types.void(types.intp), cache=True)(_WORKS[dtype])


def compile_run():
    """What Python calls."""
    run.compile((types.int64,) * 10)
    are_within.compile((types.int64,) * 2)
    are_whole.compile((types.int64,) * 6)
    work.compile((types.int64,))
