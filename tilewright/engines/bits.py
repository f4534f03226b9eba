"""The contract of one-bit products: where bits lie, what a product asks for, engines that run it.

BitPlace    one kind of array (NumPy, tilewright or pyopencl, torch on CUDA): packs, allocates, and
            names the engines of its devices
BitProblem  sizes and what comes out, without any array: what an engine is chosen by
BitWork     a problem with its operands in place
BitEngine   a family of kernels, with the contract of engines/contract.py

A back end that has one-bit kernels holds a module `bits` with a `PLACE`; nothing else lists it.
Words are 64 bits: element i of a row is bit i % 64 of word i // 64, 1 for +1 and 0 for -1, and the
bits past the row's end are 0.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from tilewright.engines.contract import Engine
from tilewright.facts.device import Device

WORD = 64
FORMS = ("xor", "and")
Launch = Callable[[], None]
OUTPUTS = ("int32", "float16", "float32", "bits")


@dataclass(frozen=True, slots=True)
class BitProblem:
    """C[m, n] from rows of k bits: A [m, k] and B [n, k].

    `form` is "xor" (elements are -1 and +1: k - 2 popcount(a xor b)) or "and" (elements are 0 and
    1: popcount(a and b)). `out` is one of `OUTPUTS`; "bits" compares with a threshold and packs.
    """

    m: int
    n: int
    k: int
    form: str = "xor"
    out: str = "int32"

    @property
    def words(self) -> int:
        """Words of 64 bits a row takes."""
        return -(-self.k // WORD)

    @property
    def operations(self) -> int:
        """Multiplications and additions that the product stands for."""
        return 2 * self.m * self.n * self.k

    @property
    def traffic(self) -> int:
        """Bytes that must move at least: every operand once."""
        sizes = {"int32": 4 * self.n, "float32": 4 * self.n, "float16": 2 * self.n}
        row = sizes.get(self.out, 8 * -(-self.n // WORD))
        return 8 * self.words * (self.m + self.n) + self.m * row


@dataclass(frozen=True, slots=True)
class BitWork:
    """A problem and its operands, all arrays of one place, dense and row-major.

    a          [m, words] words; `a_counts` [m] int32, how many bits of each row are 1
    b          [n, words] words; `b_counts` [n] int32
    scale      [n] float32 or None, shift [n] float32 or None: float32(scale * dot) + shift, each
               step rounded once (no fused multiply-add), then rounded to `out`
    threshold  [n] int32, where out is "bits": the bit is (dot >= threshold) xor flip
    flip       [n] uint8, 0 or 1
    out        [m, n] of the problem's type, or [m, words of n] words
    """

    problem: BitProblem
    a: Any
    b: Any
    a_counts: Any
    b_counts: Any
    out: Any
    scale: Any = None
    shift: Any = None
    threshold: Any = None
    flip: Any = None


class BitEngine(Engine[Sequence[BitProblem], Sequence[BitWork], Launch], Protocol):
    """A family of one-bit kernels for one kind of device, asked about products of one call.

    A launch computes every `out` that was bound: in host memory complete on return, on a device
    enqueued in order.
    """

    @property
    def needs_counts(self) -> bool:
        """Whether `a_counts` and `b_counts` must be filled; None is passed otherwise."""


class BitPlace(Protocol):
    """One kind of array that may hold bits."""

    def takes(self, value: Any) -> bool:
        """Whether `value` is an array of this kind; asked without importing anybody's library."""

    def device(self, value: Any) -> Device:
        """The device that such an array lies on."""

    def engines(self, device: Device) -> tuple[BitEngine, ...]:
        """Every engine of a device, whatever it takes."""

    def pack(self, value: Any, axis: int, zero: int | None) -> tuple[Any, Any]:
        """Words [..., words] of `value`, `axis` last, and the counts [...] of ones, int32.

        `zero` is what 0 becomes, -1 or +1; None raises ArgumentError where there is one. NaN always
        raises. `axis` is checked already.
        """

    def counts(self, words: Any) -> Any:
        """How many bits of each row are 1, int32."""

    def empty(self, shape: tuple[int, ...], dtype: str, like: Any) -> Any:
        """An uninitialised array beside `like`; dtype is one of `OUTPUTS`, "bits" for words."""

    def vector(self, value: Any, dtype: str, like: Any) -> Any:
        """A dense vector ("float32", "int32" or "uint8") beside `like`, copied where need be."""

    def to_host(self, words: Any) -> Any:
        """The words as a NumPy uint64 array of the same shape."""

    def from_host(self, words: Any, device: Device) -> Any:
        """NumPy words as an array of this kind on a device."""

    def reshape(self, value: Any, shape: tuple[int, ...]) -> Any:
        """The same memory under another shape."""
