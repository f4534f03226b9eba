"""Makes result tensors: one of its own, or those of a list of products, cut from one allocation.

`as_strided` takes 1.1 us each, longer than anything else that a product of a list needs. What
torch's own generated code calls in its place takes 0.7 (`_reinterpret_tensor`: no dispatcher on
the way). Sizes that come again get a pattern: a nested tensor of all the results over memory that
nobody touches. `empty_like` makes one in new memory, and `unbind` the tensors, 0.4 us each, of
which a tenth would be left without torch's own objects. To make the pattern takes as long as three
calls save by it.

The tensors are made below autograd, which sees a tensor of its own in each that shares a storage
and counts its own writes. That is right as no two overlap. Both ways are no public part of torch,
so they are proven on samples first; where one does not give what it should, it is not used.
"""

from __future__ import annotations

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
        if self._pattern is None:
            self._calls += 1
            if self._calls < _OFTEN or not _has_patterns(ordinal):
                return self.one_by_one(ordinal)
            self._pattern = self._nested()
        return self._like(self._pattern, ordinal)

    def one_by_one(self, ordinal: int) -> tuple[list[Any], int]:
        """The same, by a call each."""
        import torch

        rows, cols, offsets = (column.tolist() for column in self._columns)
        flat = torch.empty(self._total, dtype=getattr(torch, self._dtype), device=place(ordinal))
        sizes, steps = zip(rows, cols, strict=True), zip(cols, repeat(1), strict=False)
        return [*map(_view(), repeat(flat), sizes, steps, offsets)], flat.data_ptr()

    def by_pattern(self, ordinal: int) -> tuple[list[Any], int]:
        """The same, by a pattern made now."""
        return self._like(self._nested(), ordinal)

    @staticmethod
    def _like(pattern: Any, ordinal: int) -> tuple[list[Any], int]:
        import torch

        with private.below_autograd(torch)():
            block = torch.empty_like(pattern, device=place(ordinal))
            return [*block.unbind()], block.data_ptr()

    def _nested(self) -> Any:
        import torch

        rows, cols, offsets = self._columns
        sizes, steps = (np.empty((len(rows), 2), np.int64) for _ in range(2))
        sizes[:, 0], sizes[:, 1], steps[:, 0], steps[:, 1] = rows, cols, cols, 1
        # Not a tensor of inference mode, whatever the caller's is: it is kept.
        with torch.inference_mode(mode=False):
            untouched = np.asarray(_Untouched(self._total * ITEMSIZE[self._dtype]))
            memory = torch.from_numpy(untouched).view(getattr(torch, self._dtype))
            facts = (torch.from_numpy(column) for column in (sizes, steps, offsets.copy()))
            return private.nested_view(torch)(memory, *facts)


_kept: Shelf[tuple[bytes, bytes, str], Places] = Shelf("places of results", most=16 << 20)


def places(rows: Ints, cols: Ints, offsets: Ints, total: int, dtype: str) -> Places:
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
