"""What the host's grouped products know of each element type: bytes, sums, results, code, rates.

float32, float64   kernels/grouped.py          results are of the operands' type
bfloat16           kernels/grouped_narrow.py   summed in float32, rounded once
int8               kernels/grouped_narrow.py   results are int32, exact to 32 bits
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from tilewright.backends.host import amx, compiled
from tilewright.backends.host.program import (
    PARTS,
    PARTS_BRAIN,
    PARTS_BYTE,
    PARTS_DOUBLE,
    TILES,
    TILES_BRAIN,
    TILES_BYTE,
    TILES_DOUBLE,
)

# Multiplications of AMX's tiles, B packed and results written, for one of float32 by bytes of an
# element: 3.0 and 1.9 times what vectors do in products of 64 to 512 (two cores of an Intel Xeon,
# Emerald Rapids). Tiles alone do 16 and 32.
_TILED = {2: 6.0, 1: 7.5}


@dataclass(frozen=True, slots=True)
class Elements:
    """Of one type.

    item, result   bytes of an operand's element, of a result's
    sums           what products are summed in
    wide           a tile's columns of float32 for one of these
    most           columns of its largest tile
    module         of `kernels/`, and how many `pieces` it compiles a tile from
    tiles, parts   kinds of steps
    as_sums        a bit of a record, where C is parts of sums
    """

    item: int
    result: int
    sums: np.dtype[Any]
    wide: int
    most: int
    module: str
    pieces: int
    tiles: int
    parts: int
    as_sums: int = 0

    def speed(self) -> float:
        """Multiplications a second of a core, float32's being 1."""
        if self.module == "grouped":
            return 1 / self.wide
        if self.has_tiles():
            return _TILED[self.item]
        speed: float = compiled.kernels("grouped_narrow_tile").speed(self.item)
        return speed

    def has_tiles(self) -> bool:
        """Whether AMX's tiles multiply them here."""
        return self.module == "grouped_narrow" and amx.is_there(self.item)

    def code_of_tiles(self) -> int:
        """Address of what does, or 0."""
        return amx.code_of_products(self.item) if self.has_tiles() else 0


_SINGLE, _DOUBLE, _INT = (np.dtype(name) for name in ("float32", "float64", "int32"))
KINDS = {
    "float32": Elements(4, 4, _SINGLE, 1, 512, "grouped", 6, TILES, PARTS),
    "float64": Elements(8, 8, _DOUBLE, 2, 512, "grouped", 6, TILES_DOUBLE, PARTS_DOUBLE),
    "bfloat16": Elements(
        2, 2, _SINGLE, 1, 256, "grouped_narrow", 4, TILES_BRAIN, PARTS_BRAIN, as_sums=8
    ),
    "int8": Elements(1, 4, _INT, 1, 256, "grouped_narrow", 4, TILES_BYTE, PARTS_BYTE, as_sums=8),
}
