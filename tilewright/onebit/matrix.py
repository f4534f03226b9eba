"""`BitMatrix`: rows of bits, 64 a word, and the way from arrays of numbers to it and back.

    x, axis=-1                          words, uint64
    +3  -1  -7  +2 | +1           ->    bit 0 is element 0: 0b11001 = 25      k = 5, shape (1, 5)

Element i of a row is bit i % 64 of word i // 64: 1 stands for +1, 0 for -1. Bits past the row's end
are 0 in every matrix, whoever made it; kernels rely on that.
"""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Real
from typing import Any

import numpy as np
import numpy.typing as npt

from tilewright.arrays.array import NDArray
from tilewright.arrays.exported import exported
from tilewright.arrays.views import loaded_torch, never_followed
from tilewright.backends import places
from tilewright.engines.bits import WORD, BitPlace
from tilewright.errors import ArgumentError, DtypeError, OperandError, ShapeError
from tilewright.facts.device import Device
from tilewright.facts.dtypes import numpys
from tilewright.remember import once
from tilewright.wording import short

_UNPACKED = ("int8", "int16", "int32", "int64", "float16", "float32", "float64", "bool")


@dataclass(frozen=True, eq=False)
class BitMatrix:
    """Rows of `k` elements of {-1, +1} (or {0, 1}), packed along their last dimension.

    words   uint64 [..., words]: element i of a row is bit i % 64 of word i // 64, bits past k are 0
    k       elements in a row

    `words` is an array of the kind that was packed: NumPy, `tilewright.Array`, pyopencl or, as
    int64, torch. Made by `pack`, by `matmul(threshold=...)` and by `of_words`.
    """

    words: Any
    k: int

    @classmethod
    def of_words(cls, words: Any, k: int) -> BitMatrix:
        """A copy of words that were packed elsewhere, checked: [..., ceil(k / 64)] uint64, NumPy.

        Raises ShapeError, DtypeError; ArgumentError where a bit past `k` is 1.
        """
        if not isinstance(words, np.ndarray) or words.dtype != np.uint64:
            raise DtypeError(f"words={short(words)}: accepted are NumPy arrays of uint64")
        whole = isinstance(k, int | np.integer) and not isinstance(k, bool)
        if not whole or k < 0 or words.ndim < 1 or words.shape[-1] != -(-int(k) // WORD):
            raise ShapeError(
                f"words.shape={words.shape}, k={short(k)}: accepted are rows of ceil(k /"
                f" {WORD}) words"
            )
        used = int(k) % WORD
        if used and words.size and int(np.max(words[..., -1] >> np.uint64(used))):
            raise ArgumentError(f"words: has bits past k={k}; accepted are zeros there")
        copy = np.array(words, order="C")
        copy.flags.writeable = False  # counts and layouts are remembered for what cannot change
        return cls(copy, int(k))

    @property
    def shape(self) -> tuple[int, ...]:
        """The unpacked shape [..., k]."""
        return (*map(int, self.words.shape[:-1]), self.k)

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return len(self.words.shape)

    @property
    def nbytes(self) -> int:
        """Bytes of the words."""
        return 8 * int(np.prod(self.words.shape, dtype=object))

    @once
    def device(self) -> Device:
        """Where the words lie."""
        return self.place.device(self.words)

    @once
    def place(self) -> BitPlace:
        """The kind of array that the words are, as `backends.bits` knows it."""
        return place_of(self.words, "words")

    @once
    def counts(self) -> Any:
        """How many elements of each row are +1: int32 [...], an array of the words' own kind."""
        return self.place.counts(self.words)

    def __len__(self) -> int:
        return self.shape[0]

    def __eq__(self, other: object) -> bool:
        """Same shape, same bits, wherever they lie."""
        if not isinstance(other, BitMatrix):
            return NotImplemented
        mine, theirs = self.place.to_host(self.words), other.place.to_host(other.words)
        return self.k == other.k and np.array_equal(mine, theirs)

    __hash__ = None  # type: ignore[assignment]

    def reshape(self, *shape: int) -> BitMatrix:
        """Other leading dimensions, the same rows: the last size must be k. No copy."""
        sizes = tuple(shape)
        rows = int(np.prod(self.words.shape[:-1], dtype=object))
        fine = all(isinstance(size, int | np.integer) and size >= 0 for size in sizes)
        if (
            not (sizes and fine)
            or sizes[-1] != self.k
            or int(np.prod(sizes[:-1], dtype=object)) != rows
        ):
            raise ShapeError(
                f"shape={shape}: accepted are sizes whose product is {rows}, then {self.k}"
            )
        words = self.place.reshape(self.words, (*sizes[:-1], int(self.words.shape[-1])))
        return BitMatrix(words, self.k)

    def to(self, device: Device | str) -> BitMatrix:
        """The same bits on another device; itself where they lie there already."""
        from tilewright.inputs.devices import resolve

        wanted = resolve(device)
        if wanted == self.device:
            return self
        target = places().get(wanted.backend)
        if target is None:
            raise OperandError(f"device={wanted.id!r}: has no one-bit kernels")
        return BitMatrix(target.from_host(self.place.to_host(self.words), wanted), self.k)

    def __repr__(self) -> str:
        return f"<tilewright.onebit.BitMatrix {self.shape} on {self.device.id}>"


def place_of(value: Any, name: str) -> BitPlace:
    """The place of an array. Raises OperandError for what no back end takes."""
    for place in places().values():
        if place.takes(value):
            return place
    raise OperandError(
        f"{name}={short(value)}: not an array; accepted are NumPy, pyopencl, tilewright and CUDA"
        " arrays, and any CPU array with __dlpack__"
    )


@never_followed
def pack(x: Any, axis: int = -1, *, zero: int | None = None) -> BitMatrix:
    """Numbers to bits along `axis`, which becomes the last: above 0 is +1, below 0 is -1.

    Args:
        x: real numbers of any shape with one dimension or more; bool (True is +1, False is -1),
            integers, float16, float32, float64. Infinities have a sign like any other number.
        axis: the dimension that products sum over. `pack(b, axis=0)` of b [k, n] gives the columns
            of b as n rows, which is how `matmul` takes its second operand.
        zero: what 0 and -0 become: +1 (as `x >= 0`) or -1 (as `x > 0`). None, the default, raises:
            0 has no sign (ONNX's Sign gives 0, Larq's gives +1), so a choice must be stated.

    Returns:
        BitMatrix of shape [..., k] on the device of `x`: 1 bit for each element, rows padded to 64.

    Raises:
        ArgumentError: NaN; 0 without `zero`. ShapeError: no dimensions, an axis that x has not.
        DtypeError: complex numbers, objects, text. OperandError: not an array.
    """
    place = place_of(x, "x")
    try:
        shape = tuple(x.shape)
    except (AttributeError, RuntimeError):  # of DLPack alone; a nested tensor
        x = exported(x, "x", loaded_torch())
        shape = x.shape
    if not shape:
        raise ShapeError("x.shape=(): accepted are one dimension or more")
    if not isinstance(axis, int | np.integer) or not -len(shape) <= axis < len(shape):
        raise ShapeError(f"axis={short(axis)}: accepted are {-len(shape)} to {len(shape) - 1}")
    if zero is not None and not (
        isinstance(zero, Real) and not isinstance(zero, bool) and zero in (-1, 1)
    ):
        raise ArgumentError(f"zero={short(zero)}: accepted are 1, -1 and None (0 is an error)")
    words, counts = place.pack(x, int(axis) % len(shape), zero)
    result = BitMatrix(words, int(shape[axis]))
    if counts is not None:
        result.__dict__["counts"] = counts  # fills the cached property
    return result


@never_followed
def unpack(bits: BitMatrix, axis: int = -1, dtype: npt.DTypeLike = np.int8) -> NDArray:
    """Bits to a NumPy array of -1 and +1 (bool: False and True), the packed dimension at `axis`.

    Raises ShapeError for an axis that is not there, DtypeError for a dtype without -1 and +1.
    """
    check_bits(bits, "bits")
    if not isinstance(axis, int | np.integer) or not -bits.ndim <= axis < bits.ndim:
        raise ShapeError(f"axis={short(axis)}: accepted are {-bits.ndim} to {bits.ndim - 1}")
    wanted = numpys(dtype)
    if wanted is None or wanted.name not in _UNPACKED:
        raise DtypeError(f"dtype={short(str(dtype))}: accepted are {', '.join(_UNPACKED)}")
    words: NDArray = np.ascontiguousarray(bits.place.to_host(bits.words))
    octets = words.astype("<u8", copy=False).view(np.uint8)
    ones = np.unpackbits(octets, axis=-1, count=bits.k, bitorder="little")
    if wanted == np.bool_:
        result = ones.view(np.bool_)
    else:
        result = (2 * ones.view(np.int8) - 1).astype(wanted, copy=False)
    return np.moveaxis(result, -1, axis)


def check_bits(bits: Any, name: str) -> None:
    """Raise OperandError for what is no BitMatrix."""
    if not isinstance(bits, BitMatrix):
        raise OperandError(
            f"{name}={short(bits)}: accepted is a BitMatrix; pack({name}) makes one of an array"
        )


def clipped(thresholds: NDArray) -> NDArray:
    """Whole numbers of any type as int32, those beyond it as its ends."""
    info = np.iinfo(np.int32)
    if thresholds.dtype == np.uint64:
        thresholds = np.minimum(thresholds, np.uint64(info.max))
    # Half and single precision have no 2^31 - 1 to clip to.
    wide = thresholds.astype(np.float64 if thresholds.dtype.kind == "f" else np.int64)
    return np.ascontiguousarray(np.clip(wide, info.min, info.max).astype(np.int32))
