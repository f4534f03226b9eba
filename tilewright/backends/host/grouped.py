"""Batches of products on the host without OpenCL: micro-kernels that Numba compiles, on all cores.

layout      which tile computes what, in which order, what is cut along k     planning/grouped.py
tables      a record a product, a row a tile, cuts between tasks of a few µs
program     step 1 multiplies, step 2 adds what was cut along k               program.py
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from threading import RLock, Thread, current_thread, main_thread
from typing import Any

import numpy as np
import numpy.typing as npt

from tilewright import settings
from tilewright.arrays.record import WORDS, fill
from tilewright.backends.host import compiled, rates
from tilewright.backends.host.kernels.step_table import STEP
from tilewright.backends.host.narrow import KINDS, Elements
from tilewright.backends.host.program import Program
from tilewright.engines.grouped import GroupedKernel, GroupedOperands
from tilewright.facts.device import Device
from tilewright.planning.buckets import Tile
from tilewright.planning.grouped import GroupedLayout
from tilewright.planning.makespan import Slots

Table = npt.NDArray[Any]
DTYPES = tuple(KINDS)
# Rows and columns of tiles; the share of a core's peak that they reach; seconds of one. Rows count
# by fours, columns by vectors, k by fours: what products of few of them lose.
_SHAPES = ((48, 96, 0.7), (192, 256, 0.76), (384, 512, 0.8))
# The same of AMX's tiles, by which rows, columns and k count then. They take so little time that
# packing B is a fourth of it below 192 rows: modelled.
_TILED_SHAPES = ((96, 96, 0.5), (192, 256, 0.76), (384, 256, 0.85))
OVERHEAD, _ROWS, _COLUMNS, _STEP = 5e-8, 4, 16, 4
_JUMP = 3e-8  # seconds that a core loses where the next product does not lie next in memory
_MERGE = 4e-10  # seconds in which it adds an element of a part
_LAUNCH = 1.5e-5
TASK = 6e-6  # seconds of a task: dealing one costs some 30 ns
_PIECE = 4096  # elements of a piece of a sum
_LOCK = RLock()
_begun: dict[str, Thread] = {}
_compiled: set[str] = set()
_refused: dict[str, str] = {}  # why the compiler failed, by dtype
# What else is compiled beside calls, under names of its own (`ragged.py`).
others: dict[str, Callable[[Device], list[Callable[[], object]]]] = {}
_AFTER = 0.25  # seconds after a call that meets no machine code, until its compiler begins
_CODES = {"none": 0, "relu": 1, "gelu": 2}


@dataclass(frozen=True)
class NativeGroups(GroupedKernel):
    """The kernels of `kernels/grouped.py` or `grouped_narrow.py` on the host, for one dtype."""

    device: Device
    dtype: str

    @property
    def tiles(self) -> tuple[Tile, ...]:
        """Three blocks, of which the larger repack less and the smaller balance better."""
        peak = rates.PEAK / rates.of(self.device).factor
        kind = KINDS[self.dtype]
        trim, step, shapes = (_ROWS, _COLUMNS // kind.wide), _STEP, _SHAPES
        if kind.has_tiles():
            tiles = compiled.kernels("grouped_amx")
            trim, step, shapes = (tiles.SIDE, tiles.SIDE), tiles.LINE // kind.item, _TILED_SHAPES
        return tuple(
            Tile(m, n // kind.wide, share * peak * kind.speed(), OVERHEAD, step, trim)
            for m, n, share in shapes
            if n <= kind.most
        )

    @property
    def slots(self) -> Slots:
        """A core each; long products are cut along k where cores would wait for one."""
        return Slots(self.device.compute_units, merge=_MERGE, jump=_JUMP)

    @property
    def launch(self) -> float:
        """Waking a helper that slept."""
        return _LAUNCH

    @property
    def is_built(self) -> bool:
        """Whether all that it runs is compiled in this process."""
        return self.dtype in _compiled

    @property
    def spares_large(self) -> bool:
        """Whether a bound batch leaves large products to a BLAS. Of 2000 x 2000 x 2000 on two cores
        (Zen 4) OpenBLAS has 222 GFLOP/s at best with AVX2 and this 207, a step of whose 6 x 2 sums
        begins 21 instructions in six cycles; with AVX-512 215 and 217."""
        return self.dtype in ("float32", "float64") and compiled.kernels("grouped").REGISTER < 64

    def bind(self, layout: GroupedLayout, operands: GroupedOperands) -> Program:
        """Tables made, code compiled: what is left is running."""
        compile_for(self.device, self.dtype)
        kind = KINDS[self.dtype]
        records = _records(layout, operands, kind)
        sums = np.empty(layout.sums.elements, kind.sums)
        if len(layout.sums):
            records = np.concatenate((records, _parts(layout, records, sums, kind)))
        tiles, cuts = _tiles(layout, records, kind)
        steps = [_step(kind.tiles, tiles, cuts)]
        steps[0]["multiply"] = compiled.code_of_products(kind.module, kind.item)
        steps[0]["amx"] = kind.code_of_tiles()
        keep: list[object] = [operands, records, sums, tiles, cuts]
        if len(layout.sums):
            pieces, ends = _pieces(layout, records, sums)
            steps.append(_step(kind.parts, pieces, ends))
            keep += [pieces, ends]
        kernel = compiled.kernels(kind.module)
        scratch = kernel.scratch(max(tile.m for tile in layout.tiles), kind.item)
        return Program(np.array(steps), scratch, self.device.compute_units, layout.seconds, keep)


def _step(kind: int, queue: Table, cuts: Table) -> Table:
    step: Table = np.zeros(1, STEP)[0]
    step["kind"], step["tasks"] = kind, len(cuts) - 1
    step["queue"], step["cuts"] = queue.ctypes.data, cuts.ctypes.data
    return step


def _records(layout: GroupedLayout, operands: GroupedOperands, kind: Elements) -> Table:
    """As `arrays/record.py` has them, strides in bytes; behind them what ends a product."""
    kernel = compiled.kernels("grouped")
    bias = operands.bias
    k = np.where(operands.alpha == 0, 0, layout.k)  # BLAS: A and B are then not read
    records = np.zeros((len(layout.order), WORDS), np.int64)
    place: Any = 0 if bias is None else np.where(bias.rows > 0, bias.address, 0)
    fill(records, (operands.a, operands.b, operands.c), place, (layout.m, layout.n, k), 1)
    records[:, kernel.ALPHA] = operands.alpha.astype(np.float64).view(np.int64)
    records[:, kernel.BETA] = operands.beta.astype(np.float64).view(np.int64)
    ends = _CODES[operands.activation]
    plain = (operands.alpha == 1) & (operands.beta == 0) & (records[:, kernel.BIAS] == 0)
    plain &= (records[:, kernel.C_COL] == kind.result) & (ends == 0)
    records[:, kernel.ENDS] = np.where(plain, kernel.PLAIN, ends)
    return records


def _parts(layout: GroupedLayout, records: Table, sums: Table, kind: Elements) -> Table:
    """Records of the parts of products cut along k: plain products into `sums`."""
    kernel, item = compiled.kernels("grouped"), sums.itemsize
    owner = np.repeat(np.arange(len(layout.sums)), layout.sums.parts)
    number = np.arange(len(owner)) - _first_part(layout)[layout.sums.problem[owner]]
    problem = layout.sums.problem[owner]
    depth = layout.depth[problem]
    begin = number * depth
    made = records[problem]
    made[:, kernel.A] += begin * made[:, kernel.A_COL]
    made[:, kernel.B] += begin * made[:, kernel.B_ROW]
    made[:, kernel.C] = sums.ctypes.data + item * (
        layout.sums.offset[owner] + number * layout.m[problem] * layout.n[problem]
    )
    made[:, kernel.BIAS] = 0
    made[:, kernel.K] = np.clip(made[:, kernel.K] - begin, 0, depth)
    made[:, kernel.C_ROW], made[:, kernel.C_COL] = item * layout.n[problem], item
    made[:, kernel.ALPHA], made[:, kernel.BETA] = np.array([1.0, 0.0]).view(np.int64)
    made[:, kernel.ENDS] = kernel.PLAIN | kind.as_sums
    return made


def _first_part(layout: GroupedLayout) -> Table:
    """How many parts lie before a cut product's first, by product."""
    first = np.zeros(len(layout.order), np.int64)
    first[layout.sums.problem] = np.cumsum(layout.sums.parts) - layout.sums.parts
    return first


def _pieces(layout: GroupedLayout, records: Table, sums: Table) -> tuple[Table, Table]:
    """Rows of sums to be added up, each a task: record, first part, parts, row, rows."""
    found = []
    columns = (layout.sums.problem, layout.sums.parts, layout.sums.offset)
    for problem, parts, offset in zip(*(column.tolist() for column in columns), strict=True):
        m, n = int(layout.m[problem]), int(layout.n[problem])
        record = records.ctypes.data + records.strides[0] * problem
        rows = max(1, _PIECE // n)
        place = sums.ctypes.data + sums.itemsize * offset
        found += [(record, place, parts, row, min(rows, m - row)) for row in range(0, m, rows)]
    return np.array(found, np.int64), np.arange(len(found) + 1)


def _even(size: Table, most: Table, step: int) -> Table:
    """Rows, or columns, of tiles of at most so many, as even as multiples of `step` are."""
    count = np.maximum(-(-size // most), 1)
    each: Table = step * -(-size // (count * step))
    return each


def _tiles(layout: GroupedLayout, records: Table, kind: Elements) -> tuple[Table, Table]:
    """Every tile in launch order, and the first of every task. Tiles of a product are of one size,
    as near as blocks and panels let them be: the planner counts them as equal."""
    queue, kernel = layout.queue, compiled.kernels("grouped")
    shapes = np.array([(tile.m, tile.n) for tile in layout.tiles], np.int64)
    high, wide = shapes[layout.tile].T
    block = _block(layout, kind)
    high = _even(layout.m, high, block)
    wide = _even(layout.n, wide, kernel.PANEL // kind.sums.itemsize)
    problem = queue.problem.astype(np.int64)
    high, wide = high[problem], wide[problem]
    tiles = np.empty((len(queue), 5), np.int64)
    row_of = problem
    if len(layout.sums):
        parts = len(layout.order) + _first_part(layout)[problem] + queue.part
        row_of = np.where(layout.parts[problem] > 1, parts, problem)
    tiles[:, 0] = records.ctypes.data + records.strides[0] * row_of
    tiles[:, 1], tiles[:, 2] = queue.row * high, queue.col * wide
    tiles[:, 3] = np.minimum(high, layout.m[problem] - tiles[:, 1])
    tiles[:, 4] = np.minimum(wide, layout.n[problem] - tiles[:, 2])
    return tiles, _cuts(layout, tiles)


def _block(layout: GroupedLayout, kind: Elements) -> int:
    """What rows of tiles are a multiple of: of AMX's tiles, where the plan was made for those. Any
    block divides the rows of every tile of a layout, or a product's last tile might have none."""
    rows: int = compiled.kernels("grouped_amx").ROWS if kind.has_tiles() else 0
    if rows and all(tile.m % rows == 0 for tile in layout.tiles):
        return rows
    block: int = compiled.kernels("grouped").BLOCK
    return block


def _cuts(layout: GroupedLayout, tiles: Table) -> Table:
    """Tasks of about the same time, so that every core's share of them is.

    A tile is in the task in which its middle lies: by their ends rounding alone would decide where
    equal tiles go, and two of them make one task.
    """
    queue = layout.queue
    depth = (queue.k_end - queue.k_begin).astype(np.float64)
    rate = np.array([tile.rate for tile in layout.tiles])[layout.tile[queue.problem]]
    each = OVERHEAD + 2.0 * tiles[:, 3] * tiles[:, 4] * depth / rate
    if not len(each):
        return np.zeros(1, np.int64)
    seconds = np.cumsum(each)
    count = int(np.clip(seconds[-1] / TASK, 1, len(tiles)))
    ends = np.searchsorted(seconds - each / 2, np.arange(1, count) * (seconds[-1] / count))
    cuts = np.unique(np.concatenate(([0], ends, [len(tiles)])))
    return cuts.astype(np.int64)


def grouped_of(device: Device, dtype: str) -> NativeGroups | None:
    """The grouped kernels of the host, or None where Numba is absent or the dtype another."""
    if dtype not in DTYPES or not compiled.available():
        return None
    return NativeGroups(device, dtype)


def why_not_yet(device: Device, dtype: str) -> str | None:
    """Why a call cannot have them at once; another thread compiles them from now on.

    Without a cache folder every process would compile them anew: then only who binds does.
    """
    if dtype in _compiled:
        return None
    if settings.cache_folder() is None:
        return "there is no cache folder: its machine code is compiled where a plan is bound"
    _begin(device, dtype)
    return _refused.get(dtype, "its machine code is not compiled yet")


def is_coming(dtype: str) -> bool:
    """Whether calls have them now, or will have them without waiting for a compiler."""
    if dtype in _compiled:
        return True
    able = (dtype in DTYPES or dtype in others) and dtype not in _refused and compiled.available()
    return able and settings.cache_folder() is not None


def why_never(dtype: str) -> str | None:
    """Why the machine code cannot be had in this process."""
    return _refused.get(dtype)


def is_compiled(dtype: str) -> bool:
    """Whether everything is there in this process."""
    return dtype in _compiled


def compile_for(device: Device, dtype: str) -> None:
    """Everything that a bound batch calls, from the cache folder where it is there."""
    if dtype not in _compiled:
        for compile_one in _stages(device, dtype):
            compile_one()
        _compiled.add(dtype)


def _stages(device: Device, dtype: str) -> list[Callable[[], object]]:
    """What there is to compile, a function of a second or two each."""
    if dtype in others:
        return others[dtype](device)
    kind = KINDS[dtype]

    def serve() -> None:  # else a helper compiles it, later
        compiled.kernels("crew").serve.compile("void(intp, intp, intp)")

    return [
        partial(compiled.code_of_products, kind.module, kind.item),
        kind.code_of_tiles,
        *(partial(compiled.compile_tile, kind.module, kind.item, i) for i in range(kind.pieces)),
        *(partial(compiled.code_of_step, step) for step in (kind.tiles, kind.parts)),
        *([compiled.compile_lists] if kind.module == "grouped" else []),
        serve,
        lambda: Program(np.zeros(1, STEP), 0, device.compute_units, 1.0, ())(),  # what runs it, too
    ]


def _compile_beside(device: Device, dtype: str) -> None:
    """In a thread: no further than to the next function once the process is to end.

    What it made until then is in the cache folder, so that the next process goes on from there.
    Where the compiler fails nobody waits for it, and calls go without: who binds is told. The call
    that asks for it ends first: both would wait for the interpreter's lock.
    """
    main_thread().join(_AFTER)
    try:
        for compile_one in _stages(device, dtype):
            if not main_thread().is_alive():
                return
            compile_one()
    except Exception as error:
        line = str(error).strip().partition("\n")[0]
        _refused[dtype] = f"its machine code cannot be compiled: {type(error).__name__}: {line}"
    else:
        _compiled.add(dtype)


def _begin(device: Device, dtype: str) -> None:
    """Compile in a thread, once; it ends before the process does, or forks."""
    with _LOCK:
        if dtype in _begun or not main_thread().is_alive():
            return
        name = f"tilewright-compiles-{dtype}"
        thread = Thread(target=_compile_beside, args=(device, dtype), name=name)
        try:
            thread.start()
        except RuntimeError:  # the system gives no more threads now: a later call asks again
            return
        _begun[dtype] = thread


def _end() -> None:
    """Wait for what compiles: a forked child would find Numba's lock taken for good.

    Nothing more is begun until the child is there.
    """
    _LOCK.acquire()
    for thread in list(_begun.values()):
        if thread is not current_thread():
            thread.join()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_end, after_in_parent=_LOCK.release, after_in_child=_LOCK.release)
