"""Fronts of a multifrontal sparse factorisation: one update product a separator.

Nested dissection (George, 1973) cuts a graph in two by a separator, each half again, down to pieces
of at most LEAF vertices; pieces are eliminated first, separators after the halves they cut. The
front of a separator holds its p vertices, the pivots, and b later ones that fill connects them to,
the border. Eliminating the pivots subtracts L[b, p] @ U[p, b] from the border: m = n = b, k = p.

    fronts-grid-2d   5-point Laplacian of a square grid
    fronts-grid-3d   7-point Laplacian of a cubic grid
    fronts-mesh-2d   Delaunay triangulation of random points: takes SciPy (extra "files")

Computed when called, nothing tabulated. A path through vertices eliminated earlier makes a fill-in
(Rose, Tarjan and Lueker, 1976); so the border of a separator is every vertex outside of the
subdomain it cuts that touches this subdomain, where the subdomain hangs together. On a grid it
does, and tests compare with symbolic elimination; a mesh's subdomain may fall apart, and the border
is then what a code that keeps one front a separator would allocate.

A batch is the whole tree, leaves first: thousands of small fronts, a few large ones, and the root
with no border (m = n = 0). Fronts of one level are independent; `levels` gives them level by level.
Seed 0 has 16,384 (2-D), 8,000 (3-D) and 8,000 (mesh) vertices; other seeds draw the size.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from tilewright.facts.problem import Column

SOURCE = (
    "pivots and borders of a nested dissection of grid Laplacians and of a random Delaunay mesh,"
    " computed at call time"
)
NAMES = ("fronts-grid-2d", "fronts-grid-3d", "fronts-mesh-2d")
# Pieces are not worth cutting further; codes stop at tens of vertices.
LEAF = 16
# Vertices along an edge for seed 0, and the range from which other seeds draw.
SIDES = {"fronts-grid-2d": (128, 48, 160), "fronts-grid-3d": (20, 10, 24)}
POINTS = (8_000, 2_000, 12_000)

Points = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


def draw(name: str, seed: int) -> tuple[Column, Column, Column]:
    """The columns of one of `NAMES`."""
    per_level = levels(name, seed)
    pivots, border = (np.concatenate(column) for column in zip(*per_level, strict=True))
    return border, border, pivots


def levels(name: str, seed: int) -> list[tuple[Ints, Ints]]:
    """(pivots, border) of the fronts of every level of the tree, the deepest first."""
    random = np.random.default_rng(seed)
    if name == "fronts-mesh-2d":
        points = random.random((POINTS[0] if seed == 0 else random.integers(*POINTS[1:]), 2))
        edges = mesh_edges(points)
    else:
        first, low, high = SIDES[name]
        side = first if seed == 0 else int(random.integers(low, high, endpoint=True))
        points, edges = grid((side,) * (2 if name == "fronts-grid-2d" else 3))
    found = [(len(pivots), len(border), level) for pivots, border, level in dissect(points, edges)]
    pivots, border, level = np.array(found).T
    deepest = range(int(level.max()), -1, -1)
    return [(pivots[level == depth], border[level == depth]) for depth in deepest]


def grid(shape: tuple[int, ...]) -> tuple[Points, Ints]:
    """Vertices of a grid and its edges, one a row, between neighbours along an axis."""
    index = np.arange(np.prod(shape)).reshape(shape)
    edges = [
        np.stack((np.delete(index, -1, axis).ravel(), np.delete(index, 0, axis).ravel()), axis=1)
        for axis in range(len(shape))
    ]
    return np.argwhere(index >= 0).astype(np.float64), np.concatenate(edges)


def mesh_edges(points: Points) -> Ints:
    """Edges of the Delaunay triangulation, one a row, each once."""
    try:
        from scipy.spatial import Delaunay
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            'suite="fronts-mesh-2d" takes SciPy: pip install "tilewright[files]"'
        ) from error
    corners = Delaunay(points).simplices.astype(np.int64)
    edges = np.sort(np.concatenate((corners[:, :2], corners[:, 1:], corners[:, ::2])), axis=1)
    # As one number each: 20 times as fast as rows of two.
    numbers = np.unique(edges[:, 0] * len(points) + edges[:, 1])
    return np.stack(np.divmod(numbers, len(points)), axis=1)


def dissect(points: Points, edges: Ints) -> list[tuple[Ints, Ints, int]]:
    """Fronts of the graph: pivots, border, depth in the tree; parents before their children.

    Eliminated from the last to the first. A cut goes through the median of the longest side of a
    subdomain; vertices on its far side that touch the near side are the separator.
    """
    both = np.concatenate((edges, edges[:, ::-1]))
    both = both[np.argsort(both[:, 0], kind="stable")]
    begins = np.searchsorted(both[:, 0], np.arange(len(points) + 1))
    inside = np.zeros(len(points), np.bool_)
    fronts = []
    waiting = [(np.arange(len(points)), 0)]
    while waiting:
        domain, level = waiting.pop()
        source, target = _touching(domain, begins, both[:, 1])
        inside[domain] = True
        border = _each_once(target[~inside[target]], len(points))
        near, pivots = _cut(points, domain, source, target)
        if len(near):
            inside[near] = inside[pivots] = False
            far = domain[inside[domain]]
            waiting += [(half, level + 1) for half in (near, far) if len(half)]
        inside[domain] = False
        if len(pivots):
            fronts.append((pivots, border, level))
    return fronts


def _cut(points: Points, domain: Ints, source: Ints, target: Ints) -> tuple[Ints, Ints]:
    """The near half of a subdomain and the separator behind it; all of a small one as separator."""
    if len(domain) <= LEAF:
        return domain[:0], domain
    place = points[domain]
    axis = int(np.argmax(np.ptp(place, axis=0)))
    is_near = np.zeros(len(points), np.bool_)
    along = np.sort(place[:, axis])
    median = 0.5 * (along[(len(along) - 1) // 2] + along[len(along) // 2])
    is_near[domain] = place[:, axis] < median
    near = domain[is_near[domain]]
    if not len(near):
        return near, domain
    return near, _each_once(source[~is_near[source] & is_near[target]], len(points))


def _each_once(vertices: Ints, count: int) -> Ints:
    """`np.unique` of vertices among `count`, which takes ten times as long for so few."""
    is_there = np.zeros(count, np.bool_)
    is_there[vertices] = True
    return np.flatnonzero(is_there)


def _touching(domain: Ints, begins: Ints, neighbours: Ints) -> tuple[Ints, Ints]:
    """Every (vertex of the domain, neighbour) pair."""
    degree = begins[domain + 1] - begins[domain]
    first = np.repeat(begins[domain] - np.cumsum(degree) + degree, degree)
    return np.repeat(domain, degree), neighbours[first + np.arange(len(first))]
