"""A bucket: the problems that one launch of the Hopper kernel computes, and in which way."""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.backends.cuda.hopper import records
from tilewright.backends.cuda.hopper.blocks import HopperTile
from tilewright.backends.cuda.hopper.orient import Oriented
from tilewright.backends.cuda.hopper.packing import ROW, Panels
from tilewright.backends.cuda.work import Ints


@dataclass(frozen=True, slots=True)
class Bucket:
    """Problems of one launch: how they are turned, cut and dealt, and what is packed."""

    batch: Oriented
    which: Ints
    shape: HopperTile
    tiles: records.Tiles
    turns: Ints
    panels: tuple[Panels, Panels]
    seconds: float

    @property
    def scratch(self) -> int:
        """Bytes that the packed operands take."""
        return self.plane_rows * self.shape.planes * ROW

    @property
    def plane_rows(self) -> int:
        """Rows of one plane of the scratch, 128 bytes each."""
        return self.panels[0].rows + self.panels[1].rows
