"""Panels of B for products in registers: whole rows of vectors copied at once.

B, row by row as it lies          panel, WIDEST vectors a row
...xxxxxxxxxxxxxxxxxx...   -->    |xxxxxxxx|xxxxxx00|
...yyyyyyyyyyyyyyyyyy...          |yyyyyyyy|yyyyyy00|
"""

from __future__ import annotations

from tilewright.backends.host.kernels.conv_product import INT, POINTER, at
from tilewright.backends.host.kernels.grouped_tile import (
    PITCH,
    REGISTER,
    WIDEST,
    repeated,
    typed,
)


@typed("", "iiiii")
def copy_panel(builder, kind, source, row, target, rows, cols):
    """Rows of up to WIDEST vectors to a panel, with zeros behind `cols`.

    Row by row with `copy_row` a panel of 256 took 10 cycles a row and more.
    """
    source, target = (builder.inttoptr(place, POINTER) for place in (source, target))
    vectors = builder.sdiv(builder.add(cols, INT(kind.lanes - 1)), INT(kind.lanes))
    done = builder.append_basic_block("copied")
    jump = builder.switch(vectors, done)
    for wide in range(1, WIDEST + 1):
        block = builder.append_basic_block(f"of{wide}")
        jump.add_case(INT(wide), block)
        builder.position_at_end(block)
        mask = kind.mask(builder, builder.sub(cols, INT((wide - 1) * kind.lanes)))

        def step(index, _, wide=wide, mask=mask):
            here = at(builder, source, builder.mul(index, row))
            there = at(builder, target, builder.mul(index, INT(PITCH)))
            for vector in range(wide):
                last = mask if vector == wide - 1 else None
                value = kind.load(builder, at(builder, here, REGISTER * vector), last)
                kind.store(builder, value, at(builder, there, REGISTER * vector))
            return []

        repeated(builder, INT(0), rows, 1, [], step)
        builder.branch(done)
    builder.position_at_end(done)
