"""Makespan: how long a queue of tiles keeps a device busy. The model of the scheduler, no device.

A device is a row of equal slots, `compute_units` times `resident`; a tile occupies one slot for its
own number of seconds. Tiles are taken in queue order, each by the slot that is free first, and of
slots free at once by the lowest index; slot s belongs to unit s modulo `compute_units`, so that the
first tiles go round the units once before any unit gets its second. That is list scheduling
(Graham, "Bounds on multiprocessing timing anomalies", SIAM J. Appl. Math. 17, 1969). It stands for
both kinds of scheduler:

    round-robin   a GPU's work-group dispatcher. On NVIDIA's chips it does not go round strictly but
                  takes the unit with most room (Gilman, Ogden, Guo and Walls, "Demystifying the
                  placement policies of the NVIDIA GPU thread block scheduler", 2020). With equal
                  slots that is the same makespan: only which unit gets the tile differs.
    dynamic       a CPU's thread pool: a slot is a core, the queue a shared counter.

Left out: a unit's last resident group runs faster once its neighbours are done, and groups share a
cache. Tiles' seconds are those of a full device, so the end of the queue is charged too much.

`simulate` is the exact event simulation, tile by tile, that tests and reports use. `predict` is
what planning uses: the same number up to rounding while the queue is short, else the queue's end
simulated exactly on an estimate of the state before it (see there for the error).

Worked example: tiles of 3, 3, 2, 2 and 2 seconds on two slots.

>>> slots = Slots(compute_units=2)
>>> queue = Runs.of(counts=[2, 3], seconds=[3.0, 2.0])
>>> result = simulate(queue, slots)
>>> result.makespan, result.unit_seconds.tolist()       # 3 + 2 + 2 on unit 0, 3 + 2 on unit 1
(7.0, [7.0, 5.0])
>>> predict(queue, slots), lower_bound(queue, slots)
(7.0, 6.0)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from heapq import heappop, heappush, heapreplace

import numpy as np
import numpy.typing as npt

from tilewright.planning.deal import Floats, Ints, dealt
from tilewright.planning.within import within

# Up to so many tiles `predict` is exact. A tile costs 0.03 to 0.13 µs with 256 slots, and a plan
# predicts up to six queues in its 2 ms.
EXACT_TILES = 4096
# Of a longer queue so many tiles a slot are simulated, at its end. Two err no more than eight do:
# what error there is lies in the estimate of the state before.
LAST_TILES = 2
# From so many slots on, blocks of tiles are settled by sorting: with 256 slots 1.6 (any order) to 4
# times (sorted) as fast as one by one, with 64 it is slower. Six rounds settle most blocks, and
# MOST_ROUNDS cost what one by one does.
MANY_SLOTS = 128
MOST_ROUNDS = 12
# Before that end a tile is followed on its own if it takes this share of the ideal makespan; there
# are at most four a slot. Shorter ones flow.
LONG_TILE = 0.25
# A run of equal tiles is dealt out at once in 17 µs, which is what so many single ones cost.
LONG_RUN = 128


@dataclass(frozen=True, slots=True)
class Slots:
    """A device's scheduler, as far as the model goes.

    `launch` is the seconds that one more launch (bucket) costs; 0 where one persistent grid or a
    thread pool takes tiles of any shape. `merge` is the seconds in which a slot adds one element of
    a partial result of a product that was split along k; that is a launch of its own where slots
    have `adds`, else done by whoever is last. `jump` is the seconds that a slot loses
    where a problem is not the neighbour, as given, of the one before it: callers mostly make their
    matrices in that order, and what lies apart in memory is not fetched ahead.
    """

    compute_units: int
    resident: int = 1
    launch: float = 0.0
    merge: float = 0.0
    jump: float = 0.0
    adds: bool = True

    def __post_init__(self) -> None:
        if self.compute_units < 1 or self.resident < 1:
            raise ValueError(
                f"compute_units={self.compute_units}, resident={self.resident}: at least 1 each"
            )

    @property
    def count(self) -> int:
        """How many tiles are in work at once."""
        return self.compute_units * self.resident


@dataclass(frozen=True, slots=True)
class Runs:
    """A queue of tiles, as runs of equal ones: `counts[i]` tiles of `seconds[i]` each."""

    counts: Ints
    seconds: Floats

    @classmethod
    def of(cls, counts: Sequence[int], seconds: Sequence[float]) -> Runs:
        """The queue of these runs."""
        return cls(np.array(counts, np.int64), np.array(seconds, np.float64))

    @property
    def work(self) -> float:
        """Seconds of all tiles together."""
        # Not counts @ seconds: BLAS would use threads, and waits 16 ms for a core that is busy.
        return float(np.sum(self.counts * self.seconds))

    def merged(self) -> Runs:
        """The same queue: runs that take no time gone, neighbours of equal tiles joined."""
        counts, seconds = self.counts, self.seconds
        takes_time = (counts > 0) & (seconds > 0)
        if not takes_time.all():
            counts, seconds = counts[takes_time], seconds[takes_time]
        starts = np.flatnonzero(seconds[1:] != seconds[:-1]) + 1
        if len(starts) + 1 >= len(seconds):
            return Runs(counts, seconds)
        starts = np.concatenate(([0], starts))
        return Runs(np.add.reduceat(counts, starts), seconds[starts])


@dataclass(frozen=True, slots=True)
class Schedule:
    """What a simulation found: when the last tile ends, how long every compute unit worked."""

    makespan: float
    unit_seconds: Floats


def simulate(runs: Runs, slots: Slots) -> Schedule:
    """Exact event simulation, tile by tile: 0.2 µs a tile with 2 slots, 0.5 with 256."""
    tiles = np.repeat(runs.seconds, runs.counts).tolist()
    _, ends = dealt(tiles, slots.count)  # no slot ever waits, so it worked until its end
    units = np.reshape(ends, (slots.resident, slots.compute_units)).sum(axis=0)
    return Schedule(max(ends), units)


def lower_bound(runs: Runs, slots: Slots) -> float:
    """No order of these runs can end sooner. `runs` must be sorted by seconds, longest first.

    The larger of all work spread evenly, and, for every w, w + 1 times the tile at place w · slots:
    of the w · slots + 1 longest tiles some slot gets w + 1. Equal tiles reach the second exactly.
    """
    if not len(runs.counts):
        return 0.0
    ends = np.cumsum(runs.counts)
    waves = (ends - 1) // slots.count + 1
    alone = np.max(np.where(runs.counts > 0, waves * runs.seconds, 0.0))
    return float(max(alone, runs.work / slots.count))


def predict(runs: Runs, slots: Slots) -> float:
    """Makespan of the queue in this order.

    Exact up to rounding while the work is at most EXACT_TILES tiles, a long run of equal tiles
    counting as LONG_RUN. Of a longer queue only the end, LAST_TILES a slot, is simulated, on an
    estimate of the slots' state before it, and the result is kept between two bounds that always
    hold. Measured against `simulate` with 256 slots on queues of 6,000 to 65,000 tiles: sizes drawn
    uniformly, 0.01 % off at the median and 0.14 % at most; by Zipf's law, where one tile can take
    as long as all others spread over the slots, 0.06 % and 7.6 %.
    """
    runs = runs.merged()
    counts, seconds = runs.counts, runs.seconds
    if not len(counts):
        return 0.0
    effort = np.minimum(counts, LONG_RUN)[::-1].cumsum()[::-1]
    if effort[0] <= EXACT_TILES:
        return float(_advance(np.zeros(slots.count), runs).max())
    first = int(np.count_nonzero(effort > LAST_TILES * slots.count))
    free = _state(Runs(counts[:first], seconds[:first]), slots.count)
    estimate = float(_advance(free, Runs(counts[first:], seconds[first:])).max())
    # Graham: no tile starts later than the work before it, spread over all slots.
    before = np.cumsum(counts * seconds) - seconds
    most = float(np.max(before / slots.count + seconds))
    least = max(runs.work / slots.count, float(seconds.max()))
    return max(min(estimate, most), least)  # `least` last: rounding can put `most` below it


def _advance(free: Floats, runs: Runs) -> Floats:
    """When the slots are free after these tiles, given when they are free before them."""
    begin, end = 0, len(runs.counts)
    size = 2 * len(free) if len(free) >= MANY_SLOTS else EXACT_TILES
    for long in [*np.flatnonzero(runs.counts >= LONG_RUN).tolist(), end]:
        tiles = np.repeat(runs.seconds[begin:long], runs.counts[begin:long])
        for at in range(0, len(tiles), size):
            free = _take(free, tiles[at : at + size])
        if long < end:
            free = _deal(free, int(runs.counts[long]), float(runs.seconds[long]))
        begin = long + 1
    return free


def _take(free: Floats, tiles: Floats) -> Floats:
    """`_advance` for a block of tiles.

    Tile j starts at the j-th earliest moment at which any slot falls free: at first, or by the end
    of a tile before it. Starts that agree with the ends they cause are therefore the right ones,
    and every round of sorting settles at least those tiles whose predecessors were settled. Where
    many short tiles queue behind one another that takes many rounds: then one by one.
    """
    slots, count = len(free), len(tiles)
    if slots >= MANY_SLOTS:
        moments = np.concatenate((free, tiles))
        starts = np.full(count, free.min())
        for _ in range(MOST_ROUNDS):
            np.add(starts, tiles, out=moments[slots:])
            ordered = np.sort(moments)
            if np.array_equal(ordered[:count], starts):
                return ordered[count:]
            starts = ordered[:count]
    heap = np.sort(free).tolist()
    for seconds in tiles.tolist():
        heapreplace(heap, heap[0] + seconds)
    return np.array(heap)


def _deal(free: Floats, count: int, seconds: float) -> Floats:
    """`_advance` for one run of equal tiles, in one step.

    Like filling a vessel of uneven floor: at the level where `count` tiles would fit exactly, were
    they liquid, every slot has taken the whole tiles below it; the rest goes to the lowest slots.
    """
    free = np.sort(free)
    volume = np.arange(1, len(free) + 1) * free - np.cumsum(free)
    wet = int(np.searchsorted(volume, count * seconds, side="right"))
    level = (count * seconds + free[:wet].sum()) / wet
    taken = np.floor((level - free[:wet]) / seconds).astype(np.int64)
    free[:wet] += taken * seconds
    rest = count - int(taken.sum())
    # Rounding can leave one tile too many on a slot that was exactly full.
    while rest < 0:
        free[np.argmax(free[:wet])] -= seconds
        rest += 1
    free[np.argsort(free)[:rest]] += seconds
    return free


def _state(runs: Runs, slots: int) -> Floats:
    """Estimated times at which the slots are free after all of `runs`; their sum is exact.

    Slots that a long tile holds are free when it ends. The others are level on average (`_fill`);
    around that they are spread as the last tiles that began there: one begins when the work before
    it has flowed off, and the slots' free times are the latest endings.
    """
    total = int(runs.counts.sum())
    if total <= slots:
        return np.append(np.repeat(runs.seconds, runs.counts), np.zeros(slots - total))
    is_long = runs.seconds > LONG_TILE * runs.work / slots
    level, held = _fill(runs, is_long, slots)
    room = slots - len(held)
    counts, seconds = runs.counts[~is_long], runs.seconds[~is_long]
    if not room or not len(counts):
        return np.array([*held, *[level] * room])
    # Of every run the last tile's end, counted from when the next tile after the body begins.
    ends = seconds - np.cumsum((counts * seconds)[::-1])[::-1] / room
    ends += (counts - 1) * seconds / room
    latest = np.argpartition(-ends, min(room, len(ends)) - 1)[:room]
    most = np.minimum(counts[latest], room)
    spread = np.repeat(ends[latest], most) - within(most) * np.repeat(seconds[latest] / room, most)
    if len(spread) < room:
        spread = np.append(spread, np.full(room - len(spread), spread.min()))
    spread = np.partition(spread, len(spread) - room)[-room:]
    return np.append(held, np.maximum(spread + (level - spread.mean()), 0.0))


def _fill(runs: Runs, is_long: npt.NDArray[np.bool_], slots: int) -> tuple[float, list[float]]:
    """Level of the slots after `runs`, short tiles flowing, and when the long ones above it end.

    Work flows into all slots that no long tile holds; where the level reaches a long tile's end,
    its slot is one of them again. A long tile takes one such slot, at the level of the moment.
    """
    flowing = np.cumsum(np.where(is_long, 0.0, runs.counts * runs.seconds))
    counts = runs.counts[is_long]
    begins = np.append(np.cumsum(counts) - counts, counts.sum())
    inflow = np.zeros(int(begins[-1]) + 1)
    inflow[begins] = np.diff(np.append(flowing[is_long], flowing[-1]), prepend=0.0)
    lengths = [*np.repeat(runs.seconds[is_long], counts).tolist(), 0.0]
    level = 0.0
    held: list[float] = []
    for volume, length in zip(inflow.tolist(), lengths, strict=True):
        while held and volume >= (held[0] - level) * (slots - len(held)):
            volume -= (held[0] - level) * (slots - len(held))
            level = heappop(held)
        level += volume / (slots - len(held))
        if length:
            heappush(held, level + length)
    return level, held
