"""Sorts the problems of a batch by how their matrices lie: tiles that lie alike share a launch.

A launch compiles in which steps are 1 and whether loads of 16 bytes are right (grouped.py).
Problems that lie alike share one; a batch that mixes many layouts would need many launches, so all
but the one with most work then run the kernel that assumes nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tilewright.arrays.addresses import Columns
from tilewright.backends.cuda.work import Ints, Work
from tilewright.facts.dtypes import ITEMSIZE, PARTS

_MOST_KINDS = 2
_WIDE = 27
_ANY = 2 + 3 * 2 + 9 * 2  # the code of steps that are never 1, loads of one element
_NEAR = 2**31
_CODES, _SHAPES = 64, 16  # more than there are


@dataclass(frozen=True, slots=True)
class Group:
    """One launch: tiles first .. first + count of the list, of one shape and one layout."""

    shape: int
    first: int
    count: int
    a_along: int
    b_along: int
    c_along: int
    wide: int
    near: bool
    parts: bool


def kinds(
    work: Work,
    code: Ints,
    problem: npt.NDArray[np.int32],
    shape: Ints,
    cut: npt.NDArray[np.bool_],
) -> tuple[Ints | None, list[Group]]:
    """The order in which tiles of one launch stand together, None as they are, and the launches.

    `problem` is a column over all tiles; `code` of `codes`, `shape` and `cut` are columns over the
    problems. Parts of cut products come first, so that their second phase need not wait for the
    rest.
    """
    if not len(problem):
        return None, []
    code = code.copy()
    _few(code, _weight(work))
    # Scratch is row-major whatever C is.
    code[cut] -= code[cut] // 9 % 3 * 9
    key = ((~cut * _SHAPES + shape) * _CODES + code).astype(np.int16)
    order, starts, stops = None, [0], [len(problem)]
    if (key[problem[0]] != key).any():
        each = key[problem]
        order = np.argsort(each, kind="stable")
        changes = np.flatnonzero(np.diff(each[order])) + 1
        starts, stops = [0, *changes.tolist()], [*changes.tolist(), len(problem)]
    near = is_near(work)
    groups = []
    for start, stop in zip(starts, stops, strict=True):
        kind = int(key[problem[start if order is None else order[start]]])
        steps = kind % _CODES
        wide = 16 // ITEMSIZE[work.dtype] if steps >= _WIDE else 1
        along = (steps % 3, steps // 3 % 3, steps // 9 % 3)
        parts, number = kind < _CODES * _SHAPES, kind // _CODES % _SHAPES
        groups.append(Group(number, start, stop - start, *along, wide, near, parts))
    return order, groups


def is_mostly_wide(work: Work, code: Ints) -> bool:
    """Whether the layout with most work allows loads of 16 bytes; `code` is that of `codes`."""
    return _heaviest(code, _weight(work)) >= _WIDE


def _weight(work: Work) -> npt.NDArray[np.float64]:
    return work.m.astype(np.float64) * work.n * (work.k + 1)


def codes(work: Work) -> Ints:
    """a_along + 3 b_along + 9 c_along + 27 where loads may be wide, a problem."""
    item, turned = ITEMSIZE[work.dtype], work.b.swapped
    a = _along(work.a, work.m, work.k, item)
    b = _along(turned, work.n, work.k, item)
    c = _along(work.c, work.m, work.n, item)
    wide = _wide(work.a, a, work.m, work.k, item) & _wide(turned, b, work.n, work.k, item)
    return a + 3 * b + 9 * c + _WIDE * wide


def _along(part: Columns, rows: Ints, cols: Ints, item: int) -> Ints:
    """0 where columns follow one another, 1 where rows do, 2 elsewhere.

    The step of a dimension of one element means nothing, so it may as well be 1; where both are,
    the problem goes with the others.
    """
    zero = part.col == item
    if zero.all():
        return np.zeros(len(zero), np.int64)
    zero, one = zero | (cols <= 1), (part.row == item) | (rows <= 1)
    if np.count_nonzero(one & ~zero) > np.count_nonzero(zero & ~one):
        return np.where(one, 1, np.where(zero, 0, 2))
    return np.where(zero, 0, np.where(one, 1, 2))


def _wide(part: Columns, along: Ints, across: Ints, depth: Ints, item: int) -> Ints:
    """Whether base, rows and extents are whole vectors; `row` steps across, `col` along k."""
    rest, step = depth, part.row
    if along.any():
        rest = np.where(along == 0, depth, depth | across)
        step = np.where(along == 0, part.row, part.col)
    rest = (rest * item | step | part.address) & 15
    return np.asarray((rest == 0) & (along < 2), np.int64)


def _few(code: Ints, weight: npt.NDArray[np.float64]) -> None:
    """At most two layouts in place: the one with most work, and any.

    Wide loads are kept only where that one has them: a launch of their own for the few problems of
    an irregular batch whose sizes happen to fit took 1000 of 1..64 from 15 to 23 µs on an H200.
    """
    most = _heaviest(code, weight)
    if most < _WIDE:
        code %= _WIDE
    if np.count_nonzero(np.bincount(code)) > _MOST_KINDS:
        code[code != most] = _ANY


def _heaviest(code: Ints, weight: npt.NDArray[np.float64]) -> int:
    return int(np.argmax(np.bincount(code, weight)))


def is_near(work: Work) -> bool:
    """Whether every element of a tile lies within 2^31 elements of its first."""
    side = 256  # of the longest tile
    steps = [
        np.abs(part.row).max(initial=0) + np.abs(part.col).max(initial=0)
        for part in (work.a, work.b, work.c)
    ]
    parts = 2 if work.dtype in PARTS else 1  # complex offsets count real numbers
    return side * parts * int(max(steps)) < _NEAR * ITEMSIZE[work.dtype]
