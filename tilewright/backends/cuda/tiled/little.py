"""Plans batches of little work in one pass: one tile shape for all, in the order given, none cut.

    sizes -> tiles of each depth, a shape at a time -> the shape        no column is kept
    table    record | record | ... | tile | tile | ...                  written once, where it stays

A list of a thousand small products is done on the device long before the host has looked for the
best plan, so the host looks for none. The general way (engine.py) makes a layout, then columns,
then tables of them and then one table: 1.6 ms for such a list, most of it on memory never touched
before.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tilewright.arrays.record import WORDS
from tilewright.backends.cuda.machine.placing import Template, Which
from tilewright.backends.cuda.machine.tables import fill_records
from tilewright.backends.cuda.tile_seconds import TileShape
from tilewright.backends.cuda.tiled.layouts import Group, kinds
from tilewright.backends.cuda.work import Ints, Work
from tilewright.planning.buckets import Tile
from tilewright.planning.makespan import Slots
from tilewright.planning.single import Single, single

_DEEPEST = 1 << 16  # a longer k is left to the general way, which may cut it


def little(work: Work, tiles: tuple[Tile, ...], slots: Slots) -> Single | None:
    """The single shape that may end such a batch within `work.enough` seconds; None without one."""
    if work.enough <= slots.launch:  # as of a single product: no launch ends so soon
        return None
    if work.order != "given" or work.k.max() > _DEEPEST:
        return None
    found = single(work.m, work.n, work.k, tiles, slots)
    found = replace(found, seconds=found.seconds + slots.launch)
    return found if found.seconds <= work.enough else None


def laid_out(
    work: Work, code: Ints, plan: Single, shape: TileShape
) -> tuple[Template, list[Group]]:
    """The table, records first, and the launches: one for problems that lie alike.

    `code` says how they lie (layouts.codes).
    """
    count = len(work.m)
    every, same = np.arange(count, dtype=np.int32), np.full(count, plan.shape)
    order, groups = kinds(work, code, every, same, np.zeros(count, np.bool_))
    problem = every if order is None else every[order]
    counts = (plan.down * plan.across)[problem]
    ends = np.cumsum(counts)
    total = int(ends[-1])
    words = np.zeros(WORDS * count + 2 * total, np.int64)
    lacking = _filled(work, words[: WORDS * count].reshape(count, WORDS))
    entry = words[WORDS * count :].view(np.int32).reshape(total, 4)
    entry[:, 0] = np.repeat(problem, counts)
    place = np.arange(total, dtype=np.int32)
    place -= np.repeat((ends - counts).astype(np.int32), counts)
    across = np.repeat(plan.across.astype(np.int32)[problem], counts)
    # Exact: half a tile lies further from the next row than float64 rounds. np.divmod is slower.
    row = ((place + 0.5) / across).astype(np.int32)
    np.multiply(row, shape.m, out=entry[:, 1])
    np.multiply(place - row * across, shape.n, out=entry[:, 2])
    return Template(words, lacking, 0), [_of_tiles(group, ends) for group in groups]


def _filled(work: Work, table: Ints) -> tuple[tuple[Which, Which], ...]:
    """Write the records but for their addresses; which words those are, and their places."""
    count = len(table)
    fill_records(work, table)
    table[:, :4] = 0
    columns = [(place, slice(place * count, place * count + count)) for place in range(3)]
    lacking: list[tuple[Which, Which]] = [
        (slice(word, WORDS * count, WORDS), places) for word, places in columns
    ]
    if work.bias is not None:
        some = np.flatnonzero(work.bias.address)
        lacking.append((WORDS * some + 3, some + 3 * count))
    return tuple(lacking)


def _of_tiles(group: Group, ends: Ints) -> Group:
    """A launch by its tiles that was told by its problems; `ends` are those of problems' tiles."""
    first, last = group.first, group.first + group.count
    begin = int(ends[first - 1]) if first else 0
    return replace(group, first=begin, count=int(ends[last - 1]) - begin)
