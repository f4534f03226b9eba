"""A layer of experts on 8 to 1,024 ranks, from measured times of a link and of products.

    call = sizes + rows there + the busiest rank's products + sums back

Every rank has the same number of tokens, and routes are drawn: a token's experts at random, or by
chances that fall as the root of their place, so that one of 1,024 experts has 1.6 % of all. An
exchange lasts a start, something for each further rank, and the bytes of the rank that sends or
gets most; products as their plane through measured times has it. What a real network adds where
several hosts share a link is not in it.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

import tilewright as tw

SKEW = 0.5
RANKS = (8, 16, 32, 64, 128, 256, 512, 1024)
Floats = npt.NDArray[np.floating[Any]]


@dataclass(frozen=True)
class Link:
    """Seconds = start + each * (ranks - 1) + bytes / rate."""

    start: float
    each: float
    rate: float

    def seconds(self, ranks: int, size: float) -> float:
        """Of an exchange in which the busiest rank sends or gets so many bytes."""
        return self.start + self.each * (ranks - 1) + size / self.rate


@dataclass(frozen=True)
class Products:
    """Seconds = start + expert * experts here + row * rows."""

    start: float
    expert: float
    row: float

    def seconds(self, experts: float, rows: float) -> float:
        """Of a layer's products on one device."""
        return self.start + self.expert * experts + self.row * rows


@dataclass(frozen=True)
class Layer:
    """What is simulated: the same tokens on each rank."""

    tokens: int
    d: int
    itemsize: int
    experts: int
    top: int


def link_of(groups: list[dict[str, Any]]) -> Link:
    """The line through measured exchanges of one number of ranks, or of two.

    With one, each further rank is taken to cost what the first did, the most that is likely; "at
    best" is the call where none costs anything.
    """
    fits = {}
    for group in groups:
        size = np.array([row["bytes"] for row in group["link"]], float)
        seconds = np.array([row["seconds"] for row in group["link"]])
        # Relative errors count, so that a message of no size is as well met as a large one.
        rate, start = np.polyfit(size, seconds, 1, w=1 / seconds)
        fits[group["ranks"]] = max(start, float(seconds.min()) / 2), 1 / rate
    few, many = min(fits), max(fits)
    (start, rate), (more, _) = fits[few], fits[many]
    each = max((more - start) / (many - few), 0.0) if many > few else start / few
    return Link(max(start - each * (few - 1), 0.0), each, rate)


def products_of(rows: list[dict[str, Any]]) -> Products:
    """The plane through measured products, none of its parts below zero."""
    seconds = np.array([row["seconds"] for row in rows])
    table = np.array([[1.0, row["experts"], row["rows"]] for row in rows]) / seconds[:, None]
    found = np.maximum(np.linalg.lstsq(table, np.ones(len(rows)), rcond=None)[0], 0.0)
    return Products(*map(float, found))


def simulated(link: Link, products: Products, layer: Layer, seed: int = 0) -> dict[str, Any]:
    """Every number of ranks, with even and with skewed routes."""
    rows = []
    for ranks in RANKS:
        for skew in (0.0, SKEW):
            chances = 1.0 / np.arange(1, layer.experts + 1) ** skew
            draw = np.random.default_rng((seed, ranks, int(skew > 0)))
            chances = draw.permutation(chances / chances.sum())
            for placement in ("runs", "split") if skew else ("runs",):
                owners = _owners(placement, chances, layer, ranks)
                row = _call(link, products, layer, ranks, owners, chances, draw)
                rows.append({"ranks": ranks, "skew": skew, "placement": placement, **row})
    parts = {"link": asdict(link), "products": asdict(products), "layer": asdict(layer)}
    return {**parts, "rows": rows}


def _owners(placement: str, chances: Floats, layer: Layer, ranks: int) -> npt.NDArray[np.int64]:
    if placement == "runs":
        return np.arange(layer.experts) * ranks // layer.experts
    expected = np.maximum(chances * layer.tokens * ranks * layer.top, 1).astype(np.int64)
    width = np.full(layer.experts, layer.d)
    owners = np.zeros(layer.experts, np.int64)
    for rank, share in enumerate(_whole(tw.split(expected, width, width, ranks))):
        owners[share] = rank
    return owners


def _whole(shares: tuple[tw.Share, ...]) -> list[npt.NDArray[np.int64]]:
    """The experts of each share; one that is cut goes to the share with most of it."""
    rows = [share.end - share.begin for share in shares]
    most: dict[int, tuple[int, int]] = {}
    for rank, share in enumerate(shares):
        for expert, count in zip(share.problem.tolist(), rows[rank].tolist(), strict=True):
            most[expert] = max(most.get(expert, (-1, 0)), (count, rank))
    found: list[list[int]] = [[] for _ in shares]
    for expert, (_, rank) in most.items():
        found[rank].append(expert)
    return [np.array(sorted(one), np.int64) for one in found]


def _call(
    link: Link,
    products: Products,
    layer: Layer,
    ranks: int,
    owners: npt.NDArray[np.int64],
    chances: Floats,
    draw: np.random.Generator,
) -> dict[str, float]:
    """The forward call of one draw, part by part.

    Of how many tokens of another rank a rank gets at least one slot, the binomial distribution
    says; slots of all tokens together are Poisson's.
    """
    share = np.bincount(owners, chances, minlength=ranks)
    hit = 1 - (1 - np.minimum(share, 1.0)) ** layer.top
    once = draw.binomial(layer.tokens, hit, (ranks, ranks))  # rows from (down) and to (across)
    slots = draw.poisson(share * layer.tokens * ranks * layer.top)
    per_slot = draw.binomial(layer.tokens * layer.top, np.minimum(share, 1.0), (ranks, ranks))
    size = layer.d * layer.itemsize
    here = np.bincount(owners, minlength=ranks)
    seconds = [products.seconds(*one) for one in zip(here, slots, strict=True)]
    mean = layer.tokens * layer.top
    sizes = link.seconds(ranks, 64.0 * ranks)
    moved, unmerged = (link.seconds(ranks, _busiest(rows) * size) for rows in (once, per_slot))
    busiest = max(seconds)
    call = sizes + 2 * moved + busiest
    even = products.seconds(layer.experts / ranks, mean)
    best = Link(link.start + link.each, 0.0, link.rate)
    at_best = best.seconds(ranks, 64.0 * ranks) + 2 * best.seconds(ranks, _busiest(once) * size)
    return {
        "sizes": sizes,
        "exchange": moved,
        "exchange once a slot": unmerged,
        "products": busiest,
        "products if even": even,
        "call": call,
        "call at best": at_best + busiest,
        "call once a slot": sizes + 2 * unmerged + busiest,
        "share of products": even / call,
    }


def _busiest(rows: npt.NDArray[np.int64]) -> float:
    """Rows that the rank with most sends or gets, its own not counted."""
    others = rows - np.diag(np.diag(rows))
    return float(max(others.sum(0).max(), others.sum(1).max()))
