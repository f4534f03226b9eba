"""Lists of NumPy's matrices, read where they lie: a record a product in a pass of machine code.

    tuple     header, length, items
    object    header, whose last word is the type; in words of 8 bytes behind it
              data 0    nd 1    sizes* 2    strides* 3    dtype 5    flags 6
    sizes     rows, columns; strides likewise, in bytes

    read      objects -> records, and what is known of all of them; those that are a BLAS's home
              game are marked. Results that are there must lie apart: their stretches of memory are
              sorted, and each operand's is looked for among them

Asked of each array's attributes in Python that takes 0.8 us a product, as long as a small product
itself; here it is 0.03. The structure is part of NumPy's stable ABI (PyArrayObject_fields);
`arrays/addresses.py` proves it before it is trusted.
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
    C_COL,
    C_ROW,
    CHAIN,
    ENDS,
    PLAIN,
    RECORD,
    A,
    B,
    C,
    K,
    M,
    N,
)
from tilewright.backends.host.kernels.grouped_tile import number
from tilewright.backends.host.kernels.grouped_tile import put as put_real
from tilewright.backends.host.kernels.helpers import helper
from tilewright.backends.host.kernels.lanes import put, whole

_HEADER = object.__basicsize__ // 8
_TYPE, _DATA, _ND, _SIZES, _STRIDES, _DTYPE, _FLAGS = (
    _HEADER + at for at in (-1, 0, 1, 2, 3, 5, 6)
)
_LENGTH, _ITEMS = _HEADER, tuple.__basicsize__ // 8
# NumPy's flags of an array: aligned, writable; one that warns before the first write.
_ASKED, _WRITABLE = 0x80000500, 0x500
# What `read` goes by: addresses of NumPy's type of arrays, of the elements' and of None; a product
# with a side below NARROW is narrow, one of LARGE_FROM operations that is not is large, results of
# ZEROED elements are large for NumPy's `dot`; SMALL and LARGE_FROM are doubles. Where it writes, of
# ROOM products at most: RANGES has two words a product. RULES has doubles, three for each of four
# kinds of calls: seconds that machine code saves a loop of each product and of each operation, and
# what a call takes; plain products first, then such as are ended, then both into results. SHARES,
# a double: the largest tile is more than one of so many.
TOLD = 15
TYPE, DTYPE, NONE, ITEM, NARROW, SMALL, LARGE_FROM, ZEROED = range(8)
SHAPES_AT, RECORDS, FACTS_AT, RANGES, ROOM, RULES, SHARES = range(8, TOLD)
# What `read` finds: bytes of all results; doubles are the operations of all, and of large ones.
BYTES, FLOPS, LARGE_FLOPS = range(3)
FACTS = 3
# What `read` says, bits: products were read; NumPy's `dot` may write every result; machine code
# ends before a loop; the largest tile that cannot be cut along k is more than one of SHARES.
REFUSED, READ, DOTS, LISTED, UNEVEN = 0, 1, 2, 4, 8
HOME_GAME = 8  # a bit of ENDS: the product is large
DEEP = 2 * CHAIN  # steps of k from which on a product may be cut along it, in parts of half as many
# Shapes of tiles, the smallest first: rows, columns, and a double, seconds of an operation.
SHAPE, SHAPES = 3, 3
_MOST, _ELEMENTS, _LINE = 2**31 - 64, 2**42, 64  # of a side; of a result, a BLAS's too


@helper
def _is_array(one, told, sides):
    """Whether an object is an array of NumPy's own type and this dtype, of aligned elements."""
    if whole(one, _TYPE) != whole(told, TYPE) or whole(one, _DTYPE) != whole(told, DTYPE):
        return False
    if whole(one, _ND) & 0xFFFFFFFF != sides:
        return False
    strides = whole(one, _STRIDES)
    lies = whole(one, _DATA) | whole(strides, 0) | whole(strides, sides - 1)
    return lies & (whole(told, ITEM) - 1) == 0


@helper
def _read_pair(x, y, item, record):
    """What a record has of two operands; whether they fit each other."""
    sizes, steps = whole(x, _SIZES), whole(x, _STRIDES)
    m, k = whole(sizes, 0), whole(sizes, 1)
    put(record, A, whole(x, _DATA))
    put(record, A_ROW, whole(steps, 0))
    put(record, A_COL, item if k == 1 else whole(steps, 1))
    sizes, steps = whole(y, _SIZES), whole(y, _STRIDES)
    n = whole(sizes, 1)
    put(record, B, whole(y, _DATA))
    put(record, B_ROW, whole(steps, 0))
    put(record, B_COL, item if n == 1 else whole(steps, 1))
    put(record, M, m)
    put(record, N, n)
    put(record, K, k)
    put_real(0.0, record + 8 * ALPHA, 1.0)
    put_real(0.0, record + 8 * BETA, 0.0)
    return whole(sizes, 0) == k and max(m, n, k) <= _MOST and m * n <= _ELEMENTS


@helper
def _is_apart(rows, cols, row, col):
    """Whether no two elements of a matrix share a place: one step passes the other's reach. Where
    neither does they may still lie apart, which is asked elsewhere."""
    row, col = abs(row), abs(col)
    if rows == 0 or cols == 0:
        return True
    if (rows > 1 and row == 0) or (cols > 1 and col == 0):
        return False
    return rows == 1 or cols == 1 or row > col * (cols - 1) or col > row * (rows - 1)


@helper
def _read_result(z, told, record):
    """Where a product's result lies; whether it may be written there."""
    item, sizes, steps = whole(told, ITEM), whole(z, _SIZES), whole(z, _STRIDES)
    m, n = whole(record, M), whole(record, N)
    if whole(sizes, 0) != m or whole(sizes, 1) != n or whole(z, _FLAGS) & _ASKED != _WRITABLE:
        return False
    row, col = whole(steps, 0), whole(steps, 1)
    put(record, C, whole(z, _DATA))
    put(record, C_ROW, row)
    put(record, C_COL, item if n == 1 else col)
    return _is_apart(m, n, row, col)


@helper
def _low_of(place, rows, row, cols, col):
    """Where the first byte of a matrix lies."""
    return place + min((rows - 1) * row, 0) + min((cols - 1) * col, 0)


@helper
def _past(place, rows, row, cols, col, item):
    """Where the first byte behind a matrix lies."""
    return place + max((rows - 1) * row, 0) + max((cols - 1) * col, 0) + item


@helper
def _sort(ranges, count):
    """Pairs of words by the first (D. L. Shell, 1959): most lists are nearly in order."""
    gap = 1
    while gap < count // 3:
        gap = 3 * gap + 1
    while gap > 0:
        for first in range(gap, count):
            low, high = whole(ranges, 2 * first), whole(ranges, 2 * first + 1)
            at = first
            while at >= gap and whole(ranges, 2 * (at - gap)) > low:
                put(ranges, 2 * at, whole(ranges, 2 * (at - gap)))
                put(ranges, 2 * at + 1, whole(ranges, 2 * (at - gap) + 1))
                at -= gap
            put(ranges, 2 * at, low)
            put(ranges, 2 * at + 1, high)
        gap //= 3


@helper
def _meets(ranges, count, low, high):
    """Whether a stretch of memory meets one of those, which are sorted and lie apart."""
    if low >= high or low >= whole(ranges, 2 * count - 1) or high <= whole(ranges, 0):
        return False
    at, many = 0, count  # the last that begins before `high`
    while many > 1:
        half = many // 2
        at = at + half if whole(ranges, 2 * (at + half)) < high else at
        many -= half
    return whole(ranges, 2 * at) < high and whole(ranges, 2 * at + 1) > low


@helper
def _are_apart(records, count, item, ranges):
    """Whether results lie apart from each other and from all operands, each from its first to its
    last element. `ranges` has room for two words a product."""
    many = 0
    for one in range(count):
        record = records + 8 * RECORD * one
        m, n = whole(record, M), whole(record, N)
        if m > 0 and n > 0:
            c, row, col = whole(record, C), whole(record, C_ROW), whole(record, C_COL)
            put(ranges, 2 * many, _low_of(c, m, row, n, col))
            put(ranges, 2 * many + 1, _past(c, m, row, n, col, item))
            many += 1
    if many == 0:
        return True
    _sort(ranges, many)
    for one in range(1, many):
        if whole(ranges, 2 * one) < whole(ranges, 2 * one - 1):
            return False
    for one in range(count):
        record = records + 8 * RECORD * one
        m, n, k = whole(record, M), whole(record, N), whole(record, K)
        a, row, col = whole(record, A), whole(record, A_ROW), whole(record, A_COL)
        low, high = _low_of(a, m, row, k, col), _past(a, m, row, k, col, item)
        if m > 0 and k > 0 and _meets(ranges, many, low, high):
            return False
        b, row, col = whole(record, B), whole(record, B_ROW), whole(record, B_COL)
        low, high = _low_of(b, k, row, n, col), _past(b, k, row, n, col, item)
        if k > 0 and n > 0 and _meets(ranges, many, low, high):
            return False
        bias = whole(record, BIAS)
        if bias and _meets(ranges, many, bias, bias + n * item):
            return False
    return True


@helper
def _read_bias(one, told, record):
    """The bias of a product, or that it has none; whether it is a vector that fits."""
    put(record, BIAS, 0)
    if one == whole(told, NONE):
        return True
    if not _is_array(one, told, 1):
        return False
    n, item = whole(record, N), whole(told, ITEM)
    put(record, BIAS, whole(one, _DATA))
    return whole(whole(one, _SIZES), 0) == n and (n <= 1 or whole(whole(one, _STRIDES), 0) == item)


@helper
def _count_of(lists, told):
    """How many products these tuples are for, of one length each; 0 where they are not."""
    count = whole(whole(lists, _ITEMS), _LENGTH)
    for at in range(1, 4):
        part = whole(lists, _ITEMS + at)
        is_there = at == 1 or part != whole(told, NONE)
        if is_there and whole(part, _LENGTH) != count:
            return 0
    return 0 if count > whole(told, ROOM) else count


@helper
def _is_listed(told, count, capped, into, ended):
    """Whether machine code ends before a loop of so many products that are not large; of each at
    most SMALL operations count."""
    rule = whole(told, RULES) + 24 * (2 * into + ended)
    gain = number(0.0, rule) * count + number(0.0, rule + 8) * capped
    return gain > number(0.0, rule + 16)


@njit(cache=True)
def read(lists, ends, told):
    """Whether these are products of plain matrices, and what is known of all; then their records
    and facts are written.

    lists   address of a tuple of tuples, which somebody holds: left and right operands, then
            results and biases, or None where there are none
    ends    what ends each product: bits of ENDS, or 0
    told    TOLD words

    C counts from where the results begin where they are not there yet. The interpreter's lock is
    held: no other thread gives an array another shape meanwhile.
    """
    count = _count_of(lists, told)
    if count == 0:
        return REFUSED
    lefts, rights = whole(lists, _ITEMS) + 8 * _ITEMS, whole(lists, _ITEMS + 1) + 8 * _ITEMS
    results, biases = whole(lists, _ITEMS + 2), whole(lists, _ITEMS + 3)
    results = 0 if results == whole(told, NONE) else results + 8 * _ITEMS
    biases = 0 if biases == whole(told, NONE) else biases + 8 * _ITEMS
    item, narrow, zeroed = whole(told, ITEM), whole(told, NARROW), whole(told, ZEROED)
    small, large = number(0.0, told + 8 * SMALL), number(0.0, told + 8 * LARGE_FROM)
    records, facts = whole(told, RECORDS), whole(told, FACTS_AT)
    high, wide = whole(whole(told, SHAPES_AT), 0), whole(whole(told, SHAPES_AT), 1)
    end, widest, many_large, dots = 0, 0, 0, True
    flops, capped, of_large, tile = 0.0, 0.0, 0.0, 0.0
    for one in range(count):
        x, y = whole(lefts, one), whole(rights, one)
        if not _is_array(x, told, 2) or not _is_array(y, told, 2):
            return REFUSED
        record = records + 8 * RECORD * one
        if not _read_pair(x, y, item, record) or end > _ELEMENTS:
            return REFUSED
        m, n, k = whole(record, M), whole(record, N), whole(record, K)
        put(record, BIAS, 0)
        if biases and not _read_bias(whole(biases, one), told, record):
            return REFUSED
        if results:
            z = whole(results, one)
            if not _is_array(z, told, 2) or not _read_result(z, told, record):
                return REFUSED
            dots = dots and whole(z, _FLAGS) & 1 == 1  # elements follow each other by rows
        else:
            put(record, C, end)
            put(record, C_ROW, n * item)
            put(record, C_COL, item)
        plain = ends == 0 and whole(record, BIAS) == 0 and whole(record, C_COL) == item
        mark = PLAIN if plain else ends
        end += (m * n * item + _LINE - 1) & -_LINE
        work = 2.0 * m * n * k
        flops += work
        widest = max(widest, m * n)
        if min(m, n, k) >= narrow and work >= large:
            mark |= HOME_GAME
            of_large += work
            many_large += 1
        else:
            capped += min(work, small)
        put(record, ENDS, mark)
        tile = max(tile, 2.0 * min(m, high) * min(n, wide) * min(k, DEEP))
    if results and not _are_apart(records, count, item, whole(told, RANGES)):
        return REFUSED
    put(facts, BYTES, end)
    put_real(0.0, facts + 8 * FLOPS, flops)
    put_real(0.0, facts + 8 * LARGE_FLOPS, of_large)
    said = READ | (DOTS if dots and widest < zeroed else 0)
    ended = 1 if ends or biases else 0
    if _is_listed(told, count - many_large, capped, 1 if results else 0, ended):
        said |= LISTED
    if tile * number(0.0, told + 8 * SHARES) > flops:
        said |= UNEVEN
    return said


@njit(cache=True)
def data_of(one):
    """Where the elements of an array of NumPy's begin, by its object's address."""
    return whole(one, _DATA)


def compile_read():
    """By words."""
    word = types.int64
    read.compile((word, word, word))
    data_of.compile((word,))
