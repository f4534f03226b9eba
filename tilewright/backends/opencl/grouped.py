"""Grouped kernels of OpenCL devices: the tiles they compute, and how a laid-out batch is launched.

`CpuGroups` runs `grouped_lanes`, `GpuGroups` runs `grouped` and, for products cut along k,
`sum_parts`. Tables are built in grouped_tables.py, launched in grouped_launch.py.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, replace

import numpy as np

from tilewright.arrays.addresses import Columns
from tilewright.backends.opencl.grouped_launch import Arguments, Bound, Launches
from tilewright.backends.opencl.grouped_tables import CHUNK, Table, Tables
from tilewright.backends.opencl.lowering import CHAIN, arithmetic, chains
from tilewright.backends.opencl.rules import preferences
from tilewright.backends.opencl.runtime import Session, kernels, session
from tilewright.engines.grouped import GroupedKernel, GroupedOperands
from tilewright.facts.device import Device
from tilewright.facts.dtypes import ITEMSIZE, sums_of
from tilewright.facts.kernel import Defines, Launch
from tilewright.planning.buckets import Tile
from tilewright.planning.grouped import GroupedLayout
from tilewright.planning.makespan import Slots

# Flops a second of one AVX-512 core in 1000 products of 1..256, and seconds a tile. Ratios decide
# anything; an order is never chosen by the absolute time. Edges are computed to whole vectors and
# to four rows.
_CPU_TILES = tuple(
    Tile(m, n, rate, overhead=0.1e-6, trim=(4, 16))
    for m, n, rate in ((48, 96, 105e9), (192, 288, 121e9), (384, 576, 131e9))
)
# A core loses this where the next problem does not lie next in memory: 1000 of 1..32 took 16 µs
# more sorted than as given, 1000 of 1..64 took 33.
_JUMP = 45e-9
_LAUNCH = 2.5e-5
_VECTORS = 3  # of columns, of one strip
_DEPTH = 192  # steps of k of a packed strip: 36 KiB of L1
# Tiles of one work-group take together about this long: dispatching one costs 10 ns.
_GROUP_SECONDS = 1.5e-6

# Measured on an H200, fp32: seconds a tile of a full device, and seconds for 128 steps of k more.
# Tiles come with micro-tile and strips that are left out past C's end (TRIM).
_GPU_TILES = (
    ((64, 64, 8, 16, 4, 4), 6.2e-9, 26.4e-9),
    ((32, 32, 8, 8, 4, 4), 2.4e-9, 9.6e-9),
    ((16, 64, 8, 8, 4, 4), 2.7e-9, 10.3e-9),
)
_GPU_RESIDENT = 6
_H200_UNITS = 132


@dataclass(frozen=True)
class Groups(GroupedKernel):
    """What grouped kernels of CPUs and of GPUs share."""

    device: Device
    dtype: str

    @property
    def launch(self) -> float:
        """As on drivers of processors; those of GPUs are not compared by it."""
        return _LAUNCH

    def bind(self, layout: GroupedLayout, operands: GroupedOperands) -> Bound:
        """Tables built, kernel prepared, arguments set: what is left is enqueueing."""
        return self.bind_in(session(self.device), layout, operands)

    def bind_in(self, session_: Session, layout: GroupedLayout, operands: GroupedOperands) -> Bound:
        """The same in somebody else's session."""
        tables = Tables.of(layout, operands)
        launches = self._launches(session_, layout, operands, tables)
        return Bound(session_, launches, (tables, operands), wait=operands.bases is None)

    @abstractmethod
    def _launches(
        self, session_: Session, layout: GroupedLayout, operands: GroupedOperands, tables: Tables
    ) -> Launches:
        """Every launch with its arguments."""

    def _arithmetic(self) -> Defines:
        """Those of them that say what an element is."""
        return arithmetic(self.dtype, sums_of(self.dtype), preferences(self.device).multiply_add)

    def _common(self, operands: GroupedOperands, **more: int) -> Defines:
        """The -D options of every grouped kernel."""
        return (
            *self._arithmetic(),
            ("POINTERS", int(operands.bases is None)),
            *more.items(),
        )


@dataclass(frozen=True)
class CpuGroups(Groups):
    """`grouped_lanes`, one launch for all tiles."""

    @property
    def tiles(self) -> tuple[Tile, ...]:
        """Those whose strips of sums fit into local memory beside a strip of B."""
        return tuple(tile for tile in _CPU_TILES if tile.m <= self._held - self._depth)

    @property
    def slots(self) -> Slots:
        """The thread pool deals tiles to the cores as they come free.

        Products are not cut along k: two cores are busy with far less than one product.
        """
        return Slots(self.device.compute_units, merge=np.inf, jump=_JUMP)

    @property
    def is_built(self) -> bool:
        """Whether this process has launched it on lists of arrays."""
        launched = kernels.keys()  # as they are now: other threads launch
        known = {*self._arithmetic(), ("POINTERS", 1)}
        return any(
            at.device == self.device and program == "grouped_lanes" and known.issubset(defines)
            for at, program, defines in launched
        )

    def _launches(
        self, session_: Session, layout: GroupedLayout, operands: GroupedOperands, tables: Tables
    ) -> Launches:
        """One launch, each work-group with tiles for about the same time."""
        defines = self._common(
            operands,
            LANES=self._lanes,
            DEPTH=self._depth,
            TILE_ROWS=max(tile.m for tile in self.tiles),
        )
        count = len(tables.tiles)
        busy = layout.seconds * self.slots.count
        chunk = int(np.clip(_GROUP_SECONDS * count / busy, 1, 16)) if busy else 1
        launch = _launch("grouped_lanes", defines, -(-count // chunk), self._lanes)
        return [(launch, Arguments(session_, tables, operands).multiply(count, chunk))]

    @property
    def _lanes(self) -> int:
        """Sums of a vector of 64 bytes."""
        return 64 // ITEMSIZE[sums_of(self.dtype)]

    @property
    def _held(self) -> int:
        """Strips of sums, or steps of a strip of B, that local memory holds."""
        return self.device.local_memory // (64 * _VECTORS)

    @property
    def _depth(self) -> int:
        return min(_DEPTH, self._held // 2)


@dataclass(frozen=True)
class GpuGroups(Groups):
    """`grouped`, one launch a tile shape, and `sum_parts` behind it."""

    @property
    def tiles(self) -> tuple[Tile, ...]:
        """Rates and overheads of one slot, from those of a whole H200."""
        slots = _H200_UNITS * _GPU_RESIDENT
        return tuple(
            Tile.timed(*shape[:3], fixed, slope, slots) for shape, fixed, slope in _GPU_TILES
        )

    @property
    def slots(self) -> Slots:
        """Parts would need addresses of scratch on devices with system SVM; half loses in sums."""
        whole = self.dtype == "float16" or self.device.has("svm_system")
        merge = np.inf if whole else 2e-11 * _H200_UNITS * _GPU_RESIDENT
        # A launch of its own costs its idle end besides the start: on an H200 three shapes take
        # 0.25 ms for 1000 of 1..256 where one that trims its edges takes 0.20.
        return Slots(self.device.compute_units, _GPU_RESIDENT, launch=40e-6, merge=merge)

    def _launches(
        self, session_: Session, layout: GroupedLayout, operands: GroupedOperands, tables: Tables
    ) -> Launches:
        """A launch for each run of one tile shape, parts first; then their sums."""
        # Buckets may interleave shapes; a launch has one.
        by_shape = np.argsort(_shape_index(tables.tiles), kind="stable")
        parts_by_shape = np.argsort(_shape_index(tables.part_tiles), kind="stable")
        tiles, parts = tables.tiles[by_shape], tables.part_tiles[parts_by_shape]
        sorted_ = replace(tables, tiles=tiles, part_tiles=parts)
        arguments = Arguments(session_, sorted_, operands)
        multiply, longest = self._launch, tables.longest
        launches = [
            (multiply(index, count, operands, longest, parts=1), arguments.multiply_parts(first))
            for index, first, count in _runs(parts)
        ]
        launches += [
            (multiply(index, count, operands, longest, parts=0), arguments.multiply(first))
            for index, first, count in _runs(tiles)
        ]
        if len(tables.pieces):
            add = _launch("sum_parts", self._common(operands, CHUNK=CHUNK), len(tables.pieces), 64)
            launches.append((add, arguments.add_parts()))
        return launches

    def _launch(
        self, index: int, count: int, operands: GroupedOperands, longest: int, parts: int
    ) -> Launch:
        (m, n, k, micro_m, micro_n, trim), _, _ = _GPU_TILES[index]
        if self.dtype == "float64":
            # Half as many sums fit the registers; shapes stay those of the plan.
            micro_m, micro_n, trim = max(2, micro_m // 2), micro_n, min(trim, 2)
        item = ITEMSIZE[self.dtype]
        defines = self._common(
            operands,
            TILE_M=m,
            TILE_N=n,
            TILE_K=k,
            MICRO_M=micro_m,
            MICRO_N=micro_n,
            TRIM=trim,
            A_ALONG=int(_is_along(operands.a, item)),
            B_ALONG=int(_is_along(operands.b, item)),
            REQUIRE_GROUP=preferences(self.device).require_group,
            PARTS=parts,
        )
        if longest > CHAIN:
            defines = (*defines, *chains(self.dtype, sums_of(self.dtype), longest))
        if _is_near(operands, max(m, n), k):
            defines = (*defines, ("OFFSET", "int"))
        return _launch("grouped", defines, count, m // micro_m * (n // micro_n), "grouped_tiles")


def grouped_of(device: Device, dtype: str) -> Groups | None:
    """The grouped kernels of a device, or None where it has none for this dtype."""
    if dtype not in device.dtypes:
        return None
    return CpuGroups(device, dtype) if device.kind == "cpu" else GpuGroups(device, dtype)


def _launch(
    program: str,
    defines: Defines,
    groups: int,
    group: int,
    entry: str | None = None,
) -> Launch:
    return Launch(program, entry or program, defines, (groups * group, 1), (group, 1), ())


def _shape_index(tiles: Table) -> Table:
    """Index into _GPU_TILES of every tile, from the shape that it carries."""
    codes = [shape[0] << 16 | shape[1] for shape, _, _ in _GPU_TILES]
    index = np.zeros(len(tiles), np.int64)
    for number, code in enumerate(codes):
        index[tiles[:, 3] == code] = number
    return index


def _runs(tiles: Table) -> list[tuple[int, int, int]]:
    """(shape, first, count) of every run of one shape."""
    index = _shape_index(tiles)
    starts = np.flatnonzero(np.diff(index, prepend=-1))
    stops = np.append(starts, len(index))[1:]
    return [
        (int(index[start]), int(start), int(stop - start))
        for start, stop in zip(starts, stops, strict=True)
    ]


def _is_near(operands: GroupedOperands, side: int, depth: int) -> bool:
    """Whether every element of a block lies within 2^31 elements of its first: 32-bit offsets then
    do, and save 15 % on an H200.
    """
    steps = [
        side * int(np.abs(part).max(initial=0)) + depth * int(np.abs(other).max(initial=0))
        for part, other in (
            (operands.a.row, operands.a.col),
            (operands.b.col, operands.b.row),
        )
    ]
    return max(steps) < 2**31 * ITEMSIZE[operands.dtype]


def _is_along(part: Columns, item: int) -> bool:
    """Whether rows follow one another in every matrix, and columns do not."""
    return bool((part.row == item).all() and not (part.col == item).all())
