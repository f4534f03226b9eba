"""Which row of which expert each token's slots become, in one call from Python.

    experts   1 0 | 2 1 | 0 .      slots of three tokens, two each; . is nobody's
    order     1 4 | 0 3 | 2 | 5    slots in the order of experts, those of nobody last
    places    2 0 | 4 3 | 1 .      the row of each slot
    offsets   2     4     5        where the rows of each expert end

Rows of an expert are counted, counts are summed up to where each expert begins, then every slot
takes its expert's next row. torch's sort, counts, sums and scatter are nine calls for that, which
take 50 us of a layer of a single token where their code has left the caches.
"""

from __future__ import annotations

from llvmlite import ir
from numba import njit, types

from tilewright.backends.host.kernels.atomics import clear
from tilewright.backends.host.kernels.emitted import emitted
from tilewright.backends.host.kernels.helpers import helper
from tilewright.backends.host.kernels.lanes import element, whole


@emitted(types.int64, types.intp, types.intp)
def _get(builder, address, index):
    """The int32 of that number."""
    place = element(builder, address, index, ir.IntType(32))
    return builder.sext(builder.load(place, align=4), ir.IntType(64))


@emitted(types.void, types.intp, types.intp, types.int64)
def _put(builder, address, index, value):
    """The other way."""
    place = element(builder, address, index, ir.IntType(32))
    builder.store(builder.trunc(value, ir.IntType(32)), place, align=4)


@helper
def _expert(experts, is_wide, row, col, token, slot):
    """Of a slot of a token."""
    place = experts + token * row + slot * col
    return whole(place, 0) if is_wide else _get(place, 0)


@njit(nogil=True, cache=True)
def route(experts, is_wide, row, col, tokens, top, groups, offsets, owners, order, places):
    """How many rows there are; or -1 less the number of a slot whose expert is none.

    experts   int64 or, unless `is_wide`, int32; `row` bytes from token to token, `col` from slot to
              slot
    offsets, owners, order, places    int32: [groups], then [tokens top] each. Owners are the tokens
              of rows
    Experts are read once, as another thread may write others between two looks at them.
    """
    clear(offsets, 4 * groups)
    for token in range(tokens):
        for slot in range(top):
            expert = _expert(experts, is_wide, row, col, token, slot)
            if expert < -1 or expert >= groups:
                return -1 - (token * top + slot)
            _put(places, token * top + slot, expert)
            if expert >= 0:
                _put(offsets, expert, _get(offsets, expert) + 1)
    rows = 0
    for expert in range(groups):
        count = _get(offsets, expert)
        _put(offsets, expert, rows)
        rows += count
    last = rows
    for token in range(tokens):
        for slot in range(top):
            number = token * top + slot
            expert = _get(places, number)
            if expert < 0:
                place = last
                last += 1
                _put(places, number, -1)
            else:
                place = _get(offsets, expert)
                _put(offsets, expert, place + 1)
                _put(places, number, place)
            _put(order, place, number)
            _put(owners, place, token)
    return rows


def compile_route():
    """What Python calls."""
    route.compile((types.int64,) * 11)
