"""One-bit products on the host: Numba's compiled kernel where Numba is installed, NumPy elsewhere.

`PLACE` holds NumPy arrays and whatever else shares the host's memory by DLPack.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from tilewright.arrays.aligned import room
from tilewright.arrays.array import Array, NDArray
from tilewright.arrays.exported import exported, is_here
from tilewright.arrays.views import loaded_torch
from tilewright.backends.host import compiled, native, rates
from tilewright.backends.host.epilogue import finish, fixed, sign_words
from tilewright.engines.bits import WORD, BitEngine, BitProblem, BitWork
from tilewright.errors import ArgumentError, DtypeError
from tilewright.facts.device import Device
from tilewright.facts.verdict import Proposal

_DTYPES = {"int32": np.int32, "float16": np.float16, "float32": np.float32, "bits": np.uint64}
_NUMPY_RATE = 8e9  # operations a second of np.bitwise_count, on the core that `rates` counts in
_BLOCK = 1 << 22  # bytes of words that NumPy's way holds at once


class HostPlace:
    """NumPy arrays, `tilewright.Array` on the host, and CPU arrays with DLPack."""

    def takes(self, value: Any) -> bool:
        """Whether the array lies in the host's memory."""
        if isinstance(value, np.ndarray):
            return True
        if isinstance(value, Array):
            return value.device.backend == "host"
        return hasattr(value, "__dlpack_device__") and is_here(value)

    def device(self, value: Any) -> Device:
        """The host."""
        return native.host()

    def engines(self, device: Device) -> tuple[BitEngine, ...]:
        """Every way to multiply here."""
        return ENGINES

    def pack(self, value: Any, axis: int, zero: int | None) -> tuple[NDArray, None]:
        """By the compiled kernel; by np.packbits where there is none, or to name what offends."""
        array = np.moveaxis(_as_numpy(value), axis, -1)
        fits = array.dtype.kind in "if" and array.dtype.itemsize <= 8 and array.dtype.isnative
        if compiled.available() and fits and array.size:
            words = np.empty((*array.shape[:-1], -(-array.shape[-1] // WORD)), np.uint64)
            rows = np.ascontiguousarray(array).reshape(-1, array.shape[-1])
            found = native.pack_signs(rows, zero, words.reshape(len(rows), words.shape[-1]))
            if found:
                return fixed(words), None
        check_signs(array, zero)
        ones = array if array.dtype == np.bool_ else array >= 0 if zero == 1 else array > 0
        return fixed(sign_words(ones)), None

    def counts(self, words: NDArray) -> NDArray:
        """Ones of each row."""
        result: NDArray = np.bitwise_count(words).sum(axis=-1, dtype=np.int32)
        return result

    def empty(self, shape: tuple[int, ...], dtype: str, like: Any) -> NDArray:
        """A NumPy array."""
        none = f"out: the host has no room for a result of shape {shape} in {dtype}"
        return room(shape, _DTYPES[dtype], none)

    def vector(self, value: Any, dtype: str, like: Any) -> NDArray:
        """As it is, or converted."""
        return np.ascontiguousarray(value, np.dtype(dtype))

    def to_host(self, words: NDArray) -> NDArray:
        """They are there."""
        return words

    def from_host(self, words: NDArray, device: Device) -> NDArray:
        """They are there."""
        return fixed(words)

    def reshape(self, value: NDArray, shape: tuple[int, ...]) -> NDArray:
        """A view."""
        return value if value.shape == shape else value.reshape(shape)


class NumpyEngine:
    """np.bitwise_count over blocks of rows: slow, exact, always there."""

    name = "numpy"
    needs_counts = False

    def why_not(self, problems: Sequence[BitProblem], device: Device) -> None:
        """Takes everything."""

    def propose(self, problems: Sequence[BitProblem], device: Device) -> Proposal:
        """From the rate of np.bitwise_count on one core."""
        rate = _NUMPY_RATE / rates.of(device).factor
        seconds = sum(1e-5 + problem.operations / rate for problem in problems)
        return Proposal(self.name, device, seconds, "np.bitwise_count on one core")

    def bind(self, proposal: Proposal, works: Sequence[BitWork]) -> Callable[[], None]:
        """Blocks of rows against all of B."""
        return partial(_multiply, works)


def _multiply(works: Sequence[BitWork]) -> None:
    for work in works:
        step = max(1, _BLOCK // max(8, 8 * work.problem.n * work.problem.words))
        for start in range(0, work.problem.m, step):
            rows = slice(start, start + step)
            finish(dots(work, rows), work, rows)


ENGINES: tuple[BitEngine, ...] = (native.NumbaEngine(), NumpyEngine())
PLACE = HostPlace()


def dots(work: BitWork, rows: slice) -> NDArray:
    """The integers of some rows, int32 [rows, n]."""
    problem = work.problem
    left, right = work.a[rows, None, :], work.b[None, :, :]
    mixed = left ^ right if problem.form == "xor" else left & right
    ones = np.bitwise_count(mixed).sum(axis=-1, dtype=np.int32)
    result: NDArray = np.int32(problem.k) - 2 * ones if problem.form == "xor" else ones
    return result


def check_signs(array: NDArray, zero: int | None) -> None:
    """Raise ArgumentError for NaN, and for 0 where nothing says what becomes of it."""
    if array.dtype == np.bool_:
        return
    if array.dtype.kind == "f" and np.isnan(array).any():
        where = tuple(map(int, np.argwhere(np.isnan(array))[0]))
        raise ArgumentError(f"x: NaN at {where} (packed axis last); accepted are real numbers")
    if zero is None and not np.all(array):
        where = tuple(map(int, np.argwhere(array == 0)[0]))
        raise ArgumentError(
            f"x: 0 at {where} (packed axis last) has no sign; zero=1 makes it"
            " +1, zero=-1 makes it -1"
        )


def _as_numpy(value: Any) -> NDArray:
    if isinstance(value, Array):
        value = np.asarray(value)
    elif not isinstance(value, np.ndarray):
        value = exported(value, "x", loaded_torch())
    if value.dtype.kind not in "biuf":
        raise DtypeError(f"x.dtype={str(value.dtype)!r}: accepted are bool, integers and floats")
    array: NDArray = value
    return array
