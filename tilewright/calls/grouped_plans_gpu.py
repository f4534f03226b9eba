"""Finds the plan of two plain lists of tensors again, by how these lie: one scan a list.

    tensors' records -> columns of words (addresses.py) -> a number of them all -> what is kept
    kept     words to compare with, places of the results, a plan for any addresses
    new      the same checks as of any list, on the columns; then kept

What decides about a list, from its dtype to what dispatches, is compared word by word with a list
that was checked once. Addresses are no part of it, only how far they are aligned. All that is not
as plain is left to `grouped_gpu`, whose checks have the words for what is wrong.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

import numpy as np

from tilewright.arrays.addresses import Columns, row_major
from tilewright.arrays.aligned import ALIGNMENT, aligned_offsets
from tilewright.arrays.views import on_gpu
from tilewright.backends.cuda import choose
from tilewright.backends.cuda.machine import addresses, arrays, results
from tilewright.backends.cuda.machine.addresses import Lies
from tilewright.backends.cuda.work import Ints, Work
from tilewright.facts.dtypes import ITEMSIZE
from tilewright.inputs.as_tuple import as_tuple
from tilewright.inputs.devices import gpu
from tilewright.inputs.watched import is_anything_watched
from tilewright.remember import Shelf

_LISTS = (list, tuple)
_ALIGNED = 255  # of an address these bits may matter
_LONG = 1 << 20  # what is longer is left to the checks
_SOMEWHERE = 1 << 40  # where results are thought to lie while a batch is planned
_wants_gradient = attrgetter("requires_grad")


@dataclass(frozen=True, slots=True)
class _Side:
    """One list: where its matrices lie, how far they are aligned, and what their records say.

    `room`: bytes from where each begins to the end of its storage.
    `apart` is the one distance from each matrix to the next, None where distances differ.
    """

    address: Ints
    room: Ints
    low: Ints
    lies: Lies

    @property
    def apart(self) -> int | None:
        steps = np.diff(self.address)
        return int(steps[0]) if len(steps) and (steps == steps[0]).all() else None

    @property
    def decides(self) -> tuple[Ints, Ints]:
        """All of it that a plan looks at."""
        return self.lies.words, self.low


@dataclass(frozen=True, slots=True)
class _Kept:
    """A batch that was planned: what decided, its results' places in bytes, and the plan.

    `reach`: bytes from the first element of each matrix to past its last, of both lists.
    `apart`: of problems of one size, which one call might compute, the distances planned for.
    """

    decided: tuple[Ints, ...]
    reach: tuple[Ints, Ints]
    apart: tuple[int | None, int | None] | None
    places: results.Places
    offsets: Ints
    ordinal: int
    plan: choose.Movable

    def is_for(self, a: _Side, b: _Side) -> bool:
        for known, given in zip(self.decided, (*a.decides, *b.decides), strict=True):
            if known.shape != given.shape or not (known == given).all():
                return False
        if self.apart is not None and self.apart != (a.apart, b.apart):
            return False
        first, second = self.reach
        return not ((a.room < first).any() or (b.room < second).any())

    @property
    def bytes(self) -> int:
        kept = (*self.decided, *self.reach, self.offsets)
        return self.plan.bytes + self.places.bytes + sum(column.nbytes for column in kept)


_drawn: Shelf[int, Ints] = Shelf("numbers that mix lists", most=8 << 20)
_plans: Shelf[tuple[int, int], _Kept] = Shelf("products of lists on GPUs", most=128 << 20)


def products(a: Any, b: Any) -> list[Any] | None:
    """Every a[i] @ b[i], or None where the lists are to be checked like any others."""
    torch = sys.modules.get("torch")
    if torch is None or type(a) not in _LISTS or type(b) not in _LISTS:
        return None
    if is_anything_watched(torch):
        return None
    a, b = as_tuple(a), as_tuple(b)  # held: another thread may change the lists
    if not a or len(a) != len(b) or type(a[0]) is not torch.Tensor or not on_gpu(a[0]):
        return None
    left, right = _side(a, torch), _side(b, torch)
    if left is None or right is None:
        return None
    key = (len(a), _number(left, right))
    kept = _plans.get(key)
    if kept is None:
        kept = _planned(a, left, b, right)
        if kept is None:
            return None
        _plans.keep(key, kept, size=kept.bytes)
    elif not kept.is_for(left, right):
        return None
    made, address = kept.places.made(kept.ordinal)
    if address % ALIGNMENT:  # of no allocator of torch's own
        return None
    count = len(a)
    places = np.zeros(3 * count + 1, np.int64)
    places[:count], places[count : 2 * count] = left.address, right.address
    np.add(kept.offsets, address, out=places[2 * count : -1])
    kept.plan.run(places)
    return made


def _planned(a: tuple[Any, ...], left: _Side, b: tuple[Any, ...], right: _Side) -> _Kept | None:
    """The plan of a batch; None where a check finds something that is to be said in words."""
    if not (left.lies.are_alike and right.lies.are_alike):
        return None
    dtype, (rows, k), (depth, cols) = a[0].dtype, left.lies.sizes, right.lies.sizes
    name = str(dtype).rpartition(".")[2]
    if name not in ITEMSIZE or b[0].dtype != dtype or b[0].device != a[0].device:
        return None
    if not np.array_equal(k, depth) or max(rows.max(), k.max(), cols.max()) > _LONG:
        return None
    item, ordinal = ITEMSIZE[name], arrays.view(a[0], "a[0]").memory.ordinal
    reach = left.lies.reach * item, right.lies.reach * item
    if (left.room < reach[0]).any() or (right.room < reach[1]).any():
        return None
    if ((left.address | right.address) & (item - 1)).any():
        return None
    offsets, total = aligned_offsets(rows, cols, item)
    lie = results.Places(rows, cols, offsets, total, name)
    first, second = (
        Columns(side.address, *side.lies.sizes, *(side.lies.steps * item)) for side in (left, right)
    )
    c = row_major(rows, cols, _SOMEWHERE + offsets * item, item)
    one, none = np.ones(len(a)), np.zeros(len(a))
    work = Work(ordinal=ordinal, a=first, b=second, c=c, alpha=one, beta=none, dtype=name)
    plan = choose.move(work, gpu(ordinal))
    equal = not any((column != column[0]).any() for column in (rows, cols, k))
    apart = (left.apart, right.apart) if equal else None
    decided = (*left.decides, *right.decides)
    return _Kept(decided, reach, apart, lie, offsets * item, ordinal, plan)


def _side(values: tuple[Any, ...], torch: Any) -> _Side | None:
    """A list of tensors that need no gradient, all of which own memory."""
    found = addresses.lies(values)
    if found is None or not found.storage.all():
        return None
    if found.autograd.any() and torch.is_grad_enabled():
        known = np.flatnonzero(found.autograd).tolist()
        if any(map(_wants_gradient, map(values.__getitem__, known))):
            return None
    address = found.offset * values[0].element_size()
    room = found.held - address
    address += found.storage
    low = -address
    low &= address
    low &= _ALIGNED
    return _Side(address, room, low, found)


def _number(left: _Side, right: _Side) -> int:
    """A number that is another for other words, but by chance."""
    count = len(left.address)
    weights = _weights(count)
    lists = (left.lies.words[1:5], left.low, right.lies.words[1:5], right.low)
    mixed = 0
    for column, begin in zip(lists, (0, 4, 5, 9), strict=True):
        at = begin * count
        mixed += int(np.dot(column.reshape(-1), weights[at : at + column.size]))
    return mixed


def _weights(count: int) -> Ints:
    """Odd numbers that mix columns into one; which they are does not matter."""

    def drawn() -> Ints:
        return np.random.default_rng(0).integers(-(2**62), 2**62, 10 * count, np.int64) | 1

    return _drawn.found(count, drawn, lambda numbers: numbers.nbytes)
