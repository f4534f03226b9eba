"""The tiles of Triton's kernels of ragged products, and which of them suits how many rows.

They were measured on an H200. Where local memory is less, fewer stages are loaded ahead.
"""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class RaggedTile:
    """A tile with its launch options, and how many such programs a compute unit holds."""

    m: int
    n: int
    k: int
    warps: int
    stages: int
    resident: int

    def fits(self, itemsize: int, local_memory: int) -> bool:
        """Whether the blocks loaded ahead find room in a compute unit's local memory, in bytes."""
        return self.stages * (self.m + self.n) * self.k * itemsize <= local_memory


# By bytes an element, for groups of few and of many rows.
_FEW = {
    2: RaggedTile(64, 128, 64, 4, 3, 2),
    4: RaggedTile(32, 32, 32, 4, 1, 8),
    8: RaggedTile(32, 32, 16, 4, 3, 4),
}
MANY = {
    2: RaggedTile(128, 256, 64, 8, 3, 1),
    4: RaggedTile(64, 64, 16, 4, 3, 4),
    8: RaggedTile(64, 64, 16, 4, 3, 2),
}
# Chips of less local memory take operands of tensor cores from registers, as their compiler does:
# with 256 columns it spilled 40 to 224 bytes a thread for them, with 128 none.
_LARGE = 200 * 1024  # bytes of local memory from which on the widest tile is used
_NARROWER = RaggedTile(128, 128, 64, 8, 3, 1)
# For thousands of groups of few rows and small matrices: 200,000 groups of 4 rows, k and n 16, took
# the Hopper kernel's tiles 2.1 ms on an H200, as a multiprocessor has one after another.
_TINY = {
    2: RaggedTile(16, 32, 32, 1, 1, 16),
    4: RaggedTile(16, 32, 32, 1, 1, 16),
    8: RaggedTile(16, 32, 16, 1, 1, 16),
}
TINY_ROWS, _TINY_SIDE, _TINY_GROUPS = 16, 64, 1024


def tile_of(
    itemsize: int, rows: int, groups: int, local_memory: int, *, tiny: bool = False
) -> RaggedTile:
    """Tall tiles where a group has at least half of one on average; small ones where `is_tiny`."""
    if tiny:
        return _TINY[itemsize]
    many = MANY[itemsize] if itemsize != 2 or local_memory >= _LARGE else _NARROWER
    shape = many if rows >= groups * many.m // 2 else _FEW[itemsize]
    while shape.stages > 1 and not shape.fits(itemsize, local_memory):
        shape = replace(shape, stages=shape.stages - 1)
    return shape if shape.fits(itemsize, local_memory) else replace(_FEW[itemsize], stages=1)


def is_tiny(rows: int, groups: int, *sides: int) -> bool:
    """Whether there are thousands of groups of few rows, whose matrices have small sides."""
    few = rows < groups * TINY_ROWS
    return few and groups >= _TINY_GROUPS and max(sides) <= _TINY_SIDE
