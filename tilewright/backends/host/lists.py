"""Products of lists of NumPy's matrices, read, cut and run anew at every call, without a plan.

    one = lists_of(device, dtype)     None until its machine code is compiled
    read = one.read((a, b, out, bias))
                                      what the lists hold; None where a matrix is not a plain one,
                                      or results, where they are given, do not lie apart
    read.is_sooner                    whether a loop of NumPy's would take longer
    read.large_flops                  operations that are left to NumPy's BLAS, after the others
    read.multiply()                   results, views of one allocation, or `out`
    one.looked((a, b, out, bias))     whether all of that holds, of a few for a loop of NumPy's

A plan found again costs a thousand products 0.55 ms of Python's and NumPy's functions, and one made
anew 1.3 ms, where a loop of NumPy's takes 3.0 for sizes of 1 to 64. What a plan weighs is decided
here by two rules: no tile has more than a share of all operations, or its product is cut along k,
and tasks take a few µs.

What a call needs waits in a list: a thread takes one and puts it back, so that no two share the
memory in which a call is read and cut (`kernels/lists.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import repeat
from typing import Any

import numpy as np

from tilewright.arrays import reused
from tilewright.arrays.addresses import Column, layout_holds
from tilewright.arrays.array import NDArray
from tilewright.backends.host import compiled, grouped
from tilewright.backends.host.crew import crew_of, looks
from tilewright.backends.host.kernels.step_table import STEP
from tilewright.backends.host.narrow import KINDS
from tilewright.facts.device import Device
from tilewright.planning.host_part import (
    LARGE,
    SIDE_OF_LISTS,
    SMALL,
    ZEROED,
    lost_by_lists,
    rule_of_lists,
)

DTYPES = ("float32", "float64")
_SHARE = 16  # tiles that every thread has at least, where products can be cut so far
# Where the largest tile that cannot be cut along k is more than so large a part of a thread's
# operations, threads would wait for one.
_PARTS = 3
# Parts of products cut along k, at most, for each tile that a thread has at least: such a product
# has more than a share, and one part more than whole shares. Bands of sums to a tile's rows.
_PARTS_OF_SHARE, _BANDS = 3, 6
_ALONE = 2e-5  # seconds that are shorter than waking another thread
_WAIT = 2e-4  # seconds that a thread looks for the others before it sleeps
_KEPT = 1 << 16  # products whose memory a thread leaves for the next call
ZEROS = {np.dtype(name): np.zeros((), name) for name in DTYPES}
_ENDS = {"none": 0, "relu": 1}
_RULES = np.array(
    [rule_of_lists(into=into, plain=plain) for into in (False, True) for plain in (True, False)]
)
# Operands, results and biases, the latter two or None; arrays that nobody exchanges meanwhile.
Held = tuple[tuple[Any, ...], tuple[Any, ...], tuple[Any, ...] | None, tuple[Any, ...] | None]


class Lists:
    """Products of one dtype on the host."""

    def __init__(self, device: Device, dtype: str) -> None:
        self.device, self.dtype = device, np.dtype(dtype)
        self.free: list[_Job] = []

    def read(self, held: Held, activation: str = "none") -> Read | None:
        """What these tuples hold, None where one is not a matrix of this dtype, lies at odd bytes,
        or does not fit its partner; where a result is read-only, or meets another or an operand;
        where a bias is neither a vector that fits nor None."""
        try:
            job = self.free.pop()
        except IndexError:
            job = _Job(self, len(held[0]))
        if job.room < len(held[0]):
            job = _Job(self, len(held[0]))
        said = job.read(id(held), _ENDS[activation], job.asked)
        if said:
            return Read(self, job, held, activation, said)
        self.leave(job)
        return None

    def looked(self, held: Held, activation: str = "none") -> bool | None:
        """What `read` asks of a few, and nothing more: None where it would be None, else whether
        NumPy's `dot` may write every result: large ones, or such as lie otherwise, it should not.
        """
        try:
            job = self.free.pop()
        except IndexError:
            job = _Job(self, 1)
        found: int = job.read(id(held), _ENDS[activation], job.asked)
        self.free.append(job)
        return bool(found & job.reader.DOTS) if found else None

    def leave(self, job: _Job) -> None:
        """The next call may have the memory, unless that is much."""
        if job.room <= _KEPT:
            self.free.append(job)


class Read:
    """Lists that were read. `leave` is called when nothing more is asked of it, or never."""

    def __init__(self, lists: Lists, job: _Job, held: Held, activation: str, said: int) -> None:
        self._lists, self._job, self._held, self._activation = lists, job, held, activation
        self._said = said

    @property
    def is_sooner(self) -> bool:
        """Whether a loop of NumPy's would take longer."""
        return bool(self._said & self._job.reader.LISTED)

    @property
    def is_dots(self) -> bool:
        """Whether NumPy's `dot` may write every result."""
        return bool(self._said & self._job.reader.DOTS)

    @property
    def is_uneven(self) -> bool:
        """Whether threads would wait for one tile."""
        return bool(self._said & self._job.reader.UNEVEN)

    @property
    def flops(self) -> float:
        """Operations of all products."""
        return float(self._job.reals[self._job.reader.FLOPS])

    @property
    def large_flops(self) -> float:
        """Those of large ones that are left to a BLAS, after the others."""
        large = float(self._job.reals[self._job.reader.LARGE_FLOPS])
        return large if lost_by_lists(len(self._held[0]), self.flops, large) > 0 else 0.0

    def leave(self) -> None:
        """The next call may have the memory."""
        self._lists.leave(self._job)

    def multiply(self) -> list[NDArray] | None:
        """Every product, None where there is no memory for it, or where a large matrix has another
        shape by now."""
        a, b, out, bias = self._held
        found: list[NDArray]
        large = self.large_flops
        try:
            found = self._job.multiply(len(a), out, self.flops - large, large > 0)
            if large:
                for index in self._job.large(len(found)):
                    np.matmul(a[index], b[index], out=found[index])
                    ended(found[index], None if bias is None else bias[index], self._activation)
            return found
        except (MemoryError, ValueError):
            return None


def ended(made: NDArray, bias: NDArray | None, activation: str) -> None:
    """A product, with what comes after it by NumPy's passes."""
    if bias is not None:
        np.add(made, bias, made)
    if activation == "relu":
        np.maximum(made, ZEROS[made.dtype], out=made)


class _Job:
    """The memory of one call at a time."""

    def __init__(self, lists: Lists, count: int) -> None:
        kind = KINDS[lists.dtype.name]
        self.names, self._tile = compiled.kernels("lists"), compiled.kernels("grouped")
        self.reader = reader = compiled.kernels("lists_read")
        self._run, self._dtype = compiled.kernels("conv_steps").run, lists.dtype
        self.threads = max(1, lists.device.compute_units)
        self.room = max(64, count)
        parts = _PARTS_OF_SHARE * _SHARE * self.threads
        self.records = np.zeros((self.room + parts, self._tile.RECORD), np.int64)
        self.facts = np.zeros(reader.FACTS, np.int64)
        self.reals = self.facts.view(np.float64)
        tiles = grouped.NativeGroups(lists.device, lists.dtype.name).tiles
        self.shapes = np.array([(tile.m, tile.n, 0) for tile in tiles], np.int64)
        self.shapes.view(np.float64)[:, 2] = [1 / tile.rate for tile in tiles]
        self.rate = tiles[0].rate
        self._steps = np.zeros(2, STEP)
        self._steps["code"] = [compiled.code_of_step(one) for one in (kind.tiles, kind.parts)]
        self._steps["multiply"] = compiled.code_of_products(kind.module, kind.item)
        self._pieces = np.empty((_BANDS * parts, self._tile.PART), np.int64)
        self._ends = np.arange(len(self._pieces) + 1)
        self._tables = np.array([0, 0, 0, 0, 0, self._pieces.ctypes.data, len(self._pieces), parts])
        self._steps["queue"][1], self._steps["cuts"][1] = self._tables[5], self._ends.ctypes.data
        self._found = np.zeros(4, np.int64)
        self._make_room(2 * self.room, 0)
        scratch = self._tile.scratch(max(tile.m for tile in tiles), kind.item)
        self._scratch, pitch = _lines(self.threads, (scratch + 127) // 64 * 64)
        self._counters, _ = _lines(2 * (self.threads + 1), 64)
        words = self._steps.ctypes.data, 1, self._counters.ctypes.data, self.threads, looks(_WAIT)
        self._told = np.array([*words, self._scratch.ctypes.data, pitch], np.int64)
        self._own = self._scratch.ctypes.data, 0
        self._ranges = np.empty((self.room, 2), np.int64)
        self._asked = np.array(
            (
                *(id(np.ndarray), id(lists.dtype), id(None), kind.item, SIDE_OF_LISTS, 0, 0),
                *(ZEROED, *_places(self.shapes, self.records, self.facts, self._ranges)),
                *(self.room, *_places(_RULES), 0),
            )
        )
        limits = [reader.SMALL, reader.LARGE_FROM, reader.SHARES]
        self._asked.view(np.float64)[limits] = SMALL, LARGE, _PARTS * self.threads
        # Whether these are plain products, in whose records and facts they are then.
        self.read, (self.asked,) = reader.read, _places(self._asked)

    def large(self, count: int) -> list[int]:
        """The large ones of what was read."""
        marks = self.records[:count, self._tile.ENDS] & self.reader.HOME_GAME
        found: list[int] = np.flatnonzero(marks).tolist()
        return found

    def multiply(
        self, count: int, out: tuple[Any, ...] | None, flops: float, spares: bool
    ) -> list[NDArray]:
        """What was read, on all threads where that is long enough. `spares`: all but the large
        ones, whose results hold anything; `flops`: operations of what is multiplied."""
        self._counters[:] = 0
        if out is not None:
            self._cut(count, 0, flops, spares)
            self._run_all(flops, lambda: None)
            return list(out)
        size = int(self.facts[self.reader.BYTES])
        flat = reused.flat(size // self._dtype.itemsize, self._dtype, "no memory for the results")
        table = self.records[:count]
        starts = table[:, self._tile.C].tolist()
        self._cut(count, self.reader.data_of(id(flat)), flops, spares)
        found: list[NDArray] = []

        def show() -> None:
            rows, cols = table[:, self._tile.M].tolist(), table[:, self._tile.N].tolist()
            view: Any = np.ndarray
            shapes = zip(rows, cols, strict=True)
            found.extend(map(view, shapes, repeat(self._dtype), repeat(flat), starts))

        self._run_all(flops, show)
        return found

    def _run_all(self, flops: float, show: Callable[[], None]) -> None:
        """What was cut; `show` makes views of the results meanwhile: of a thousand they take as
        long as a part of the products."""

        def lead(threads: int = self.threads) -> None:
            """Behind the posting."""
            show()
            self._run(*self._told[:3].tolist(), *self._own, threads, self._told[4])

        if self.threads == 1 or flops < _ALONE * self.rate:
            lead(1)
        else:
            crew_of(self.threads - 1).run(self._told, lead)

    def _cut(self, count: int, results: int, flops: float, spares: bool) -> None:
        shapes, records = self._asked[[self.reader.SHAPES_AT, self.reader.RECORDS]].tolist()
        most = flops / (_SHARE * self.threads)
        how = self.threads, spares, most, grouped.OVERHEAD, grouped.TASK
        tables = self._tables.ctypes.data, self._found.ctypes.data
        item = self._dtype.itemsize
        while not self.names.cut(records, count, results, item, shapes, *how, *tables):
            self._make_room(*np.maximum(self._found[2:], self._tables[[2, 4]]).tolist())
            results = 0  # they have moved
        self._steps["tasks"] = self._found[:2]
        self._told[1] = 1 + bool(self._found[1])

    def _make_room(self, tiles: int, sums: int) -> None:
        self._queue = np.empty((tiles, self._tile.TILE), np.int64)
        self._cuts = np.empty(tiles + 1, np.int64)
        self._sums = np.empty(sums, self._dtype)
        self._tables[:5] = (
            *(self._queue.ctypes.data, self._cuts.ctypes.data, tiles),
            *(self._sums.ctypes.data, sums),
        )
        self._steps["queue"][0], self._steps["cuts"][0] = self._tables[:2]


def _places(*arrays: NDArray) -> tuple[int, ...]:
    """Where the elements of these begin."""
    return tuple(int(array.ctypes.data) for array in arrays)


def _lines(count: int, pitch: int) -> tuple[NDArray, int]:
    """So many rows of as many bytes, whole lines of the cache; zeros, as denormals are slow."""
    memory = np.zeros(count * pitch + 64, np.uint8)
    start = -memory.ctypes.data % 64
    return memory[start : start + count * pitch].reshape(count, pitch), pitch


def lists_of(device: Device, dtype: str) -> Lists | None:
    """The products of a dtype, or None where their machine code is not there (yet)."""
    if dtype not in DTYPES or not grouped.is_compiled(dtype) or not layout_holds():
        return None
    return Lists(device, dtype)


def are_uneven(device: Device, dtype: str, sizes: tuple[Column, Column, Column]) -> bool:
    """What `Read.is_uneven` will be of products of these sizes: threads would wait for one tile."""
    m, n, k = (column.astype(float) for column in sizes)
    first = grouped.NativeGroups(device, dtype).tiles[0]
    depth = np.minimum(k, compiled.kernels("lists_read").DEEP)  # what is deeper is cut
    largest = float((np.minimum(m, first.m) * np.minimum(n, first.n) * depth).max(initial=0.0))
    return largest * _PARTS * max(1, device.compute_units) > float((m * n * k).sum())
