"""The host's engine of one-bit products: lays B out, cuts a product into tasks for all cores.

`compiled` imports Numba on the first product and keeps the machine code in the cache folder.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache, partial

import numpy as np

from tilewright.arrays.array import NDArray
from tilewright.backends.host import BACKEND, compiled, rates
from tilewright.backends.host.epilogue import finish, frozen, is_fixed
from tilewright.backends.host.threads import Task, in_parallel
from tilewright.engines.bits import BitProblem, BitWork
from tilewright.facts.device import Device
from tilewright.facts.verdict import Proposal
from tilewright.remember import Shelf

_FEW = 4  # rows of A up to which B is read as it lies
_TASK = 5e7  # least operations of a task: 20 µs; Python takes 5 to 10 to start one
_ALONE = 3e8  # operations that one thread does before another has woken up and reported back
_FINISH, _START = 2.5e-10, 4e-5  # seconds an element, and once
# One-bit operations for one of float32, by how a core counts, until its own rate is measured.
_SHARES = {"vpopcntq of AVX-512": 9.5, "vpshufb of AVX-512BW": 8.0, "vpshufb of AVX2": 7.5}
_SHARE = 1.5  # of any other
_HALVED = 2**30  # "and" adds two counts of up to k bits: from here on the sum exceeds an int32
_FLOATS = {2: (0x7FFF, 0x7C00), 4: (0x7FFFFFFF, 0x7F800000), 8: (2**63 - 1, 0x7FF << 52)}


class NumbaEngine:
    """Tiles of counts in registers, compiled for this processor."""

    name = "numba"
    needs_counts = False

    def why_not(self, problems: Sequence[BitProblem], device: Device) -> str | None:
        """Wherever Numba is; little-endian, as bits are written by the byte."""
        if not compiled.available():
            return compiled.why_none()
        for problem in problems:
            if problem.form == "and" and problem.k >= _HALVED:
                return f"k={problem.k}: takes rows of less than 2^30 elements for form='and'"
        return None

    def propose(self, problems: Sequence[BitProblem], device: Device) -> Proposal:
        """Counting at the rate measured here, finishing every element, and starting."""
        seconds, (rate, origin) = 0.0, rate_of(device)
        for problem in problems:
            cores = device.compute_units if problem.operations > _ALONE else 1
            counting = problem.operations / rate + problem.m * problem.n * _FINISH
            seconds += _START + counting / cores
        return Proposal(self.name, device, seconds, origin)

    def bind(self, proposal: Proposal, works: Sequence[BitWork]) -> Callable[[], None]:
        """Lays every B out, then multiplies, each step on all cores."""
        large = sum(work.problem.operations for work in works) > _ALONE
        return partial(_multiply, works, proposal.device.compute_units if large else 1)


def rate_of(device: Device) -> tuple[float, str]:
    """Operations a second of a core, and where that is from. Measures nothing."""
    way = rates.counts_by()
    measured = rates.counting(device, way)
    if measured is not None:
        return measured, f"{way}, at its rate measured here"
    # Instructions for 512 bits on a core of which nothing is known but its vectors' peak.
    share = _SHARES.get(way.removeprefix("popcount by "), _SHARE)
    rate = share * rates.PEAK / rates.of(device).factor
    return rate, f"{way}, at a share of the vectors' peak until a large product or bind measures it"


def _multiply(works: Sequence[BitWork], cores: int) -> None:
    products = [_Product(work) for work in works]
    in_parallel([task for one in products for task in one.preparing(cores)], cores)
    in_parallel([task for one in products for task in one.multiplying(cores)], cores)
    for one in products:
        one.finish()


class _Product:
    """One product on its way through the kernels."""

    def __init__(self, work: BitWork) -> None:
        self.work = work
        self.problem = work.problem
        self.few = work.problem.m <= _FEW
        # Always read-only, so that Numba compiles for one type of array.
        self.a, self.b = (frozen(np.ascontiguousarray(words)) for words in (work.a, work.b))
        self.counts: NDArray | None = None
        self.panels: NDArray | None = None
        self.reals: NDArray | None = None
        self.keep: tuple[NDArray, ...] = ()  # what the kernel knows by address

    def preparing(self, cores: int) -> list[Task]:
        """Tasks that lay B out, unless it is known; none for a few rows of A."""
        bits, b = compiled.kernels("bits"), self.b
        if self.few:
            return []
        self.panels = _laid_out.get(id(self.work.b), self.work.b)
        if self.panels is not None:
            return []
        count = -(-self.problem.n // bits.COLUMNS)
        pairs = -(-self.problem.words // 2)
        self.panels = np.empty((count, pairs, bits.COLUMNS // bits.LANES, 2, bits.LANES), np.uint64)
        step = count if b.size < 1 << 14 else -(-count // (4 * cores))
        return [partial(bits.lay_out_b, b, *run, self.panels) for run in _runs(count, step)]

    def multiplying(self, cores: int) -> list[Task]:
        """Runs of rows x runs of panels, about as much work in each."""
        bits, problem = compiled.kernels("bits"), self.problem
        if self.few:
            self.counts = np.empty((problem.m, problem.n), np.int32)
            step = problem.n if problem.operations < _ALONE else -(-problem.n // (4 * cores))
            runs = _runs(problem.n, step)
            return [partial(bits.few_rows, self.a, self.b, *run, self.counts) for run in runs]
        assert self.panels is not None
        b = self.work.b
        if is_fixed(b) and _laid_out.get(id(b), b) is None:
            _laid_out.keep(id(b), self.panels, size=self.panels.nbytes, owners=(b,))
        panels, m = len(self.panels), problem.m
        wanted = min(4 * cores, int(problem.operations / _TASK)) if cores > 1 else 1
        rows = _share(m, wanted, bits.BLOCK)
        columns = _share(panels, -(-wanted // -(-m // rows)), 1)
        bases, epilogue = self._bases(), self._epilogue()
        return [
            partial(bits.multiply, self.a, self.panels, *down, *across, *bases, epilogue)
            for down in _runs(m, rows)
            for across in _runs(panels, columns)
        ]

    def _bases(self) -> tuple[NDArray, NDArray, np.int32]:
        """xor: k - 2 count. and: half of (ones of a + ones of b - count)."""
        problem = self.problem
        if problem.form == "xor":
            rows = np.full(problem.m, problem.k, np.int32)
            return rows, _padded(np.zeros(problem.n, np.int32), 0), np.int32(1)
        rows, columns = (
            np.bitwise_count(words).sum(-1, dtype=np.int32) for words in (self.a, self.b)
        )
        return rows, _padded(columns, 0), np.int32(0)

    def _epilogue(self) -> tuple[int, int, int, int, int]:
        """What `multiply` wants: kind, address and width of the result, addresses of vectors."""
        work, out, n = self.work, self.problem.out, self.problem.n
        if out == "int32":
            return (0, work.out.ctypes.data, n, 0, 0)
        if out == "bits":
            work.out[:, -1] = 0  # the last panel may end within the last word
            # No dot product reaches it: columns beyond the last answer 0.
            first = _padded(work.threshold, np.iinfo(np.int32).max)
            second = np.packbits(_padded(work.flip, 0), bitorder="little")
            self.keep = (first, second)
            width = 8 * work.out.shape[1]
            return (2, work.out.ctypes.data, width, first.ctypes.data, second.ctypes.data)
        self.reals = work.out if out == "float32" else np.empty(work.out.shape, np.float32)
        ones, zeros = np.ones(n, np.float32), np.zeros(n, np.float32)
        first = _padded(ones if work.scale is None else work.scale, 0)
        # -0 and not 0: it leaves every number as it is, -0 too.
        second = _padded(-zeros if work.shift is None else work.shift, 0)
        self.keep = (first, second)
        return (1, self.reals.ctypes.data, n, first.ctypes.data, second.ctypes.data)

    def finish(self) -> None:
        """What NumPy does better: float16, and the epilogue of a few rows."""
        if self.few:
            count, problem = self.counts, self.problem
            rows, columns, double = self._bases()
            assert count is not None
            value = rows[:, None] + columns[: problem.n] - (count << double)
            finish(value >> (1 - double), self.work, slice(0, problem.m))
        elif self.problem.out == "float16":
            with np.errstate(over="ignore"):
                self.work.out[...] = self.reals


def _runs(size: int, step: int) -> list[tuple[int, int]]:
    """Where pieces of `step` begin and end."""
    return [(first, min(size, first + step)) for first in range(0, size, step)]


def _share(size: int, parts: int, multiple: int) -> int:
    """What each of about `parts` equal shares of `size` holds, in multiples."""
    return -(-size // (max(1, parts) * multiple)) * multiple


def _padded(vector: NDArray, value: int) -> NDArray:
    """To whole words of columns, which whole panels divide."""
    result = np.full(-(-len(vector) // 64) * 64, value, vector.dtype)
    result[: len(vector)] = vector
    return result


# Panels of matrices that nobody can write to, for as long as those live: weights, mostly.
_laid_out: Shelf[int, NDArray] = Shelf("one-bit matrices laid out", most=2 << 30)


def pack_signs(array: NDArray, zero: int | None, words: NDArray) -> bool:
    """Signs of a dense matrix [rows, length] into `words`; False where it holds what it may not."""
    bits, cores = compiled.kernels("bits"), host().compute_units
    width = array.dtype.itemsize
    mask, infinity = _FLOATS[width] if array.dtype.kind == "f" else (-1, -1)
    numbers = array.view(f"i{width}")
    plus = -1 if zero == 1 else 0
    rows = len(array)
    step = rows if array.nbytes < 1 << 20 else -(-rows // (2 * cores))
    found: list[tuple[bool, bool]] = []

    def task(first: int, last: int) -> None:
        found.append(bits.pack_rows(numbers, first, last, mask, infinity, plus, words))

    in_parallel([partial(task, *run) for run in _runs(rows, step)], cores)
    zeros = any(pair[0] for pair in found)
    return not any(pair[1] for pair in found) and not (zeros and zero is None)


@cache
def host() -> Device:
    """The host's record, read once."""
    return BACKEND.devices()[0]
