"""Keeps what was measured of a device for one dtype, and says what to measure next. Pure.

A point is one product by one kernel, or by "host": squares of SIZES, and products with one narrow
side. It is visited more than once, at moments that lie apart, and its least time counts, as
whatever else runs on the machine only ever adds to one. Where the two best visits contradict each
other, it is visited again.

    due()        the points to visit next, in order; none when all is known
    predicted()  seconds of a product, before it is visited
    measured()   the curves that follow
    doubted()    the points around the crossover, by which curves that are known are checked
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from tilewright.planning.cost import Curve, Measured
from tilewright.tuning import narrow

SIZES = (32, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048)
HOST = "host"
Sides = tuple[int, int, int]
Point = tuple[str, Sides]
# Computed flops of a kernel's product, edges of tiles included.
Computed = Callable[[str, Sides], float]

_LONGEST = 0.04  # seconds of a square beyond which no larger one is measured: rates have settled
# Seconds of a product that nobody waits for, twice a visit; smaller squares may be all launch.
_TOO_LONG, _LARGE = 0.1, 384
_HOPELESS = 2.0  # a kernel this many times slower than the best so far is not measured further
_AGREE = 1.15  # two visits within this ratio confirm each other
_ROUNDS = 2
_MOST_ROUNDS = 5
_CHECKED = 3  # squares by which curves are checked


class Visits:
    """Least seconds by point, how often each was visited, and kernels that the driver refused."""

    def __init__(self) -> None:
        self._best: dict[Point, tuple[float, ...]] = {}
        self._count: dict[Point, int] = {}
        self._curves: dict[str, Curve] = {}  # made from `_best` when they are asked for
        self.failed: set[str] = set()
        self.wrong: set[str] = set()  # of those: what the driver computes is not the product

    def add(self, point: Point, seconds: float) -> None:
        """One more visit."""
        self._best[point] = tuple(sorted((*self._best.get(point, ()), seconds))[:2])
        self._count[point] = self._count.get(point, 0) + 1
        self._curves.pop(point[0], None)

    def fail(self, name: str) -> None:
        """The driver refuses this kernel: it costs it its place, nothing more."""
        self.failed.add(name)

    def least(self, point: Point) -> float | None:
        """Seconds of the best visit."""
        found = self._best.get(point)
        return found[0] if found else None

    def merge(self, other: Visits) -> None:
        """Add what another process has found meanwhile."""
        for point, seconds in other._best.items():
            # What one has from the other is no visit more; equal times of one of them are two.
            both = Counter(seconds) | Counter(self._best.get(point, ()))
            self._best[point] = tuple(sorted(both.elements())[:2])
            self._count[point] = max(other._count[point], self._count.get(point, 0))
        self.failed |= other.failed
        self.wrong |= other.wrong
        self._curves.clear()

    def again(self) -> None:
        """Have every point visited anew; what was least stays least where nothing is less."""
        self._count = dict.fromkeys(self._count, 0)

    def predicted(self, point: Point, computed: Computed) -> float:
        """Seconds of one product, by what was measured of its name so far; of the first, 0.

        The rate of the largest square until now, which larger ones mostly exceed. A narrow product
        takes at most twice what half of its width takes.
        """
        name, sides = point
        if (known := self.least(point)) is not None:
            return known
        if name not in self._curves:
            self._curves[name] = self._curve(name)
        if not (squares := self._curves[name]).points:
            return 0.0
        seconds = squares.seconds(_useful(*sides) if name == HOST else computed(name, sides))
        m, n, k = (side if side == narrow.LENGTH else side // 2 for side in sides)
        return max(seconds, 2 * (self.least((name, (m, n, k))) or 0.0))

    def due(self, kernels: Sequence[str], computed: Computed) -> list[Point]:
        """The points to visit next: the host and every kernel once, then again where it matters.

        A name's squares come in order of their size, then its narrow products.
        """
        names = [HOST, *(name for name in kernels if name not in self.failed)]
        for turn in range(1, _MOST_ROUNDS + 1):
            found = [
                point
                for name in names
                for point in self._points(name, names, computed)
                if self._count.get(point, 0) < turn and self._worth(point, names, turn)
            ]
            if found:
                return found
        return []

    def measured(
        self,
        kernels: Sequence[str],
        computed: Computed,
        bandwidth: float,
        transfer: Callable[[Mapping[str, Curve]], float | None],
    ) -> Measured:
        """Curves, factors of narrow sides and the boundaries of classes from all visits."""
        names = [name for name in kernels if name not in self.failed]
        host = self._curve(HOST)
        curves = {
            name: self._curve(name) for name in names if self.least((name, _square(SIZES[0])))
        }
        sides = {HOST: narrow.factors(self._narrow(HOST), host, _useful)}
        best: narrow.Seconds = {}
        for name, curve in curves.items():
            own = self._narrow(name)
            best = narrow.best_of(best, own)
            sides[name] = narrow.factors(own, curve, _of(computed, name))
        return Measured(
            host=host,
            curves=tuple(curves.items()),
            bandwidth=bandwidth,
            transfer=transfer(curves),
            narrow=tuple(sides.items()),
            boundaries=narrow.boundaries(curves, best),
            wrong=tuple(sorted(self.wrong)),
        )

    def doubted(self, kernels: Sequence[str]) -> list[Point]:
        """Host and best kernel at the squares where they are closest, by which a product is put."""
        pairs = []
        for size in SIZES:
            sides = _square(size)
            host, best = self.least((HOST, sides)), self._leader(sides, kernels)
            if host and best:
                ratio = host / best[0]
                pairs.append((max(ratio, 1 / ratio), sides, best[1]))
        pairs.sort()
        return [
            point for _, sides, name in pairs[:_CHECKED] for point in ((HOST, sides), (name, sides))
        ]

    def _points(self, name: str, names: Sequence[str], computed: Computed) -> Iterator[Point]:
        """The points of a name, as far as it is not hopeless beside the other kernels, and none
        that would take too long."""
        rivals = [other for other in names if other != HOST]
        for size in SIZES:
            point = name, _square(size)
            if size >= _LARGE and self.predicted(point, computed) > _TOO_LONG:
                break
            yield point
            seconds = self.least(point)
            if seconds is not None and (
                seconds > _LONGEST or self._lost(point, seconds, rivals, _HOPELESS)
            ):
                break
        for side in "mnk":
            for width in narrow.WIDTHS:
                point = name, narrow.sides_of(side, width)
                if self.predicted(point, computed) > _TOO_LONG:
                    break
                yield point
                seconds = self.least(point)
                if seconds is not None and self._lost(point, seconds, rivals, narrow.HOPELESS):
                    break

    def _lost(self, point: Point, seconds: float, rivals: Sequence[str], limit: float) -> bool:
        best = None if point[0] == HOST else self._leader(point[1], rivals)
        return best is not None and seconds > limit * best[0]

    def _leader(self, sides: Sides, kernels: Sequence[str]) -> tuple[float, str] | None:
        found = ((self.least((name, sides)), name) for name in kernels if name not in self.failed)
        return min(((seconds, name) for seconds, name in found if seconds), default=None)

    def _worth(self, point: Point, names: Sequence[str], turn: int) -> bool:
        """Whether another visit may change a decision: not of what is far behind, nor of what
        two visits agree on."""
        if turn == 1:
            return True
        seconds = self._best[point]
        if turn > _ROUNDS and seconds[-1] <= _AGREE * seconds[0] and len(seconds) > 1:
            return False
        return not self._lost(point, seconds[0], [name for name in names if name != HOST], _AGREE)

    def _curve(self, name: str) -> Curve:
        points = ((2.0 * size**3, self.least((name, _square(size)))) for size in SIZES)
        return Curve(tuple((flops, seconds) for flops, seconds in points if seconds))

    def _narrow(self, name: str) -> dict[tuple[str, int], float]:
        found = {}
        for side in "mnk":
            for width in narrow.WIDTHS:
                seconds = self.least((name, narrow.sides_of(side, width)))
                if seconds:
                    found[side, width] = seconds
        return found

    def as_dict(self) -> dict[str, Any]:
        """Plain JSON types."""
        points = [
            [name, *sides, self._count[name, sides], *seconds]
            for (name, sides), seconds in self._best.items()
        ]
        return {"points": points, "failed": sorted(self.failed), "wrong": sorted(self.wrong)}


def visits_of(document: Mapping[str, Any]) -> Visits:
    """What `as_dict` wrote. Raises KeyError, TypeError or ValueError for anything else."""
    found = Visits()
    for name, m, n, k, count, *seconds in document["points"]:
        times = tuple(sorted(map(float, seconds)))
        sides = (int(m), int(n), int(k))
        if not 1 <= len(times) <= 2 or not 0 < times[0] < float("inf") or min(sides) < 1:
            raise ValueError(f"{name!r}, {sides}: {seconds!r} are no times of a product")
        found._best[str(name), sides] = times
        found._count[str(name), sides] = int(count)
    found.failed = {str(name) for name in document["failed"]}
    found.wrong = {str(name) for name in document.get("wrong", ())}
    return found


def _of(computed: Computed, name: str) -> narrow.Flops:
    return lambda m, n, k: computed(name, (m, n, k))


def _square(size: int) -> Sides:
    return (size, size, size)


def _useful(m: int, n: int, k: int) -> float:
    return 2.0 * m * n * k
