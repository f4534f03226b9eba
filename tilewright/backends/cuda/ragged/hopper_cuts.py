"""How rows of groups are cut into tiles on Hopper, and whether the host or the device says so.

    WHOLE     128 weights by 256 rows: whole tiles of a group, and one of what is left
    EVENLY    256 weights by up to 160 rows: as few as that allows, all of a group about as long

Bits are the same either way: each sum is one chain, 16 of k after 16. Which is faster hangs on how
many waves of tiles there are and on how full the last tile of a group is, and takes 0.7 to 1.45
of the other's time (H200, bfloat16, 283 shapes: 8 to 128 groups of 64 to 1,024 rows on average).

The time of a cut is predicted as what the busiest multiprocessor multiplies. A tile costs its
weights times its rows, a group's last one no fewer than LEAST of them (its weights have to be
loaded), and OWN; of waves half of what the last leaves empty is lost. Whoever knows all sizes
picks so a cut that takes 1.004 times as long as the better one, the geometric mean of those shapes.

The host knows but the mean. It predicts both cuts for groups about as long, as an even draw has
them, and for groups each of which is twice as long as another. EITHER, the device is asked, which
knows the sizes, where that saves more than it costs: a launch of tiles that finds none. Of more
groups than the device is asked about only the second are thought of, as of experts whose router is
not made even: by the model such sizes lose nothing and even ones 3.7 %, with both 1.9 and 0.4.
"""

from __future__ import annotations

from functools import lru_cache
from math import ceil, sqrt
from typing import NamedTuple

from tilewright.backends.cuda.hopper.blocks import FINE, TALL, WIDE, HopperTile


class Cut(NamedTuple):
    """Tiles, with boxes of `slab` rows of x, of groups cut evenly or into whole ones and a rest."""

    shape: HopperTile
    slab: int
    evenly: bool

    @property
    def unit(self) -> int:
        """What the rows of all of a group's tiles but the last are multiples of."""
        return FINE if self.evenly else self.shape.width


WHOLE = Cut(WIDE.coarsely, 64, evenly=False)
EVENLY = Cut(TALL, TALL.width // 2, evenly=True)
CUTS = (WHOLE, EVENLY)
EITHER = len(CUTS)  # instead of the number of one of them

# Of 32 pairs those amid the best for who knows all sizes of the 283 shapes: 144 to 168 rows do as
# well, and 10,000 to 16,000 lose 0.1 % more.
LEAST = 152  # rows that what is left of a group costs
OWN = 12_000  # multiplied elements that a tile costs beside its own
_RATE = 2e12  # elements that one of them multiplies a second; best of 1.6, 1.8, 2.0 and 2.4 there
_EMPTY = 4.7e-6  # seconds of a launch that finds no tiles, and of deciding: of 69 shapes, an H100
# Groups up to which the device decides: 128 took 1.8 us longer than to plan one cut, 2048 took 45.
FEW = 256
# Four groups as an even draw has them, in deviations from the mean: the middles of its quarters.
_DRAWN = (-1.15, -0.32, 0.32, 1.15)
_UNEVEN = (4 / 15, 8 / 15, 16 / 15, 32 / 15)  # of the mean

# Of groups: how many tiles they have, what these and what the longest costs, in a column of tiles.
Tiles = tuple[int, int, int]


def decides(units: int) -> dict[str, int]:
    """What the kernel that decides on the device is compiled for, beside WHOLE (plan_either)."""
    return {
        "OTHER_M": EVENLY.shape.width,
        "OTHER_UNIT": EVENLY.unit,
        "WEIGHTS": WHOLE.shape.rows,
        "OTHER_WEIGHTS": EVENLY.shape.rows,
        "LEAST": LEAST,
        "OWN": OWN,
        "UNITS": units,
    }


def choice(mean: int, groups: int, k: int, n: int, units: int) -> int:
    """Which of CUTS groups of so many rows on average get, or EITHER: the device is to say.

    `units`: the device's multiprocessors, 132 of an H200, fewer of other cards and of a part of
    one. Batches that grow and shrink would be thought about anew each time, 14 us of a Zen 4: the
    mean counts in eights, by less than groups are assumed to differ.
    """
    return _choice((mean + 4) & -8, groups, k, n, units)


@lru_cache(maxsize=4096)
def _choice(mean: int, groups: int, k: int, n: int, units: int) -> int:
    whole, evenly, uneven_whole, uneven_evenly = _assumed(mean)
    times = groups / (len(_DRAWN) * units)
    few, many = times * -(-n // EVENLY.shape.rows), times * -(-n // WHOLE.shape.rows)
    uneven = busiest(uneven_whole, many), busiest(uneven_evenly, few)
    if groups > FEW:
        return int(uneven[1] < uneven[0])
    even = busiest(whole, many), busiest(evenly, few)
    host = min(even[0] + uneven[0], even[1] + uneven[1])
    if k * (host - min(even) - min(uneven)) > 2 * _EMPTY * _RATE:
        return EITHER
    return int(even[1] + uneven[1] < even[0] + uneven[0])


@lru_cache(maxsize=1024)
def _assumed(mean: int) -> tuple[Tiles, ...]:
    """Tiles of four groups: as an even draw has them by each of CUTS, and uneven ones likewise."""
    deviation = sqrt(mean)
    even = [int(mean + by * deviation) or 1 for by in _DRAWN]
    uneven = [int(mean * by) or 1 for by in _UNEVEN]
    return tuple(tiles_of(sizes, cut) for sizes in (even, uneven) for cut in CUTS)


def tiles_of(sizes: list[int], cut: Cut) -> Tiles:
    """The tiles of groups of so many rows, none of them without."""
    height, unit, weights = cut.shape.width, cut.unit, cut.shape.rows
    count = multiplied = longest = 0
    for rows in sizes:
        tiles, units = -(-rows // height), -(-rows // unit)
        last = rows - unit * (units - units // tiles)
        count += tiles
        multiplied += rows if last > LEAST else rows + LEAST - last
        longest = max(longest, min(-(-units // tiles) * unit, rows))
    return count, weights * multiplied + OWN * count, weights * max(longest, LEAST) + OWN


def busiest(tiles: Tiles, times: float) -> float:
    """What one multiprocessor multiplies at most, where each has so many `times` these tiles."""
    count, cost, longest = tiles
    waves = count * times
    return max((ceil(waves) + waves) / 2 * cost / count, longest)
