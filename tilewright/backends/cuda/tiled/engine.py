"""The engine `triton_grouped`: any batch, by tiles of a few shapes, on every GPU Triton knows.

propose   lay the batch out by this device's shapes (planning.grouped), cached by sizes
kernels   records and tile lists in one table; one launch a shape and a kind of memory layout,
          side by side, and a second phase where long products are cut along k
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from tilewright.arrays.record import WORDS
from tilewright.backends.cuda.machine.fixed import moving
from tilewright.backends.cuda.machine.placing import Draft, Kernels, Launch, bound, places, sources
from tilewright.backends.cuda.machine.streams import in_turn, side_by_side
from tilewright.backends.cuda.machine.tables import records
from tilewright.backends.cuda.machine.triton_launch import Pointer, Task, placed, triton_type
from tilewright.backends.cuda.tile_seconds import TileShape, shapes_of, slots_of
from tilewright.backends.cuda.tiled import simt
from tilewright.backends.cuda.tiled.joined import SUMS, joined, places_of
from tilewright.backends.cuda.tiled.layouts import Group, codes, is_mostly_wide, kinds
from tilewright.backends.cuda.tiled.little import laid_out, little
from tilewright.backends.cuda.tiled.parts import Parts, adding, parts_of
from tilewright.backends.cuda.work import Ints, Moving, Prepared, Work
from tilewright.errors import KernelError
from tilewright.facts.device import Device
from tilewright.facts.dtypes import ITEMSIZE, PARTS, sums_of
from tilewright.facts.measured import h200
from tilewright.facts.measured.scale import scale
from tilewright.facts.verdict import Proposal
from tilewright.planning.buckets import Table, Tile
from tilewright.planning.deal import Floats
from tilewright.planning.grouped import GroupedLayout, lay_out, signature
from tilewright.planning.makespan import Slots
from tilewright.planning.single import Single
from tilewright.remember import Shelf

_layouts: Shelf[bytes, GroupedLayout] = Shelf("tiles of batches on GPUs", most=128 << 20)
_ROUNDED = 1 - 1e-9  # of a sum, taken in another order
_HALVINGS = 4


@dataclass(frozen=True, slots=True)
class _Tiles:
    """What was decided: how problems lie (layouts.codes), their tiles, the tiles' shapes."""

    code: Ints
    plan: GroupedLayout | Single
    shapes: tuple[TileShape, ...]
    precision: str


class TritonGrouped:
    """The Triton kernels `grouped_tiles`, `sum_parts` and, of complex numbers, `complex_tiles`."""

    name = "triton_grouped"
    effort = 1  # every tile is laid out

    def why_not(self, work: Work, device: Device) -> str | None:
        """Takes every batch in the dtype's own arithmetic, which serves fp32x too, and tf32."""
        if work.precision == "fp32x" and work.dtype != "float32":
            return f"has no fp32x for {work.dtype}"
        there = PARTS.get(work.dtype, work.dtype) in device.dtypes
        return None if there else f"{device.name} has no {work.dtype}"

    def least(self, work: Work, device: Device) -> float:
        """All work by the shapes that take least, spread evenly."""
        return _least(work, device)

    def propose(self, work: Work, device: Device) -> Proposal:
        """The layout predicted fastest by these shapes."""
        return self._proposal(_laid_out(work, device), work, device)

    def bind(self, proposal: Proposal, work: Work) -> Prepared:
        """Tables uploaded, for these addresses."""
        return bound(self._kernels(proposal, work), work)

    def move(self, proposal: Proposal, work: Work) -> Moving:
        """Tables that travel at each launch."""
        return moving(self._kernels(proposal, work), work)

    def _kernels(self, proposal: Proposal, work: Work) -> Kernels:
        tiles: _Tiles = proposal.decisions
        plan = tiles.plan
        return _few(work, tiles, plan) if isinstance(plan, Single) else _many(work, tiles, plan)

    def _scratch(self, plan: GroupedLayout, work: Work) -> int:
        return plan.sums.elements * ITEMSIZE[sums_of(work.dtype)]

    def _proposal(self, tiles: _Tiles, work: Work, device: Device) -> Proposal:
        plan, size = tiles.plan, 0
        if isinstance(plan, Single):
            shape = tiles.shapes[plan.shape]
            reason = f"given: good enough, none better is sought; tiles {shape.m} x {shape.n}"
        else:
            reason = f"{plan.reason}; {_words(plan)}"
            size = self._scratch(plan, work)
        if work.precision == "tf32" and tiles.precision != "tf32":
            reason += f"; in IEEE float32, as {device.version} has no tf32"
        if work.precision == "fp32x":
            reason += "; in IEEE float32"
        seconds = plan.seconds + h200.TILE_START
        return Proposal(self.name, device, seconds, reason, size, decisions=tiles)


class TritonWhole(TritonGrouped):
    """The same with no product cut along k: no scratch, for where there is no room for any."""

    name = "triton_whole"

    def least(self, work: Work, device: Device) -> float:
        """No less than the longest of the shortest tiles."""
        return _least(work, device, cut=False)

    def propose(self, work: Work, device: Device) -> Proposal:
        """Takes what triton_grouped would cut."""
        plan = _laid_out(work, device).plan
        if isinstance(plan, Single) or not plan.sums.elements:
            raise KernelError("nothing is cut: as triton_grouped")
        return self._proposal(_laid_out(work, device, cut=False), work, device)


class CudaGrouped(TritonGrouped):
    """triton_grouped, large fp32 tiles and all fp64 ones by kernels in CUDA C++ (simt.py)."""

    name = "cuda_grouped"

    def why_not(self, work: Work, device: Device) -> str | None:
        """Takes fp32 and fp64 whose rows lie element by element."""
        return simt.why_not(work, device) or super().why_not(work, device)

    def least(self, work: Work, device: Device) -> float:
        """As of the others, by its own shapes."""
        return _least(work, device, cuda=True)

    def propose(self, work: Work, device: Device) -> Proposal:
        """Takes batches of which some tile is large."""
        tiles = _laid_out(work, device, cuda=True)
        plan = tiles.plan
        used = [plan.shape] if isinstance(plan, Single) else np.unique(plan.tile).tolist()
        if not any(tiles.shapes[shape].cuda for shape in used):
            raise KernelError("no tile is large: as triton_grouped")
        return self._proposal(tiles, work, device)

    def _kernels(self, proposal: Proposal, work: Work) -> Kernels:
        tiles: _Tiles = proposal.decisions
        plan = tiles.plan
        return _few(work, tiles, plan) if isinstance(plan, Single) else _joined(work, tiles, plan)

    def _scratch(self, plan: GroupedLayout, work: Work) -> int:
        return places_of(plan) * SUMS * ITEMSIZE[work.dtype]


def _precision(work: Work, device: Device) -> str:
    wants = work.precision == "tf32" and work.dtype == "float32" and device.has("tf32")
    return "tf32" if wants else "ieee"


@dataclass(frozen=True, slots=True)
class _Given:
    """What a batch is laid out by: its layouts (layouts.codes), shapes, tiles and scheduler."""

    code: Ints
    shapes: tuple[TileShape, ...]
    tiles: tuple[Tile, ...]
    slots: Slots
    precision: str
    facts: tuple[object, ...]

    @classmethod
    def of(cls, work: Work, device: Device, *, cut: bool, cuda: bool) -> _Given:
        """Of a batch on a device."""
        code, precision = codes(work), _precision(work, device)
        wide = is_mostly_wide(work, code)
        faster = scale(device, work.dtype, precision).multiply
        facts = (device.compute_units, device.local_memory, faster, work.dtype, precision)
        shapes = shapes_of(work.dtype, device, precision, wide=wide, cuda=cuda)
        cut = cut and work.dtype not in PARTS  # sum_parts adds real numbers
        tiles = tuple(shape.tile(faster) for shape in shapes)
        resident = shapes[0].resident if shapes else h200.RESIDENT
        slots = slots_of(device, cut=cut, adds=not cuda, resident=resident)
        return cls(code, shapes, tiles, slots, precision, (*facts, wide, cuda, work.order, cut))


def _least(work: Work, device: Device, *, cut: bool = True, cuda: bool = False) -> float:
    """Seconds that no layout undercuts: parts of a product are no less work than all of it."""
    given = _Given.of(work, device, cut=cut, cuda=cuda)
    table = Table.of(work.m, work.n, work.k, given.tiles)
    flow = table.counts * table.seconds
    seconds = float(flow.min(axis=0).sum()) / given.slots.count
    if not cut:
        longest = float(table.seconds.min(axis=0).max(initial=0.0))
        seconds = _least_whole(table.seconds, flow, max(seconds, longest), given.slots.count)
    return (seconds + given.slots.launch + h200.TILE_START) * _ROUNDED


def _least_whole(seconds: Floats, work: Floats, least: float, slots: int) -> float:
    """The same where no tile may take longer than all: only some shapes will do for a deep product.

    What takes so many seconds has no tile that takes longer, and its work by the shapes that are
    left fits into the slots.
    """

    def fit(limit: float) -> bool:
        return float(np.where(seconds <= limit, work, np.inf).min(axis=0).sum()) <= limit * slots

    most = least
    while not fit(most):
        least, most = most, 2 * most
    for _ in range(_HALVINGS if most > least else 0):
        middle = (least + most) / 2
        least, most = (least, middle) if fit(middle) else (middle, most)
    return least


def _laid_out(work: Work, device: Device, *, cut: bool = True, cuda: bool = False) -> _Tiles:
    """The tiles of a batch; layouts are kept by sizes, but those that are made in one pass."""
    given = _Given.of(work, device, cut=cut, cuda=cuda)
    tiles, slots = given.tiles, given.slots
    few = little(work, tiles, slots)
    if few is not None:
        return _Tiles(given.code, few, given.shapes, given.precision)
    key = signature(work.m, work.n, work.k, *given.facts)

    def made() -> GroupedLayout:
        return lay_out(work.m, work.n, work.k, tiles, slots, work.order)

    plan = _layouts.found(key, made, _bytes)
    return _Tiles(given.code, plan, given.shapes, given.precision)


def _bytes(layout: GroupedLayout) -> int:
    """What a layout holds: columns over problems and over tiles."""
    return 64 * len(layout.tile) + 40 * len(layout.queue)


def _words(layout: GroupedLayout) -> str:
    counts = np.bincount(layout.tile, minlength=len(layout.tiles)).tolist()
    used = [(tile, count) for tile, count in zip(layout.tiles, counts, strict=True) if count]
    return "tiles " + ", ".join(f"{tile.m} x {tile.n}: {count}" for tile, count in used)


def _few(work: Work, decided: _Tiles, plan: Single) -> Kernels:
    """The kernels of little work, its one table written at once (little.py)."""
    shape = decided.shapes[plan.shape]
    code = _lying(decided.code, np.array([shape.cuda]))
    template, groups = laid_out(work, code, plan, shape)
    launches = _products(work, decided, groups, 0, 8 * WORDS * len(work.m))
    return Kernels(template, side_by_side(launches, work.ordinal), len(launches))


def _many(work: Work, decided: _Tiles, layout: GroupedLayout) -> Kernels:
    """Tables laid out, kernels compiled: what is left is placing and launching."""
    parts = parts_of(work, layout)
    where, draft = sources(work), Draft(places(work))
    table = records(work)
    columns = [where.a, where.b, where.c, where.bias]
    if parts.bytes:
        own = parts.problem
        table = np.concatenate((table, parts.records(table, work.dtype, 0)))
        scratch = np.full(len(own), where.scratch)
        more = (where.a[own], where.b[own], scratch, np.full(len(own), -1))
        columns = [np.concatenate(pair) for pair in zip(columns, more, strict=True)]
    tiles, groups = _grouped_tiles(work, decided.code, layout, parts)
    table_at = draft.add(table, *enumerate(columns))
    splits_at, tiles_at, pieces_at = (draft.add(x) for x in (parts.splits, tiles, parts.pieces))
    products = _products(work, decided, groups, table_at, tiles_at)
    phases = [side_by_side(products, work.ordinal)]
    if len(parts.pieces):
        lists = (Pointer("int64", table_at), Pointer("int64", splits_at))
        pieces = Pointer("int32", pieces_at)
        task = adding(work, (*lists, pieces), parts.bytes, len(parts.pieces))
        phases.append(placed(task, work.ordinal))
    count = len(products) + bool(len(parts.pieces))
    return Kernels(draft.template(parts.bytes), in_turn(phases), count)


def _lying(code: Ints, cuda: npt.NDArray[np.bool_]) -> Ints:
    """`code` where problems' tiles are Triton's; those in CUDA C++ lie alike: they look themselves.

    One launch begins with the deepest tiles; of two, a ResNet-50's convolutions, whichever the chip
    took first, those of the other came late: 0.378 ms where 0.23 were predicted (H200).
    """
    return np.where(cuda, 0, code)


def _joined(work: Work, decided: _Tiles, layout: GroupedLayout) -> Kernels:
    """The same of tiles whose parts blocks add up by twos."""
    where, draft, made = sources(work), Draft(places(work)), joined(layout)
    uncut = Parts.none(len(work.m))
    cuda = np.array([shape.cuda for shape in decided.shapes])[layout.tile]
    code = _lying(decided.code, cuda)
    tiles, groups = _grouped_tiles(work, code, layout, uncut, made.piece)
    columns = enumerate((where.a, where.b, where.c, where.bias))
    table_at, tiles_at = draft.add(records(work), *columns), draft.add(tiles)
    pieces = (draft.add(made.pieces), draft.add(np.zeros(made.places, np.int32)))
    products = _products(work, decided, groups, table_at, tiles_at, pieces)
    template = draft.template(made.places * SUMS * ITEMSIZE[work.dtype])
    return Kernels(template, side_by_side(products, work.ordinal), len(products))


def _products(
    work: Work,
    decided: _Tiles,
    groups: list[Group],
    table: int,
    tiles: int,
    pieces: tuple[int, int] = (0, 0),
) -> list[Launch]:
    """The launch of each group; the records begin at byte `table`, the tiles at byte `tiles`."""
    launches = []
    for group in groups:
        shape = decided.shapes[group.shape]
        if shape.cuda:
            one = simt.product(work, shape, group, table, tiles, pieces, plain=is_plain(work))
        else:
            task = _multiply(work, shape, group, decided.precision, table, tiles)
            one = placed(task, work.ordinal)
        launches.append(one)
    return launches


def _grouped_tiles(
    work: Work,
    code: Ints,
    layout: GroupedLayout,
    parts: Parts,
    piece: npt.NDArray[np.int32] | None = None,
) -> tuple[npt.NDArray[np.int32], list[Group]]:
    """The tile list, launch after launch, and the launches. Within one the plan's order stays."""
    queue = layout.queue
    heights = np.array([tile.m for tile in layout.tiles], np.int32)[layout.tile]
    widths = np.array([tile.n for tile in layout.tiles], np.int32)[layout.tile]
    entry = np.zeros((len(queue), 4), np.int32)
    entry[:, 0] = parts.record_of(queue.problem, queue.part)
    np.multiply(queue.row, heights[queue.problem], out=entry[:, 1])
    np.multiply(queue.col, widths[queue.problem], out=entry[:, 2])
    shape = layout.tile.astype(np.int64)
    order, groups = kinds(work, code, queue.problem, shape, parts.is_cut)
    if piece is not None:
        entry[:, 3] = piece
    entry = entry if order is None else entry[order]
    if piece is not None:
        groups = [
            replace(x, parts=bool(entry[x.first : x.first + x.count, 3].any())) for x in groups
        ]
    return entry, groups


def _multiply(
    work: Work, shape: TileShape, group: Group, precision: str, table: int, tiles: int
) -> Task:
    if work.dtype in PARTS:
        return _multiply_complex(work, shape, group, table, tiles)
    from tilewright.backends.cuda.kernels.triton.grouped import grouped_tiles

    constants = {
        "DTYPE": triton_type(work.dtype),
        "SUM": triton_type(sums_of(work.dtype)),
        "TILE_M": shape.m,
        "TILE_N": shape.n,
        "TILE_K": shape.k,
        **dict(_promises(work, group)),
        "PRECISION": precision,
        "ACTIVATION": "none" if group.parts else work.activation,
    }
    options = {"num_warps": shape.warps, "num_stages": shape.stages}
    mine = Pointer("int32", tiles + 16 * group.first)
    arguments = (Pointer("int64", table), mine, group.count)
    return Task(grouped_tiles, group.count, arguments, constants, options)


def _multiply_complex(work: Work, shape: TileShape, group: Group, table: int, tiles: int) -> Task:
    from tilewright.backends.cuda.kernels.triton.grouped_complex import complex_tiles

    constants = {
        "PART": triton_type(PARTS[work.dtype]),
        "TILE_M": shape.m,
        "TILE_N": shape.n,
        "TILE_K": shape.k,
        **{f"{name}_ALONG": getattr(group, f"{name.lower()}_along") for name in "ABC"},
        "NEAR": group.near,
        "SCALED": bool((work.alpha != 1).any() or (work.beta != 0).any()),
        "BIAS": work.bias is not None and bool(work.bias.address.any()),
    }
    options = {"num_warps": shape.warps, "num_stages": shape.stages}
    mine = Pointer("int32", tiles + 16 * group.first)
    arguments = (Pointer("int64", table), mine, group.count)
    return Task(complex_tiles, group.count, arguments, constants, options)


def _promises(work: Work, group: Group) -> Iterator[tuple[str, Any]]:
    """What the kernel may take for granted, in the order of its parameters."""
    yield "A_ALONG", group.a_along
    yield "B_ALONG", group.b_along
    yield "C_ALONG", group.c_along
    yield "WIDE", group.wide
    yield "NEAR", group.near
    yield "ALPHA", bool((work.alpha != 1).any())
    yield "BETA", bool((work.beta != 0).any())
    yield "BIAS", work.bias is not None and bool(work.bias.address.any())
    yield "PARTS", group.parts


def is_plain(work: Work) -> bool:
    """Whether C is the product and nothing else."""
    factors = (work.alpha == 1).all() and (work.beta == 0).all()
    return bool(factors) and work.bias is None and work.activation == "none"
