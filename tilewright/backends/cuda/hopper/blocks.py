"""Configurations of hopper_multiply.cu: how a block is cut, how deep it reads ahead."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import gcd

import numpy as np
import numpy.typing as npt

_TURNS = 4  # kernels/hopper/hopper_block.cuh: tiles that a block knows of
BOX = 64 * 64 * 2  # bytes of one box of the copy engine
COARSE, FINE = 32, 16  # widths of tiles are multiples of these (kernels/hopper/hopper_multiply.cu)
SPLIT_PIECE = 64 * (64 + 4) * 4  # of a piece of C that is fp32 (kernels/hopper/hopper_sums.cuh)
SHARED_LIMIT = 227 * 1024  # what one block may have on Hopper


@dataclass(frozen=True, slots=True)
class HopperTile:
    """A block: 64 rows a warpgroup, tiles up to `width` columns, `blocks` to a multiprocessor.

    `stages` steps of k are on their way or in use; each warpgroup has `slots` finished pieces of C
    waiting to be stored. The second warpgroup starts `skew` steps late, to multiply while the first
    one finishes. Registers are per thread, of the loading and of the multiplying warps. Operands
    split into several `planes` are those of hopper_split.cu. Blocks come in clusters of
    `cluster` (1 or 2): two take tiles of one problem in step and share an operand where they can.
    Of several `strips` each warpgroup has as many times 64 rows. Widths are multiples of 32, and
    past `coarse` of 16: each is code of its own, long where numbers are finished before stored.
    """

    name: str
    warpgroups: int
    width: int
    stages: int
    slots: int
    blocks: int
    loader_registers: int
    consumer_registers: int
    skew: int = 0
    planes: int = 1
    cluster: int = 1
    strips: int = 1
    coarse: int = 128

    @property
    def rows(self) -> int:
        """Rows of a tile."""
        return 64 * self.warpgroups * self.strips

    @property
    def coarsely(self) -> HopperTile:
        """The same with widths that are multiples of 32 alone."""
        return replace(self, coarse=self.width)

    def starts(self, close: npt.NDArray[np.bool_]) -> npt.NDArray[np.int64]:
        """Columns of which tiles begin at multiples: where they may be cut `close`, and elsewhere.

        As a problem's tiles are about as wide, all but the last one's columns are then multiplied,
        and no others.
        """
        closely = FINE if self.width > self.coarse else COARSE
        return np.where(close, closely, gcd(self.width, 64))

    def padded(self, columns: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """What is multiplied of so many columns."""
        coarse, fine = (columns + (by - 1) & -by for by in (COARSE, FINE))
        return np.where(columns > self.coarse, fine, coarse)

    @property
    def products(self) -> int:
        """How many products of parts make one: those no smaller than the last part."""
        return self.planes * (self.planes + 1) // 2

    @property
    def threads(self) -> int:
        """Threads of a block."""
        return 128 * (self.warpgroups + 1)

    def clusters(self, processors: int) -> int:
        """How many clusters, of `cluster` blocks each, so many multiprocessors run at a time."""
        return max(1, processors * self.blocks // self.cluster)

    @property
    def shared(self) -> int:
        """Bytes of dynamic shared memory: stages, pieces, barriers, and room to align them."""
        stage = self.planes * (self.warpgroups * self.strips * BOX + 128 * self.width)
        pieces = self.warpgroups * self.slots
        if self.planes > 1:
            return self.stages * stage + pieces * SPLIT_PIECE + 8 * 2 * self.stages
        barriers = 8 * 2 * (self.stages + pieces + _TURNS) + 4 * _TURNS
        return self.stages * stage + pieces * BOX + barriers + 1024

    @property
    def exact_shared(self) -> int:
        """The same of kernels/hopper/hopper_exact.cu: pieces, and two steps of 16 rows of k."""
        step = 4 * 16 * (self.rows + 2 + self.width + 2)
        return self.warpgroups * self.slots * SPLIT_PIECE + 2 * step

    @property
    def defines(self) -> tuple[tuple[str, int], ...]:
        """The kernel's macros that follow from this."""
        names = ("warpgroups", "width", "stages", "slots", "blocks", "skew", "planes", "cluster")
        others = ("strips", "coarse", "loader_registers", "consumer_registers")
        return tuple((name.upper(), getattr(self, name)) for name in (*names, *others))


# Registers add up to what ptxas gives a block: 168 x 384 threads, or 128 x 256 twice. (Of 512
# threads each could have 128 only, too few for tiles 256 wide.)
WIDE = HopperTile("128x256", 2, 256, 4, 2, 1, 72, 216, 2)
STAGED = HopperTile("128x256 staged", 2, 256, 3, 4, 1, 72, 216, 1)
PAIR = HopperTile("128x256 in pairs", 2, 256, 4, 2, 1, 72, 216, 0, cluster=2)
HALF = HopperTile("128x128", 2, 128, 4, 4, 1, 72, 216, 2)
NARROW = HopperTile("64x128 twice", 1, 128, 3, 3, 2, 72, 184, 0)
TALL = HopperTile("256x160", 2, 160, 4, 1, 1, 72, 216, 1, strips=2, coarse=96)
SLIM = HopperTile("256x144", 2, 144, 4, 1, 1, 72, 216, 1, strips=2, coarse=96)
SHAPES = (WIDE, PAIR, STAGED, HALF, TALL, SLIM, NARROW)
SPLIT = HopperTile("128x128 split", 2, 128, 3, 1, 1, 40, 232, planes=2)
