"""GridSample: a picture read at positions that an input names; and AffineGrid, which makes them.

    grid [N, rows, columns, 2] in -1 .. 1 -> positions in pixels -> neighbours and weights -> sums

Works for any number of spatial dimensions; cubic neighbours for two, as ONNX has them.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

from tilewright.errors import ShapeError
from tilewright.nn.graph import Node, Shape, Tensor
from tilewright.nn.operators.base import FLOATS, Given, Operator, content_of

_KINDS = {
    "nearest": "nearest",
    "linear": "linear",
    "bilinear": "linear",
    "cubic": "cubic",
    "bicubic": "cubic",
}
_PADDINGS = ("zeros", "border", "reflection")
_A = -0.75  # of the cubic kernel


class GridSample(Operator):
    """Sums of neighbours; beyond the picture zeros, its border, or its reflection."""

    name = "GridSample"
    versions = (16, 20, 22)
    dtypes = FLOATS

    def why_not(self, node: Node) -> str | None:
        """Modes that are not ONNX's."""
        mode, padding = node.attributes["mode"], node.attributes["padding_mode"]
        if mode not in _KINDS:
            return f"mode={mode!r}: accepted are {', '.join(_KINDS)}"
        known = padding in _PADDINGS
        return None if known else f"padding_mode={padding!r}: accepted are {', '.join(_PADDINGS)}"

    def shapes(self, node: Node, given: Given) -> tuple[Shape, ...]:
        """[N, C, sizes of the grid]."""
        x, grid = given
        assert x is not None
        assert grid is not None
        rank = len(x.shape) - 2
        if rank < 1 or len(grid.shape) != rank + 2 or grid.shape[-1] != rank:
            raise ShapeError(
                f"x {list(x.shape)}, grid {list(grid.shape)}; accepted are [N, C, ...] and"
                " [N, ..., as many as spatial dimensions]"
            )
        if x.shape[0] != grid.shape[0]:
            raise ShapeError(f"{x.shape[0]} pictures, {grid.shape[0]} grids; accepted are as many")
        if 0 in x.shape[2:]:
            raise ShapeError(f"x {list(x.shape)}; accepted are pictures that have pixels")
        return ((*x.shape[:2], *grid.shape[1:-1]),)

    def compute(self, xp: Any, node: Node, *given: Any) -> Any:
        """Neighbours are gathered from pictures whose pixels stand in one row."""
        x, grid = given
        images, channels, *sizes = x.shape
        rows = xp.reshape(x, (images, channels, math.prod(sizes)))
        axes = [
            self._axis(xp, node, grid[..., len(sizes) - 1 - at], size)
            for at, size in enumerate(sizes)
        ]
        total, pixels = None, math.prod(grid.shape[1:-1])
        for taps in itertools.product(*axes):
            place = weight = None
            for (index, share), size in zip(taps, sizes, strict=True):
                place = index if place is None else place * size + index
                weight = share if weight is None else weight * share
            flat = xp.reshape(place, (images, 1, pixels))
            flat = xp.broadcast_to(flat, (images, channels, flat.shape[2]))
            part = xp.take_along_axis(rows, flat, axis=2)
            part = part * xp.reshape(weight, (images, 1, pixels))
            total = part if total is None else total + part
        return xp.reshape(total, (images, channels, *grid.shape[1:-1]))

    def _axis(self, xp: Any, node: Node, grid: Any, size: int) -> list[tuple[Any, Any]]:
        """Along one axis: places inside the picture, and shares, which are 0 for what is not."""
        corners = bool(node.attributes["align_corners"])
        padding, kind = node.attributes["padding_mode"], _KINDS[node.attributes["mode"]]
        x = (grid + 1) / 2 * (size - 1) if corners else ((grid + 1) * size - 1) / 2
        if kind != "cubic":
            x = _inside(xp, x, size, padding, corners)
        if kind == "nearest":
            return [_tap(xp, xp.round(x), xp.ones_like(x), size, padding, corners)]
        low = xp.floor(x)
        if kind == "linear":
            shares = [(0, 1 - (x - low)), (1, x - low)]
        else:
            shares = [(step, _cubic(xp, xp.abs(low + step - x))) for step in (-1, 0, 1, 2)]
        return [_tap(xp, low + step, share, size, padding, corners) for step, share in shares]

    def flops(self, node: Node, given: Given, made: Sequence[Tensor]) -> float:
        """Two for each neighbour."""
        assert given[0] is not None
        taps = {"nearest": 1, "linear": 2, "cubic": 4}[_KINDS[node.attributes["mode"]]]
        return 2.0 * made[0].size * float(taps) ** (len(given[0].shape) - 2)


class AffineGrid(Operator):
    """Positions of a picture's pixels in another, by a matrix for each picture."""

    name = "AffineGrid"
    versions = (20,)

    def shapes(self, node: Node, given: Given) -> tuple[Shape, ...]:
        """[N, spatial sizes, how many of them]."""
        images, _, *sizes = (int(s) for s in content_of(given[1], "the size").ravel())
        return ((images, *sizes, len(sizes)),)

    def compute(self, xp: Any, node: Node, *given: Any) -> Any:
        """matrix * (x, y, 1) of every pixel."""
        matrices, size = given
        _, _, *sizes = size.tolist()
        corners = node.attributes["align_corners"]
        lines = []
        for count in reversed(sizes):
            along = xp.astype(xp.arange(count, device=matrices.device), matrices.dtype)
            if corners:
                lines.append(along * 2 / max(1, count - 1) - 1)
            else:
                lines.append((along * 2 + 1) / count - 1)
        total = None
        for at, along in enumerate(lines):
            shape = [1] * len(sizes)
            shape[len(sizes) - 1 - at] = -1
            part = xp.reshape(along, (1, *shape, 1)) * _column(xp, matrices, at, len(sizes))
            total = part if total is None else total + part
        return total + _column(xp, matrices, len(sizes), len(sizes))


def _column(xp: Any, matrices: Any, at: int, rank: int) -> Any:
    """A column of each matrix, such that it broadcasts against a grid."""
    return xp.reshape(matrices[:, :, at], (-1, *[1] * rank, matrices.shape[1]))


def _inside(xp: Any, x: Any, size: int, padding: str, corners: bool) -> Any:
    """Positions brought into the picture, unless zeros lie around it."""
    if padding == "border":
        return xp.clip(x, 0, size - 1)
    if padding == "reflection":
        return xp.clip(_reflected(xp, x, size, corners), 0, size - 1)
    return x


def _reflected(xp: Any, x: Any, size: int, corners: bool) -> Any:
    """Positions as between two mirrors: at the centres of the outer pixels, or at their edges."""
    low, high = (0.0, size - 1.0) if corners else (-0.5, size - 0.5)
    span = high - low
    if span <= 0:
        return xp.zeros_like(x)
    from_low = xp.remainder(x - low, 2 * span)
    return low + span - xp.abs(from_low - span)


def _tap(
    xp: Any, place: Any, share: Any, size: int, padding: str, corners: bool
) -> tuple[Any, Any]:
    """Whole places inside the picture, and shares."""
    place = _inside(xp, place, size, padding, corners)
    inside = (place >= 0) & (place <= size - 1)
    kept = xp.where(inside, place, xp.zeros_like(place))
    share = xp.where(inside, share, xp.zeros_like(share))
    return xp.astype(xp.round(kept), xp.int64), share


def _cubic(xp: Any, d: Any) -> Any:
    """Keys' kernel of distances up to 2."""
    near = ((_A + 2) * d - (_A + 3)) * d * d + 1
    far = ((d - 5) * d + 8) * d * _A - 4 * _A
    return xp.where(d <= 1, near, far)


OPERATORS = (AffineGrid(), GridSample())
