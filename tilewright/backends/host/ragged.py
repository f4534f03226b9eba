"""Products of groups of rows (or of k) of the host's memory, planned and run in one native call.

    one = bound(kind, device)           for all that lie alike, whatever the number of rows
    one(x, w, offsets, bias, out, t, threads)     addresses -> DONE, or what stands in the way

What a call needs is made once for a `Kind` and waits in a list: a thread takes one and puts it
back, so that no two share the memory in which a call is planned (`kernels/ragged.py`).
"""

from __future__ import annotations

import ctypes
import os
import sys
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np

from tilewright.backends.host import compiled, grouped, rates
from tilewright.backends.host.narrow import KINDS
from tilewright.backends.host.threads import in_parallel
from tilewright.facts.device import Device
from tilewright.remember import Shelf

# As kernels/ragged.py has them.
ASKS, MUST, LOOKS = range(3)
DONE, FASTER, WRONG, _POSTED, OURS, FASTER_WHOLE = 0, -1, -2, -3, -4, -5
ITEMS = {"float32": 4, "float64": 8, "bfloat16": 2, "float16": 2}
_SHAPES = grouped._SHAPES
# Of 16 bits. Rows are multiples of 24, columns of 32: registers of any width divide them.
_HALVES = ((24, 64, 0.6), (48, 96, 0.7), (72, 128, 0.75))
# Where pairs of bfloat16 are multiplied; and bytes a second of B of which words are put together
# one by one, as neither its rows nor its columns are contiguous.
_PAIRS = ((24, 64, 0.5), (48, 128, 0.75), (192, 256, 0.8))
_WORD_BY_WORD = 1.2e10
# Operations of torch's BLAS for one of float32 where a processor multiplies 16 bits; elsewhere.
_WITH = {
    "bfloat16": {"amx-bf16": 12.0, "avx512bf16": 2.4, "bf16": 2.4},
    "float16": {"amx-fp16": 12.0, "avx512fp16": 2.4, "fullfp16": 2.0},
}
_WITHOUT = 0.5
_ROOM = 64  # tiles that a job has room for at first
_TASK, _WAKE = 6e-6, 1.5e-6  # seconds of a task; of a pool whose threads still look for work
# Of torch's loop: seconds of a group beside its product, by width; the share of a core's peak that
# its BLAS reaches; bytes of B that it reads for one that is read here. Fitted, with those above, to
# 360 products of 1 and 4 groups that were timed both ways on one and two cores of Zen 4: 12 go to a
# way that was more than 4 % slower there, 24 % at most.
THEIRS = {4: 1.7e-6, 8: 1.7e-6, 2: 1.15e-5}
_THEIR_SHARE, _THEIR_READS = {4: 0.705, 8: 0.705, 2: 0.69}, {4: 0.44, 8: 0.44, 2: 0.445}
_THEIR_ROW = 1.7  # times as many where one row is multiplied by columns that lie along k


@dataclass(frozen=True, slots=True)
class Kind:
    """All of a product but its addresses and how many rows there are; strides in bytes.

    `steps` of a, b and c: bytes for each row (or step of k) before a group; `groups`: for each
    group before it. `sizes`: m, n, k, the ragged one 0; `rows`: whether that is m, else k.
    """

    dtype: str
    count: int
    has_first: bool
    wide_offsets: bool
    rows: bool
    clear: bool
    sizes: tuple[int, int, int]
    a: tuple[int, int]
    b: tuple[int, int]
    c: tuple[int, int]
    steps: tuple[int, int, int]
    groups: tuple[int, int, int]
    bias: int


def kind_of(
    dtype: str,
    ends: tuple[int, bool],
    sizes: tuple[Sequence[int], Sequence[int]],
    steps: tuple[Sequence[int], Sequence[int], Sequence[int]],
    *,
    clear: bool,
    has_bias: bool,
) -> Kind:
    """Of how matrices lie: `ends`, offsets and whether they are int64; sizes of x and w; bytes from
    element to element of x, w and the result, dimension by dimension."""
    (rows, k), others, (a, b, c) = sizes[0], sizes[1], steps
    of_rows, n = len(others) == 3, others[-1]
    count = others[0] if of_rows else ends[0]
    return Kind(
        dtype=dtype,
        count=count,
        has_first=ends[0] > count,
        wide_offsets=ends[1],
        rows=of_rows,
        clear=clear,
        sizes=(0, n, k) if of_rows else (rows, n, 0),
        a=(a[0], a[1]),
        b=(b[-2], b[-1]),
        c=(c[-2], c[-1]),
        steps=(a[0], 0, c[0]) if of_rows else (a[1], b[0], 0),
        groups=(0, b[0], 0) if of_rows else (0, 0, c[0]),
        bias=n * ITEMS[dtype] if has_bias else 0,
    )


@dataclass(frozen=True, slots=True)
class Weighed:
    """Tiles of at most so many rows and columns, how many there are, on how many threads; predicted
    seconds, and those of the loop of a BLAS."""

    rows: int
    columns: int
    tiles: int
    threads: int
    seconds: float
    theirs: float


class Bound:
    """Jobs of one kind, as many as threads have called it at once."""

    def __init__(self, kind: Kind, device: Device) -> None:
        self.kind, self._device = kind, device
        self._free: list[_Job] = []
        self._run = compiled.kernels("ragged").run
        self._has_bias = kind.bias > 0

    def __call__(
        self,
        a: int,
        b: int,
        offsets: int,
        bias: int,
        c: int,
        t: int,
        threads: int,
        asks: int = ASKS,
    ) -> int:
        """DONE, or with nothing written WRONG (offsets, or no memory) or what else the kernel says.

        FASTER: another way is. FASTER_WHOLE: so it is, and every row has a group. OURS: what is
        asked by LOOKS alone.
        """
        nowhere = not (a and b and offsets and c and (bias or not self._has_bias))
        if nowhere and self._have_elements(a, b, offsets, bias, c, t):
            return WRONG
        try:
            job = self._free.pop()
        except IndexError:
            job = _Job(self.kind, self._device, _ROOM)
        if threads > job.threads or _forked:
            threads = 1 if _forked else job.threads
        own = _own.place or _own.made(self._device)
        found: int = self._run(job.address, own, a, b, offsets, bias, c, t, threads, asks)
        if found > 0:
            job = _Job(self.kind, self._device, 2 * found)
            found = self._run(job.address, own, a, b, offsets, bias, c, t, threads, asks)
        if found == _POSTED:
            job.share(threads)
            found = DONE
        self._free.append(job)
        return found

    def weighed(self, offsets: int, t: int, threads: int) -> Weighed | None:
        """What a call would find by offsets at this address; None where they are wrong."""
        job = _Job(self.kind, self._device, _ROOM)
        facts = np.zeros(5, np.int64)
        names, threads = compiled.kernels("ragged"), min(threads, job.threads)
        if not names.weigh(job.address, offsets, t, threads, facts.ctypes.data):
            return None
        shape, tiles = facts[:2].tolist()
        together, alone, theirs = facts[2:].view(np.float64).tolist()
        rows, columns, _ = _shapes(self.kind.dtype)[shape]
        cores = threads if together < alone else 1
        return Weighed(rows, columns, tiles, cores, min(together, alone), theirs)

    def _have_elements(self, a: int, b: int, offsets: int, bias: int, c: int, t: int) -> bool:
        """Whether what lies at address 0 has elements: memory that was given back."""
        kind = self.kind
        m, n, k = kind.sizes
        if kind.rows:
            of_a, of_b, of_c = t * k, kind.count * k * n, t * n
        else:
            of_a, of_b, of_c = m * t, t * n, kind.count * m * n
        elements = (of_a, of_b, kind.count + kind.has_first, kind.bias * kind.count, of_c)
        places = (a, b, offsets, bias, c)
        return any(size and not place for size, place in zip(elements, places, strict=True))


class _Job:
    """The words of one call at a time, and the memory that they name."""

    def __init__(self, kind: Kind, device: Device, room: int) -> None:
        names, tile = compiled.kernels("ragged"), compiled.kernels("grouped")
        self.threads = max(1, device.compute_units)
        pitch = _pitch(kind.dtype)
        records = _records(kind, tile)
        queue, cuts = np.empty((room, names.TILE), np.int64), np.empty(room + 1, np.int64)
        memory = {"RECORDS": records, "QUEUE": queue, "CUTS": cuts, "COUNTERS": _lines(128)}
        words = np.zeros(names.SIZE, np.int64)
        for name, value in _sizes(kind).items():
            words[getattr(names, name)] = value
        for name, array in memory.items():
            words[getattr(names, name)] = array.ctypes.data
        words[names.ROOM], words[names.SCRATCH_PITCH] = room, pitch
        words[names.MULTIPLY] = compiled.code_of_products(*_products(kind.dtype))
        words[names.WORK], words[names.POOL] = compiled.code_of_groups(kind.dtype), _pool()
        _model(words, names, kind, device)
        self._words, self._memory = words, memory
        self.address = int(words.ctypes.data)

    def share(self, threads: int) -> None:
        """What was planned, on threads of the host's own."""
        names = compiled.kernels("ragged")
        # Of this call alone: a signal's handler may multiply while this thread waits.
        scratch = _lines(int(self._words[names.SCRATCH_PITCH]) * threads)
        self._words[names.SCRATCH] = scratch.ctypes.data
        in_parallel([partial(names.work, self.address)] * threads, threads)


def _sizes(kind: Kind) -> dict[str, int]:
    """What of a kind the planning in machine code reads, by the names of its words."""
    return {
        "GROUPS": kind.count,
        "FIRST": kind.has_first,
        "WIDE_OFFSETS": kind.wide_offsets,
        "ITEM": ITEMS[kind.dtype],
        "ROWS_OF": kind.rows,
        "CLEAR": kind.clear,
        "N_OF": kind.sizes[1],
        "A_STEP": kind.steps[0],
        "A_GROUP": kind.groups[0],
        "B_STEP": kind.steps[1],
        "B_GROUP": kind.groups[1],
        "C_STEP": kind.steps[2],
        "C_GROUP": kind.groups[2],
        "BIAS_GROUP": kind.bias,
    }


def _in_pairs(dtype: str) -> bool:
    """Whether the processor multiplies pairs of these."""
    return dtype == "bfloat16" and bool(compiled.kernels("grouped_narrow_tile").PAIRS)


def _products(dtype: str) -> tuple[str, int]:
    """The module that multiplies registers, and the bytes of what it multiplies."""
    if _in_pairs(dtype):
        return "grouped_narrow", 2
    return "grouped", 8 if dtype == "float64" else 4


def _pitch(dtype: str) -> int:
    """Bytes of a thread's own, a line of the cache and whole ones."""
    module, item = _products(dtype)
    if item != ITEMS[dtype]:
        size = compiled.kernels("ragged").scratch()
    else:
        rows = max(high for high, _, _ in _shapes(dtype))
        size = compiled.kernels(module).scratch(rows, item)
    return int(size + 127) // 64 * 64


def _shapes(dtype: str) -> tuple[tuple[int, int, float], ...]:
    """Rows and columns of tiles, and the share of a core's peak that they reach."""
    if ITEMS[dtype] == 2:
        return _PAIRS if _in_pairs(dtype) else _HALVES
    wide = 2 if dtype == "float64" else 1
    return tuple((m, n // wide, share) for m, n, share in _SHAPES)


def _model(words: Any, names: Any, kind: Kind, device: Device) -> None:
    """What seconds are predicted by, here and of the loop of torch's BLAS."""
    known, item = rates.of(device), ITEMS[kind.dtype]
    peak = rates.PEAK / known.factor / (2 if item == 8 else 1)
    if _in_pairs(kind.dtype):
        peak *= compiled.kernels("grouped_narrow_tile").speed(item)
    move = 3 * known.move
    if _in_pairs(kind.dtype) and item not in kind.b:
        move = min(move, _WORD_BY_WORD / known.factor)
    # Not the measured rate of NumPy's BLAS: measured beside other work it was a twentieth once.
    theirs = _THEIR_SHARE[item] * rates.PEAK / known.factor * _beside_single(kind.dtype)
    their_move = 3 * known.move * _THEIR_READS[item]
    reals = words.view(np.float64)
    for name, value in {
        "OVERHEAD": grouped.OVERHEAD,
        "RATE": peak,
        "MOVE": move,
        "TASK": _TASK,
        "WAKE": _WAKE,
        "THEIRS": THEIRS[item],
        "THEIR_RATE": theirs,
        "THEIR_MOVE": their_move,
        "THEIR_ROW_MOVE": their_move * (_THEIR_ROW if item > 2 and kind.b[0] == item else 1),
    }.items():
        reals[getattr(names, name)] = value
    for number, (high, wide, share) in enumerate(_shapes(kind.dtype)):
        words[names.SHAPES + 2 * number : names.SHAPES + 2 * number + 2] = high, wide
        reals[names.SHARE + number] = share


def _beside_single(dtype: str) -> float:
    """Operations of torch's BLAS for one of float32: of 16 bits by what the processor has."""
    if ITEMS[dtype] > 2:
        return 4 / ITEMS[dtype]
    has = compiled.kernels("features").features()
    return max([_WITHOUT, *(rate for name, rate in _WITH[dtype].items() if name in has)])


def _records(kind: Kind, tile: Any) -> Any:
    """A record a group, of which calls fill in addresses and the ragged size."""
    records = np.zeros((max(1, kind.count), tile.RECORD), np.int64)
    records[:, [tile.M, tile.N, tile.K]] = kind.sizes
    records[:, [tile.A_ROW, tile.A_COL]] = kind.a
    records[:, [tile.B_ROW, tile.B_COL]] = kind.b
    records[:, [tile.C_ROW, tile.C_COL]] = kind.c
    records[:, [tile.ALPHA, tile.BETA]] = np.array([1.0, 0.0]).view(np.int64)
    plain = not kind.bias and kind.c[1] == ITEMS[kind.dtype]
    records[:, tile.ENDS] = tile.PLAIN if plain else 0
    return records


class _Own(threading.local):
    """A thread's own memory for it and its helpers, of any kind of product."""

    place = 0

    def made(self, device: Device) -> int:
        """Its address, once it is needed."""
        self._memory = _lines(max(map(_pitch, ITEMS)) * max(1, device.compute_units))
        self.place = int(self._memory.ctypes.data)
        return self.place


_own = _Own()


def _lines(size: int) -> Any:
    """So many bytes from the beginning of a line of the cache on; zeros, as denormals are slow."""
    room = np.zeros(size + 64, np.uint8)
    return room[-room.ctypes.data % 64 :][:size]


_bound: Shelf[Kind, Bound] = Shelf("ragged products of processors", most=64 << 20)


def bound(kind: Kind, device: Device) -> Bound | None:
    """What multiplies products of a kind, or None where its machine code is not there (yet)."""
    found = _bound.get(kind)
    if found is not None:
        return found
    if not compiled.available() or why_not_yet(device, kind.dtype) is not None:
        return None
    size = 8192 + 256 * kind.count  # of a job: records, tiles
    return _bound.keep(kind, Bound(kind, device), size=size)


def why_not_yet(device: Device, dtype: str) -> str | None:
    """Why a call cannot be multiplied here at once; another thread compiles it from now on."""
    return grouped.why_not_yet(device, f"ragged {dtype}")


def compile_for(device: Device, dtype: str) -> None:
    """Everything that a product calls, from the cache folder where it is there."""
    grouped.compile_for(device, f"ragged {dtype}")


def _check_converts() -> None:
    """Refuse float16 where the processor does not convert it: LLVM would call a library for it."""
    if not {"f16c", "avx512f", "neon"} & compiled.kernels("features").features():
        raise NotImplementedError("this processor has no instructions that convert float16")


def _stages(dtype: str, device: Device) -> list[Any]:
    module, item = _products(dtype)
    tiles = range(KINDS[dtype].pieces) if item == ITEMS[dtype] else ()
    return [
        *([_check_converts] if dtype == "float16" else []),
        partial(compiled.code_of_products, module, item),
        *(partial(compiled.compile_tile, module, item, number) for number in tiles),
        partial(compiled.code_of_groups, dtype),
        compiled.compile_groups,
        compiled.compile_routes,
    ]


grouped.others.update({f"ragged {dtype}": partial(_stages, dtype) for dtype in ITEMS})


@cache
def _pool() -> int:
    """Where the function lies that runs torch's own threads: GNU's OpenMP, or 0.

    Products on another pool would take turns with threads of this one that spin for work.
    """
    torch: Any = sys.modules.get("torch")
    if torch is None or not sys.platform.startswith("linux"):
        return 0
    for path in sorted((Path(torch.__file__).parent / "lib").glob("libgomp*.so*")):
        try:
            library = ctypes.CDLL(str(path), mode=os.RTLD_NOLOAD | os.RTLD_LAZY)
            return int(ctypes.cast(library.GOMP_parallel, ctypes.c_void_p).value or 0)
        except (OSError, AttributeError):
            continue
    return 0


_forked = False  # a child has none of the pool's threads


def _after_fork() -> None:
    global _forked
    _forked = True


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
