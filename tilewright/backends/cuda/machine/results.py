"""Makes result tensors: one of its own, or those of a list of products, cut from one allocation.

`as_strided` takes 1.1 us each, longer than anything else that a product of a list needs. What
torch's own generated code calls in its place takes 0.7 (`_reinterpret_tensor`: no dispatcher on
the way). Sizes that come again get a pattern: a nested tensor of all the results over memory that
nobody touches. `empty_like` makes one in new memory, and `unbind` the tensors, 0.4 us each, of
which a tenth would be left without torch's own objects. To make the pattern takes as long as three
calls save by it, 1 us a result, so lists of sizes never seen share one pattern where they are as
many and take about as much memory: its sizes are written anew for each (`_Frame`). 1000 results
took 0.26 ms so and 0.58 one by one; up to an eighth of their memory is left empty.

The tensors are made below autograd, which sees a tensor of its own in each that shares a storage
and counts its own writes. That is right as no two overlap. Both ways are no public part of torch,
so they are proven on samples first; where one does not give what it should, it is not used.
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable
from contextlib import suppress
from functools import cache, partial
from itertools import repeat
from typing import Any

import numpy as np

from tilewright.arrays import torch_private as private
from tilewright.backends.cuda.machine.tables import place
from tilewright.backends.cuda.work import Ints
from tilewright.facts.dtypes import ITEMSIZE
from tilewright.remember import Shelf

_OFTEN = 3  # calls, from which on a pattern pays
_FEW = 64  # results: for fewer, to share a pattern saves nothing that counts


class _Untouched:
    """So many bytes of memory that is named and never read: a storage has to have some."""

    def __init__(self, count: int) -> None:
        self.__array_interface__ = {
            "data": (64, False),
            "shape": (count,),
            "typestr": "|u1",
            "version": 3,
        }


class Places:
    """Where results of these sizes lie: at `offsets` in elements, of `total`, rows dense."""

    def __init__(self, rows: Ints, cols: Ints, offsets: Ints, total: int, dtype: str) -> None:
        """Nothing is made yet."""
        self._columns = rows, cols, offsets
        self._total, self._dtype = total, dtype
        self._calls = 0
        self._pattern: Any = None

    @property
    def bytes(self) -> int:
        """Of host memory, with the pattern that it may have one day."""
        return 96 * len(self._columns[0])

    def made(self, ordinal: int) -> tuple[list[Any], int]:
        """A new matrix each on a GPU, and the address of the memory that they share."""
        if self._pattern is not None:
            return _like(self._pattern, ordinal)
        if not _has_patterns(ordinal):
            return self.one_by_one(ordinal)
        self._calls += 1
        if self._calls >= _OFTEN:
            self._pattern = _Frame(*self._frame).written(*self._columns)
            return _like(self._pattern, ordinal)
        if len(self._columns[0]) < _FEW:
            return self.one_by_one(ordinal)
        return self.by_frame(ordinal) or self.one_by_one(ordinal)

    def one_by_one(self, ordinal: int) -> tuple[list[Any], int]:
        """The same, by a call each."""
        import torch

        rows, cols, offsets = (column.tolist() for column in self._columns)
        flat = torch.empty(self._total, dtype=getattr(torch, self._dtype), device=place(ordinal))
        sizes, steps = zip(rows, cols, strict=True), zip(cols, repeat(1), strict=False)
        return [*map(_view(), repeat(flat), sizes, steps, offsets)], flat.data_ptr()

    def by_pattern(self, ordinal: int) -> tuple[list[Any], int]:
        """The same, by a pattern made now."""
        return _like(_Frame(*self._frame).written(*self._columns), ordinal)

    def by_frame(self, ordinal: int) -> tuple[list[Any], int] | None:
        """The same, by a pattern shared with other lists; None where few such were asked for."""
        count, total, dtype = self._frame
        unit = max(1 << total.bit_length() - 4, 1)
        key = (count, -(-total // unit) * unit, dtype)
        return _frames.found(key, lambda: _Frame(*key), lambda x: x.bytes).made(
            self._columns, ordinal
        )

    @property
    def _frame(self) -> tuple[int, int, str]:
        return len(self._columns[0]), self._total, self._dtype


class _Frame:
    """A pattern of so many results in so many elements: whose sizes, it is told each time."""

    def __init__(self, count: int, total: int, dtype: str) -> None:
        """Nothing is made yet."""
        self._sizes, self._steps = (np.ones((count, 2), np.int64) for _ in range(2))
        self._offsets = np.zeros(count, np.int64)
        self._total, self._dtype = total, dtype
        self._lock, self._calls = threading.Lock(), 0
        self._pattern: Any = None

    @property
    def bytes(self) -> int:
        """Of host memory, with the pattern."""
        return 128 * len(self._offsets)

    def written(self, rows: Ints, cols: Ints, offsets: Ints) -> Any:
        """The pattern, of these sizes until others are written."""
        import torch

        self._sizes[:, 0], self._sizes[:, 1], self._steps[:, 0] = rows, cols, cols
        self._offsets[:] = offsets
        if self._pattern is None:
            # Not a tensor of inference mode, whatever the caller's is: it is kept.
            with torch.inference_mode(mode=False):
                untouched = np.asarray(_Untouched(self._total * ITEMSIZE[self._dtype]))
                memory = torch.from_numpy(untouched).view(getattr(torch, self._dtype))
                facts = map(torch.from_numpy, (self._sizes, self._steps, self._offsets))
                self._pattern = private.nested_view(torch)(memory, *facts)
        return self._pattern

    def made(self, columns: tuple[Ints, Ints, Ints], ordinal: int) -> tuple[list[Any], int] | None:
        """New results of these sizes; None the first times."""
        with self._lock:
            self._calls += 1
            if self._calls < _OFTEN:
                return None
            return _like(self.written(*columns), ordinal)


def _like(pattern: Any, ordinal: int) -> tuple[list[Any], int]:
    """A new matrix each of a pattern, and the address of their memory."""
    import torch

    with private.below_autograd(torch)():
        block = torch.empty_like(pattern, device=place(ordinal))
        return [*block.unbind()], block.data_ptr()


_frames: Shelf[tuple[int, int, str], _Frame] = Shelf("patterns of results", most=16 << 20)
_kept: Shelf[tuple[bytes, bytes, str], Places] = Shelf("places of results", most=16 << 20)


def known_places(rows: Ints, cols: Ints, offsets: Ints, total: int, dtype: str) -> Places:
    """Results of these sizes, which lie at these offsets."""
    key = (rows.tobytes(), cols.tobytes(), dtype)
    return _kept.found(key, lambda: Places(rows, cols, offsets, total, dtype), lambda x: x.bytes)


def maker(shape: tuple[int, ...], dtype: str, ordinal: int) -> Callable[[], Any]:
    """How to make a new tensor on a GPU, which is the current one when it is called.

    What torch's generated code calls takes 0.6 us, `new_empty` 1.4, on the same processor.
    """
    import torch

    kind = getattr(torch, dtype)
    if ordinal >= 0 and torch.cuda.is_available():
        with suppress(AttributeError):
            fast = private.empty_strided(torch)
            return partial(fast, shape, torch.empty(shape, device="meta").stride(), kind)
    return partial(torch.empty, shape, dtype=kind, device=place(ordinal))


@cache
def _view() -> Callable[..., Any]:
    """A matrix in a tensor's memory, from sizes, steps and an offset: the fastest there is."""
    import torch

    slow: Callable[..., Any] = torch.as_strided
    flat = torch.empty(40, device="cpu")
    try:
        fast: Callable[..., Any] = private.reinterpreted(torch)
        made = fast(flat, (3, 4), (4, 1), 16)
    except (AttributeError, RuntimeError, TypeError):
        return slow
    as_asked = made.shape == (3, 4) and made.stride() == (4, 1) and made.storage_offset() == 16
    return fast if as_asked and made.data_ptr() == flat.data_ptr() + 64 else slow


@cache
def _has_patterns(ordinal: int) -> bool:
    """Whether this torch makes what it should by patterns, of samples on this device."""
    rows, cols = np.array([3, 0, 1, 5]), np.array([4, 7, 1, 2])
    offsets, total = np.array([0, 16, 16, 32]), 48
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # says once that nested tensors are a prototype
            for dtype in ("float32", "bfloat16"):
                lie = Places(rows, cols, offsets, total, dtype)
                if not _are_equal(lie.by_pattern(ordinal), lie.one_by_one(ordinal)):
                    return False
                frame = _Frame(len(rows), total, dtype)
                frame.written(cols, rows, offsets)  # and then of other sizes
                shared = _like(frame.written(rows, cols, offsets), ordinal)
                if not _are_equal(shared, lie.one_by_one(ordinal)):
                    return False
    except (AttributeError, RuntimeError, TypeError):
        return False
    return True


def _are_equal(one: tuple[list[Any], int], other: tuple[list[Any], int]) -> bool:
    """Whether both ways made the same tensors, each in memory of its own."""
    import torch

    def facts(made: tuple[list[Any], int]) -> list[Any]:
        return [
            (
                *(x.shape, x.stride(), x.storage_offset(), x.dtype, x.device, x.layout),
                *(x.untyped_storage().nbytes(), x.numel() and x.data_ptr() - made[1]),
                *(x.is_nested, x._is_view(), x.requires_grad, x._version, x.is_inference()),
                private.dispatch_keys(torch)(x).raw_repr(),
            )
            for x in made[0]
        ]

    return one[1] != other[1] and facts(one) == facts(other)
