"""Tables of a batch with its addresses left open: one plan serves its matrices wherever they lie.

    place      the address of A, B, C or bias of a problem, or of the scratch
    template   the table in words of 8 bytes; an address stands there as its distance from a place
    table      template + places: made in array code for each run, uploaded, and dropped after it

Nothing of a plan stays on the device between runs, but where one product comes again (fixed.py). A
run's table and scratch are torch's memory of its stream, which no other stream is given before that
one is done with it.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tilewright.backends.cuda.machine import nvrtc, tables
from tilewright.backends.cuda.work import Ints, Moving, Prepared, Work
from tilewright.facts.dtypes import ITEMSIZE

_ALIGNED = 128  # bytes
Which = Ints | slice  # some of a column


@dataclass(frozen=True, slots=True)
class Sources:
    """The number of each place of a batch: one a problem in a, b, c and bias (-1 for none)."""

    a: Ints
    b: Ints
    c: Ints
    bias: Ints
    scratch: int


def sources(work: Work) -> Sources:
    """Places are numbered as `places` has them."""
    count = len(work.m)
    one = np.arange(count, dtype=np.int64)
    if work.bias is None:
        return Sources(one, one + count, one + 2 * count, np.full(count, -1), 3 * count)
    bias = np.where(work.bias.address != 0, one + 3 * count, -1)
    return Sources(one, one + count, one + 2 * count, bias, 4 * count)


def places(work: Work, scratch: int = 0) -> Ints:
    """Every address of a batch: of all A, all B, all C, all biases where there are, the scratch."""
    parts = [work.a.address, work.b.address, work.c.address]
    if work.bias is not None:
        parts.append(work.bias.address)
    return np.concatenate((*parts, np.array([scratch], np.int64)))


def moved(work: Work, places: Ints) -> Work:
    """The batch at these addresses."""
    parts = places[:-1].reshape(-1, len(work.m))
    a, b, c = (
        replace(part, address=at) for part, at in zip((work.a, work.b, work.c), parts, strict=False)
    )
    bias = None if work.bias is None else replace(work.bias, address=parts[3])
    return replace(work, a=a, b=b, c=c, bias=bias)


def signature(work: Work) -> bytes:
    """All that a plan for any addresses looks at in the columns of a batch.

    Of addresses that is how far they are aligned, up to 256 bytes; and of problems of one size,
    which one call might compute together, their distance from one another where it is one.
    """
    sizes = np.stack((work.m, work.n, work.k)).astype(np.int32)
    parts = [sizes.tobytes(), _short(work.alpha), _short(work.beta)]
    equal = len(work.m) > 1 and not np.any(sizes != sizes[:, :1])
    item = ITEMSIZE[work.dtype]
    for part, cols in ((work.a, work.k), (work.b, work.n), (work.c, work.n)):
        dense = bool((part.col == item).all() and (part.row == cols * item).all())
        parts.append(b"dense" if dense else _short(part.row) + _short(part.col))
        parts.append(_aligned(part.address).tobytes())
        if equal:
            parts.append(_short(np.diff(part.address), b"apart"))
    if work.bias is not None:
        parts.append(np.where(work.bias.address == 0, 3, _aligned(work.bias.address)).tobytes())
    return b"|".join((b"%d" % len(work.m), *parts))


def _aligned(address: Ints) -> npt.NDArray[np.uint8]:
    return (address & -address & 255).astype(np.uint8)


def _short(column: npt.NDArray[Any], otherwise: bytes | None = None) -> bytes:
    """A column by its one number where all are that one; else by `otherwise`, or by itself."""
    if len(column) and (column == column[0]).all():
        return b"one" + column[:1].tobytes()
    return column.tobytes() if otherwise is None else otherwise


@dataclass(frozen=True, slots=True)
class Template:
    """A table in which addresses lack the places of what they point to.

    `lacking` has pairs: which words, and the number of the place that each of them lacks.
    """

    words: Ints
    lacking: tuple[tuple[Which, Which], ...]
    scratch: int

    def placed(self, places: Ints) -> Ints:
        """The table for these addresses."""
        words = self.words.copy()
        self._add(places, words)
        return words

    def _add(self, places: Ints, words: Ints) -> None:
        for which, source in self.lacking:
            words[which] += places[source]

    def uploaded(self, places: Ints, ordinal: int, stream: int) -> Any:
        """The same on a device, by the time that `stream`, torch's current one, goes on."""
        if tables.goes_by_parameters(len(self.words), ordinal):
            return tables.put(self.placed(places), ordinal, stream)

        def fill(words: Ints) -> None:
            np.copyto(words, self.words)
            self._add(places, words)

        return tables.upload(len(self.words), fill, ordinal)

    @property
    def bytes(self) -> int:
        """Of host memory that it takes."""
        return self.words.nbytes + sum(getattr(x, "nbytes", 0) for x in chain(*self.lacking))


class Draft:
    """A template in the making, of tables that hold real addresses."""

    def __init__(self, places: Ints) -> None:
        """For tables made with these places."""
        self._places = places
        self._parts: list[tuple[int, npt.NDArray[np.uint8]]] = []
        self._lacking: list[tuple[Which, Which]] = []
        self._size = 0

    def add(self, table: npt.NDArray[Any], *fields: tuple[int, Which]) -> int:
        """Append a table; where it begins, in bytes: a multiple of 128, as tensor maps want.

        Args:
            table: records along the first axis, of whole words where there are `fields`.
            fields: a word of the record that is an address, and the place that each record's one
                belongs to, -1 where it is none; a slice where each record's comes after another.
        """
        raw = np.ascontiguousarray(table).reshape(-1).view(np.uint8)
        begin, each = self._size // 8, raw.nbytes // max(1, len(table)) // 8
        for word, source in fields:
            at: Which = slice(begin + word, begin + each * len(table), each)
            if not isinstance(source, slice):
                which = np.flatnonzero(source >= 0)
                at, source = which * each + (begin + word), source[which]
            self._lacking.append((at, source))
        start = self._size
        self._parts.append((start, raw))
        self._size += max(1, -(-raw.nbytes // _ALIGNED)) * _ALIGNED
        return start

    def template(self, scratch: int) -> Template:
        """The tables one after another, for a batch with so many bytes of scratch."""
        words = np.zeros(self._size // 8, np.int64)
        memory = words.view(np.uint8)
        for start, raw in self._parts:
            memory[start : start + raw.nbytes] = raw
        for which, source in self._lacking:
            words[which] -= self._places[source]
        return Template(words, tuple(self._lacking), scratch)


# Enqueues kernels on a stream, with a table and scratch: torch tensors of words and of bytes.
Launch = Callable[[int, Any, Any], None]


class At(NamedTuple):
    """An argument that points into the table, or into the scratch, from this byte on."""

    offset: int
    scratch: bool = False


@dataclass(frozen=True, slots=True)
class Step:
    """One kernel and its arguments: ctypes values, and `At` where a pointer is to be set."""

    kernel: nvrtc.Function
    blocks: int
    threads: int
    values: tuple[Any, ...]


def in_order(steps: Sequence[Step]) -> Launch:
    """These kernels one after another."""
    lock = threading.Lock()
    calls = []
    in_table: list[tuple[Any, int]] = []
    in_scratch: list[tuple[Any, int]] = []
    for step in steps:
        values = [ctypes.c_void_p() if isinstance(x, At) else x for x in step.values]
        for value, given in zip(values, step.values, strict=True):
            if isinstance(given, At):
                (in_scratch if given.scratch else in_table).append((value, given.offset))
        calls.append((step.kernel, step.blocks, step.threads, nvrtc.Arguments(values)))
    enqueue = nvrtc.launcher(*calls)

    def launch(stream: int, table: Any, scratch: Any) -> None:
        base = table.data_ptr()
        with lock:
            for value, offset in in_table:
                value.value = base + offset
            if in_scratch:
                base = scratch.data_ptr()
                for value, offset in in_scratch:
                    value.value = base + offset
            enqueue(stream)

    return launch


@dataclass(frozen=True, slots=True)
class Kernels:
    """The launches of a planned batch: `launch` enqueues `count` kernels."""

    template: Template
    launch: Launch
    count: int


def bound(kernels: Kernels, work: Work) -> Prepared:
    """The batch on its own addresses, its table uploaded; holds operands, table and scratch."""
    held = _scratch(kernels, work.ordinal)
    at = 0 if held is None else held.data_ptr()
    words, launch = kernels.template.placed(places(work, at)), kernels.launch
    table = tables.upload(len(words), lambda into: np.copyto(into, words), work.ordinal)

    def enqueue(stream: int, keep: Any = work.keep) -> None:
        launch(stream, table, held)

    return Prepared(enqueue, kernels.count, (table, held))


def moving(kernels: Kernels, ordinal: int) -> Moving:
    """The batch on any addresses that are as aligned."""
    template, launch = kernels.template, kernels.launch
    _scratch(kernels, ordinal)  # whether there is room: another engine may need less

    def run(stream: int, places: Ints) -> None:
        held = _scratch(kernels, ordinal)
        if held is not None:
            places[-1] = held.data_ptr()
        launch(stream, template.uploaded(places, ordinal, stream), held)

    return Moving(run, template.bytes)


def _scratch(kernels: Kernels, ordinal: int) -> Any:
    size = kernels.template.scratch
    return tables.scratch(size, ordinal) if size else None
