"""DepthToSpace and SpaceToDepth: channels become pixels (a pixel shuffle), and back."""

from __future__ import annotations

import itertools
from typing import Any

from tilewright.errors import ShapeError
from tilewright.nn.graph import Node, Shape
from tilewright.nn.operators.base import Given
from tilewright.nn.operators.layout import Layout


class _Blocks(Layout):
    """Pictures whose channels are counted by block first ("DCR") or by channel first ("CRD")."""

    def why_not(self, node: Node) -> str | None:
        """There are two orders."""
        mode = node.attributes.get("mode", "DCR")
        return None if mode in ("DCR", "CRD") else f"mode={mode!r}: accepted are DCR and CRD"


class DepthToSpace(_Blocks):
    """[N, C * b * b, H, W] as [N, C, H * b, W * b]."""

    name = "DepthToSpace"
    versions = (1, 11, 13, 28)

    def shapes(self, node: Node, given: Given) -> tuple[Shape, ...]:
        """Raises ShapeError where the channels are no multiple of a block."""
        images, channels, height, width = _picture(given)
        b = node.attributes["blocksize"]
        if b < 1 or channels % (b * b):
            raise ShapeError(f"{channels} channels, blocksize={b}; accepted are whole blocks")
        return ((images, channels // (b * b), height * b, width * b),)

    def compute(self, xp: Any, node: Node, *given: Any) -> Any:
        """A copy for each place of a block: one transposition of all is slower in NumPy."""
        (x,) = given
        images, channels, height, width = x.shape
        b = node.attributes["blocksize"]
        left = channels // (b * b)
        made = xp.empty((images, left, height, b, width, b), dtype=x.dtype, device=x.device)
        by_block = node.attributes.get("mode", "DCR") == "DCR"
        for row, column in itertools.product(range(b), range(b)):
            at = row * b + column
            part = slice(at * left, (at + 1) * left) if by_block else slice(at, None, b * b)
            made[:, :, :, row, :, column] = x[:, part]
        return xp.reshape(made, (images, left, height * b, width * b))


class SpaceToDepth(_Blocks):
    """[N, C, H * b, W * b] as [N, C * b * b, H, W]."""

    name = "SpaceToDepth"
    versions = (1, 13, 28)

    def shapes(self, node: Node, given: Given) -> tuple[Shape, ...]:
        """Raises ShapeError where the sizes are no multiple of a block."""
        images, channels, height, width = _picture(given)
        b = node.attributes["blocksize"]
        if b < 1 or height % b or width % b:
            raise ShapeError(f"{height} x {width} pixels, blocksize={b}; accepted are whole blocks")
        return ((images, channels * b * b, height // b, width // b),)

    def compute(self, xp: Any, node: Node, *given: Any) -> Any:
        """One transposition."""
        (x,) = given
        images, channels, height, width = x.shape
        b = node.attributes["blocksize"]
        split = xp.reshape(x, (images, channels, height // b, b, width // b, b))
        by_block = node.attributes.get("mode", "DCR") == "DCR"
        order = (0, 3, 5, 1, 2, 4) if by_block else (0, 1, 3, 5, 2, 4)
        turned = xp.permute_dims(split, order)
        return xp.reshape(turned, (images, channels * b * b, height // b, width // b))


def _picture(given: Given) -> Shape:
    assert given[0] is not None
    if len(given[0].shape) != 4:
        raise ShapeError(f"x {list(given[0].shape)}; accepted are [N, C, H, W]")
    return given[0].shape


OPERATORS = (DepthToSpace(), SpaceToDepth())
