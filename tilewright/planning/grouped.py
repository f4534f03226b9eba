"""Grouped: the plan of a batch in which every problem has its own m, n and k. Pure array code.

    1 bypass    sizes all equal, problems already in order, or order="given": nothing is sorted
    2 measure   tiles and seconds a tile, of every problem with every shape      buckets.Table
    3 coarse    problems by k, longest first                                     order.descending
    4 buckets   the tile shape of every problem, long products cut along k       buckets.choices
    5 fine      problems in each of the four orders                              order.arrange
    6 queue     all buckets run concurrently, or as one grid: one queue of tiles
    7 predict   the makespan of every order on this scheduler; the least wins    makespan.predict
    8 cache     `signature` is a plan's key

"auto" is the least of four predictions, and an order asked for by name is planned from the same
choices of shapes, so in this model "auto" is never worse than any of them. `makespan.predict` is an
exact simulation up to 4096 tiles; of longer queues it is an estimate, and so is this promise: in
200 random batches of every suite it held without exception, in 60 of 10,000 Zipf draws each "auto"
was up to 0.04 % behind seven times.

Worked example: four problems on two slots, 64 x 64 tiles that take a microsecond per unit of k and
16 x 16 tiles that take a quarter of that, 1 µs a tile besides.

>>> tiles = (Tile(64, 64, 8.192e9, 1e-6), Tile(16, 16, 2.048e9, 1e-6))
>>> slots = Slots(compute_units=2)
>>> m, n, k = [64, 128, 16, 64], [64, 64, 32, 64], [99, 49, 36, 199]
>>> layout = lay_out(m, n, k, tiles, slots)

Measured with 64 x 64 (16 x 16): 1 (16) tiles of 100 (25.8) µs, 2 (32) of 50 (13.2), 1 (2) of
37 (10), 1 (16) of 200 (50.8). The large shape fits into all but problem 2:

>>> layout.tile.tolist(), layout.parts.tolist()
([0, 0, 1, 0], [1, 1, 1, 1])

By k the problems are 3, 0, 1, 2; shape 0 has the longer tiles, so it is the first bucket.

>>> layout.order.tolist()
[3, 0, 1, 2]
>>> for bucket in layout.buckets: print(bucket)
Bucket(tile=0, start=0, stop=3, first=0, tiles=4)
Bucket(tile=1, start=3, stop=4, first=4, tiles=2)

As given, both slots have worked 110 µs when the tile of 200 begins: 310 µs. Longest first, 200 and
10 stand against 100, 50, 50 and 10. No order of 420 µs of work ends sooner on two slots.

>>> {name: round(seconds * 1e6) for name, seconds in layout.predicted.items()}
{'given': 310, 'k-descending': 210, 'bucketed': 210, 'longest-first': 210}
>>> print(layout.reason)
k-descending: 0.210 ms predicted, 0.310 ms as given; the largest shape that fits
>>> balance = layout.balance()
>>> (balance.before * 1e6).round().tolist(), (balance.after * 1e6).round().tolist()
([310.0, 110.0], [210.0, 210.0])
>>> queue = layout.queue
>>> queue.problem.tolist(), queue.row.tolist(), queue.col.tolist()
([3, 0, 1, 1, 2, 2], [0, 0, 0, 1, 0, 0], [0, 0, 0, 0, 0, 1])

Were the last problem ten times as deep, its tile would take 2000 µs of 2220 on one of two slots. So
it is cut along k, and its parts, 64 x 64 matrices in scratch, are added in a second phase:

>>> layout = lay_out(m, n, [99, 49, 36, 1999], tiles, slots)
>>> layout.parts.tolist(), layout.sums
([1, 1, 1, 2], Sums(problem=array([3]), parts=array([2]), offset=array([0]), elements=8192))
>>> layout.queue.k_begin.tolist(), layout.queue.k_end.tolist()
([0, 0, 0, 0, 0, 0, 1000], [99, 49, 49, 36, 36, 1000, 1999])
>>> print(layout.reason)
given: 1.111 ms predicted, 1.111 ms at best when sorted; long products cut along k
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tilewright.errors import ArgumentError, ShapeError
from tilewright.facts.fixed import Fixed
from tilewright.planning.buckets import Choice, Table, Tile, choices
from tilewright.planning.deal import Floats, Ints
from tilewright.planning.makespan import Slots, simulate
from tilewright.planning.order import ORDERS, Candidate, Sums, TileList, compare, sums, tile_list
from tilewright.remember import once
from tilewright.wording import short, time_text

# Work-groups are numbered in 32 bits everywhere, and a list of more would not fit a device.
MOST_TILES = 2**31 - 1


@dataclass(frozen=True, slots=True)
class Bucket:
    """One launch: problems order[start:stop], all with tile shape `tile`.

    Its tiles are queue[first : first + tiles].
    """

    tile: int
    start: int
    stop: int
    first: int
    tiles: int


@dataclass(frozen=True)
class Balance(Fixed):
    """Seconds of work of every compute unit, in the given order and in the chosen one."""

    before: Floats
    after: Floats


@dataclass(frozen=True)
class GroupedLayout(Fixed):
    """What to launch for a batch, and why so. Columns are never the caller's own.

    `order` is a permutation of all problems; those without tiles come last, in no bucket. `chosen`
    names the order, `seconds` is its prediction, `predicted` that of every order looked at: all
    four, or only "given" where the caller asked for that.
    """

    m: Ints
    n: Ints
    k: Ints
    tiles: tuple[Tile, ...]
    slots: Slots
    order: Ints
    chosen: str
    seconds: float
    predicted: dict[str, float]
    reason: str
    _taken: Candidate
    _given: Candidate

    @property
    def tile(self) -> Ints:
        """Index into `tiles` of every problem."""
        return self._taken.choice.tile

    @property
    def counts(self) -> Ints:
        """Tiles of every problem, those of all its parts."""
        return self._taken.choice.counts

    @property
    def parts(self) -> Ints:
        """Into how many parts every problem's k is cut."""
        return self._taken.choice.parts

    @property
    def depth(self) -> Ints:
        """Steps of k of a part of every problem, the last part's the rest."""
        return self._taken.choice.depth

    @property
    def tile_seconds(self) -> Floats:
        """What each of a problem's tiles takes."""
        return self._taken.choice.seconds

    @once
    def queue(self) -> TileList:
        """Every tile in launch order."""
        taken = self._taken
        return tile_list(taken.order, taken.choice, self.n, self.k, self.tiles)

    @once
    def sums(self) -> Sums:
        """The second phase: products whose parts are to be added up."""
        return sums(self._taken.choice, self.m, self.n)

    @once
    def buckets(self) -> tuple[Bucket, ...]:
        """The launches. Without launch costs an order may mix shapes, one bucket a run of one."""
        live = self._taken.order
        shapes = self.tile[live]
        starts = np.flatnonzero(np.diff(shapes, prepend=-1))
        stops = np.append(starts, len(live))[1:]
        ends = np.concatenate(([0], np.cumsum(self._taken.choice.counts[live])))
        columns = (shapes[starts], starts, stops, ends[starts], ends[stops] - ends[starts])
        return tuple(
            Bucket(*row) for row in zip(*(column.tolist() for column in columns), strict=True)
        )

    @property
    def bytes(self) -> int:
        """What it weighs with everything that is made when it is asked for."""
        choice = self._taken.choice
        tiles = int(choice.counts.sum())
        columns = 2 * 8 * 6 + 4 * 8 + 120  # two choices and orders, its own sizes, a bucket
        return len(self.m) * columns + tiles * (4 * 4 + 2 * 8)

    def simulated(self) -> float:
        """What `seconds` predicts, by exact simulation."""
        return simulate(self._taken.runs, self.slots).makespan + self._taken.fixed

    def balance(self) -> Balance:
        """Work per compute unit, by exact simulation: 0.5 µs a tile and order."""
        before, after = (simulate(c.runs, self.slots) for c in (self._given, self._taken))
        return Balance(before.unit_seconds, after.unit_seconds)


def lay_out(
    m: npt.ArrayLike,
    n: npt.ArrayLike,
    k: npt.ArrayLike,
    tiles: tuple[Tile, ...],
    slots: Slots,
    order: str = "auto",
) -> GroupedLayout:
    """Plan C = A[m, k] @ B[k, n] for every problem of these columns on this scheduler.

    Args:
        m, n, k: sizes, one entry a problem, 0 allowed: no rows or columns make no tiles, but k = 0
            does, as beta · C has still to be written.
        tiles: the shapes that a kernel can run, at least one.
        slots: the device's scheduler.
        order: "auto" or one of `ORDERS`.

    Raises ShapeError for columns that do not fit each other, negative sizes and batches of more
    than 2^31 - 1 tiles, ArgumentError for an unknown order and for no tiles.
    """
    if order not in ("auto", *ORDERS):
        raise ArgumentError(f"order={order!r}: known are auto, {', '.join(ORDERS)}")
    if not tiles:
        raise ArgumentError("tiles=(): a plan needs at least one tile shape")
    m, n, k = columns(m, n, k)
    live = np.flatnonzero((m > 0) & (n > 0))
    if not len(live):
        return _empty(m, n, k, tiles, slots)
    assignments = choices(Table.of(m, n, k, tiles), slots)
    plans = compare(live, k, assignments, slots, only_given=order == "given")
    predicted = {name: seconds for name, (_, seconds) in plans.items()}
    chosen = min(predicted, key=lambda name: predicted[name]) if order == "auto" else order
    taken, seconds = plans[chosen]
    _check_count(taken.choice)
    why = _reason(order, chosen, {name: plan for name, (plan, _) in plans.items()}, predicted)
    full = np.concatenate((taken.order, np.flatnonzero((m == 0) | (n == 0))))
    given = plans["given"][0]
    return GroupedLayout(m, n, k, tiles, slots, full, chosen, seconds, predicted, why, taken, given)


def signature(m: Ints, n: Ints, k: Ints, *options: object) -> bytes:
    """16 bytes that differ for batches of other sizes, other order or other options.

    Options count by their `repr`, so they must be records or plain values.
    """
    digest = hashlib.blake2b(repr((len(m), options)).encode(), digest_size=16)
    for column in (m, n, k):
        digest.update(np.ascontiguousarray(column, np.int64).data)
    return digest.digest()


def _reason(
    order: str, chosen: str, plans: dict[str, Candidate], predicted: dict[str, float]
) -> str:
    taken, given = plans[chosen], plans["given"]
    shapes = taken.choice.reason
    if order != "auto":
        return f"{chosen}: the caller asked for it; {shapes}"
    if all(plan.order is given.order for plan in plans.values()):
        return f"given: nothing to sort, {time_text(predicted[chosen])} predicted; {shapes}"
    times = f"{time_text(predicted[chosen])} predicted"
    if chosen != "given":
        return f"{chosen}: {times}, {time_text(predicted['given'])} as given; {shapes}"
    others = min(seconds for name, seconds in predicted.items() if name != "given")
    return f"given: {times}, {time_text(others)} at best when sorted; {shapes}"


def columns(*columns: npt.ArrayLike) -> tuple[Ints, ...]:
    """Read-only int64 copies. Raises ShapeError unless they are equally long lists of sizes."""
    arrays = [_column(name, column) for name, column in zip("mnk", columns, strict=True)]
    if any(array.ndim != 1 or len(array) != len(arrays[0]) for array in arrays):
        shapes = ", ".join(str(array.shape) for array in arrays)
        raise ShapeError(f"m, n, k of shapes {shapes}: they must be three columns of one length")
    checked = []
    for name, array in zip("mnk", arrays, strict=True):
        if len(array) and array.dtype.kind not in "iu":
            raise ShapeError(f"{name} of {array.dtype}: sizes are integers")
        copy = array.astype(np.int64)
        if copy.min(initial=0) < 0:
            at = int(np.argmax(copy < 0))
            raise ShapeError(f"{name}[{at}]={array[at]}: a size is 0 or more")
        copy.setflags(write=False)
        checked.append(copy)
    return tuple(checked)


def _column(name: str, values: npt.ArrayLike) -> npt.NDArray[Any]:
    try:
        return np.asarray(values)
    except (TypeError, ValueError, RuntimeError) as error:  # unlike lengths, tensors with gradients
        raise ShapeError(f"{name}={short(values)}: accepted are lists of sizes") from error


def _check_count(choice: Choice) -> None:
    total = choice.counts.sum(dtype=np.float64)
    if total > MOST_TILES:
        raise ShapeError(f"m, n: {total:.3g} tiles in all, at most {MOST_TILES} can be launched")


def _empty(m: Ints, n: Ints, k: Ints, tiles: tuple[Tile, ...], slots: Slots) -> GroupedLayout:
    """The layout of a batch without a single tile."""
    zero = np.zeros(len(m), np.int64)
    seconds = np.zeros(len(m))
    choice = Choice("nothing to compute", zero, zero, seconds, zero + 1, k, zero, 0, 0.0, 0)
    nothing = Candidate(np.zeros(0, np.int64), choice, 0.0)
    predicted = dict.fromkeys(ORDERS, 0.0)
    order = np.arange(len(m))
    return GroupedLayout(
        m, n, k, tiles, slots, order, "given", 0.0, predicted, choice.reason, nothing, nothing
    )
