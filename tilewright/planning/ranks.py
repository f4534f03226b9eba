"""Which rank of a group of machines multiplies what: products of any sizes, dealt out beforehand.

    products, longest first   A A A A A A | B B B | C C | D        rank 0   A A A A A A
                                                                   rank 1   B B B C C D

Each product goes to the rank with least to do so far, the longest first (LPT; Graham, "Bounds on
multiprocessing timing anomalies", SIAM J. Appl. Math. 17, 1969: never over 4/3 of the best). Where
that leaves the busiest rank more than a tenth over an even share, as with eight equal experts on
three ranks, products are cut between rows of C instead, one cut a rank at most: rows do not depend
on each other, so results stay the same, and what is cut needs its B on both ranks.
"""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Real

import numpy as np
import numpy.typing as npt

from tilewright.errors import ArgumentError
from tilewright.facts.fixed import Fixed
from tilewright.planning.deal import Floats, Ints, dealt
from tilewright.planning.grouped import columns
from tilewright.wording import short

_EVEN = 1.1  # of the larger of the mean and the longest product: no cut pays below


@dataclass(frozen=True, eq=False)
class Share(Fixed):
    """What one rank multiplies: rows begin[i] to end[i] of product problem[i], in that order.

    `seconds` are predicted, of all of them together; `len` is how many there are.
    """

    problem: Ints
    begin: Ints
    end: Ints
    seconds: float

    def __len__(self) -> int:
        return len(self.problem)


def split(
    m: npt.ArrayLike,
    n: npt.ArrayLike,
    k: npt.ArrayLike,
    ranks: int,
    *,
    itemsize: int = 4,
    flops: float = 51e12,
    bandwidth: float = 4.3e12,
    overhead: float = 1e-8,
) -> tuple[Share, ...]:
    """Deal products of m[i] x k[i] times k[i] x n[i] out to `ranks` equal devices; one share each.

    A pure function of its arguments: every rank that calls it gets the same answer, and no message
    is sent. A product is taken to last the longer of its 2mnk operations at `flops` a second and
    its bytes at `bandwidth` a second, and `overhead` seconds more. Left out they are an H200's in
    float32; where a device computes more operations for a byte, give its own. `itemsize` is the
    bytes of an element.

    The busiest share lasts at most 1.1 times the mean, or the longest product where that is longer
    than the mean, as far as whole rows allow. Empty products cost their overhead and are dealt too.

    Raises ShapeError unless m, n, k are columns of sizes of one length, ArgumentError for `ranks`
    below 1 or rates that are not positive.
    """
    rows, width, depth = columns(m, n, k)
    if isinstance(ranks, bool) or not isinstance(ranks, int | np.integer) or ranks < 1:
        raise ArgumentError(f"ranks={short(ranks)}: accepted are whole numbers from 1")
    given = {"itemsize": itemsize, "flops": flops, "bandwidth": bandwidth}
    for name, value in given.items():
        if not isinstance(value, Real) or not 0 < value < np.inf:
            raise ArgumentError(f"{name}={short(value)}: accepted are positive numbers")
    if not isinstance(overhead, Real) or not 0 <= overhead < np.inf:
        raise ArgumentError(f"overhead={short(overhead)}: accepted are seconds from 0")
    a, b, c = (x.astype(np.float64) for x in (rows, width, depth))
    moved = itemsize * (a * c + c * b + a * b)
    seconds = np.maximum(2 * a * b * c / flops, moved / bandwidth) + overhead
    whole = _whole(rows, seconds, int(ranks))
    even = max(float(seconds.sum()) / ranks, float(seconds.max(initial=0.0)))
    if max(share.seconds for share in whole) <= _EVEN * even:
        return whole
    return _cut(rows, seconds, int(ranks))


def _whole(rows: Ints, seconds: Floats, ranks: int) -> tuple[Share, ...]:
    """The longest first, each to whoever has least to do; of equals the earlier, for all alike."""
    order = np.argsort(-seconds, kind="stable")
    owners = np.asarray(dealt(seconds[order].tolist(), ranks)[0], np.int64)
    shares = []
    for rank in range(ranks):
        mine = np.sort(order[owners == rank])
        nothing = np.zeros(len(mine), np.int64)
        shares.append(Share(mine, nothing, rows[mine], float(seconds[mine].sum())))
    return tuple(shares)


def _cut(rows: Ints, seconds: Floats, ranks: int) -> tuple[Share, ...]:
    """Products end to end, divided at even seconds, each division moved to the nearest row.

    Those without rows stand at the end, as nothing of them can be divided.
    """
    order = np.argsort(rows == 0, kind="stable")
    rows, lasts = rows[order], seconds[order]
    ends = np.cumsum(lasts)
    limits = np.linspace(0.0, float(ends[-1]), ranks + 1)[1:-1]
    at = np.minimum(np.searchsorted(ends, limits, side="right"), len(rows) - 1)
    row = np.rint((limits - ends[at] + lasts[at]) / lasts[at] * rows[at]).astype(np.int64)
    product, row = np.append(np.insert(at, 0, 0), len(rows)), np.append(np.insert(row, 0, 0), 0)
    shares = []
    for rank in range(ranks):
        here = np.arange(product[rank], min(product[rank + 1] + 1, len(rows)))
        begin, end = np.zeros_like(here), rows[here]
        begin[:1] = row[rank]
        if product[rank + 1] < len(rows):
            end[-1] = row[rank + 1]
        # The product that a share ends before, or begins behind, has no rows in it.
        is_edge = (here == product[rank]) & (row[rank] > 0) | (here == product[rank + 1])
        kept = (end > begin) | ((rows[here] == 0) & ~is_edge)
        part = np.where(rows[here] > 0, (end - begin) / np.maximum(rows[here], 1), 1.0)
        taken = float((part * lasts[here])[kept].sum())
        shares.append(Share(order[here[kept]], begin[kept], end[kept], taken))
    return tuple(shares)
