"""A product of bits whose arguments are checked: sizes, options as vectors, and its result.

Vectors that lie on the operands' GPU already are taken as they are: to look at them would wait.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from tilewright.arrays.array import NDArray
from tilewright.engines.bits import FORMS, WORD, BitPlace, BitProblem, BitWork
from tilewright.errors import ArgumentError, DtypeError, OperandError, ShapeError
from tilewright.facts.dtypes import numpys
from tilewright.onebit.matrix import BitMatrix, check_bits, clipped, place_of
from tilewright.wording import short

_DTYPES = ("int32", "float16", "float32")
_LONGEST = 2**31 - 64  # counts and sizes are 32 bits in every kernel


@dataclass(frozen=True, slots=True)
class Asked:
    """The options of a product, as they were passed."""

    scale: Any = None
    shift: Any = None
    threshold: Any = None
    flip: Any = None
    dtype: Any = None


@dataclass(slots=True)
class Job:
    """A checked product: operands as matrices, and the shape that the caller gets back."""

    problem: BitProblem
    place: BitPlace
    a: BitMatrix
    b: BitMatrix
    vectors: dict[str, Any]
    public: tuple[int, ...]
    out: Any
    given: bool

    def work(self, *, counts: bool) -> BitWork:
        """What an engine is given."""
        p, out = self.problem, self.out
        if isinstance(out, np.ndarray) and p.out != "bits":
            out = out.reshape(p.m, p.n)  # the caller's has any number of dimensions
        return BitWork(
            p,
            self.place.reshape(self.a.words, (p.m, p.words)),
            self.place.reshape(self.b.words, (p.n, p.words)),
            self.place.reshape(self.a.counts, (p.m,)) if counts else None,
            self.place.reshape(self.b.counts, (p.n,)) if counts else None,
            out,
            **self.vectors,
        )

    def result(self) -> Any:
        """What the caller gets."""
        if self.given:
            return self.out
        if self.problem.out != "bits":
            return self.place.reshape(self.out, self.public)
        words = self.place.reshape(self.out, (*self.public[:-1], -(-self.problem.n // WORD)))
        return BitMatrix(words, self.problem.n)


def checked(a: Any, b: Any, form: str, asked: Asked, out: Any = None, *, dry: bool = False) -> Job:
    """A product whose arguments fit, with memory for its result, but not where it is `dry`.

    Raises ShapeError, DtypeError, ArgumentError, OperandError, before anything is written.
    """
    check_bits(a, "a")
    check_bits(b, "b")
    if form not in FORMS:
        raise ArgumentError(f"form={short(form)}: accepted are {', '.join(map(repr, FORMS))}")
    problem, public = _sizes(a, b, form, _result_type(asked, out))
    if b.device != a.device:
        raise OperandError(
            f"b={b!r}: lies on another device than a={a!r}; b.to(a.device) copies it"
        )
    place, n = a.place, problem.n
    vectors = {name: _beside(name, asked, n, place, a.words) for name in _VECTORS}
    if out is not None:
        _check_out(out, public, problem.out, place, a)
        return Job(problem, place, a, b, vectors, public, out, True)
    columns = -(-n // WORD) if problem.out == "bits" else n
    made = None if dry else place.empty((problem.m, columns), problem.out, a.words)
    return Job(problem, place, a, b, vectors, public, made, False)


def _sizes(
    a: BitMatrix, b: BitMatrix, form: str, result: str
) -> tuple[BitProblem, tuple[int, ...]]:
    if b.ndim > 2:
        raise ShapeError(f"b.shape={b.shape}: accepted are [n, k] and [k]")
    if a.k != b.k:
        raise ShapeError(f"b.k={b.k}: must equal a.k={a.k}; shapes {a.shape} and {b.shape}")
    lead = a.shape[:-1]
    m = int(np.prod(lead, dtype=object))
    n = b.shape[0] if b.ndim == 2 else 1
    if max(m, n, a.k) > _LONGEST:
        raise ShapeError(f"m={m}, n={n}, k={a.k}: accepted are sides of at most {_LONGEST}")
    if result == "bits" and b.ndim == 1:
        raise ShapeError(f"b.shape={b.shape}: a threshold packs rows of n; accepted is [n, k]")
    return BitProblem(m, n, a.k, form, result), (*lead, n) if b.ndim == 2 else lead


def _result_type(asked: Asked, out: Any) -> str:
    scale, shift, dtype = asked.scale, asked.shift, asked.dtype
    if asked.threshold is not None:
        others = {"scale": scale, "shift": shift, "dtype": dtype, "out": out}
        for name, value in others.items():
            if value is not None:
                raise ArgumentError(
                    f"{name}={short(value)}: cannot be combined with threshold, which gives bits"
                )
        return "bits"
    if asked.flip is not None:
        raise ArgumentError(f"flip={short(asked.flip)}: needs threshold")
    real = scale is not None or shift is not None
    if dtype is None:
        return "float32" if real else "int32"
    wanted = numpys(dtype)
    name = "" if wanted is None else wanted.name
    if name not in _DTYPES or (real and name == "int32"):
        accepted = _DTYPES[1:] if real else _DTYPES
        raise DtypeError(f"dtype={short(str(dtype))}: accepted are {', '.join(accepted)}")
    return name


def _vector(name: str, value: Any, n: int) -> NDArray:
    try:
        array = np.asarray(value.cpu() if hasattr(value, "cpu") else value)
    except (TypeError, ValueError, RuntimeError):  # of tensors with gradients or without memory
        array = np.empty(0, object)
    if array.dtype.kind not in "biuf":
        raise DtypeError(f"{name}={short(value)}: accepted are real numbers")
    if array.shape not in ((), (1,), (n,)):
        raise ShapeError(f"{name}.shape={array.shape}: accepted are a number and ({n},)")
    return np.broadcast_to(array, (n,))


def _thresholds(value: Any, n: int) -> NDArray:
    """Integers, clipped to int32: a dot product never leaves it, so the answers stay."""
    array = _vector("threshold", value, n)
    if array.dtype.kind == "f" and not np.array_equal(array, np.round(array)):
        raise DtypeError(
            f"threshold={short(value)}: accepted are whole numbers; dot >= t is dot >= ceil(t)"
        )
    return clipped(array)


def _flips(value: Any, n: int) -> NDArray:
    array = _vector("flip", value, n)
    if array.dtype != np.bool_:
        raise DtypeError(f"flip={short(value)}: accepted are bool")
    return np.ascontiguousarray(array).view(np.uint8)


# Of each option that is a vector: the dtype that is taken as it lies, the engine's, and its reader.
_VECTORS: dict[str, tuple[str, str, Callable[[Any, int], Any]]] = {
    "scale": ("float32", "float32", partial(_vector, "scale")),
    "shift": ("float32", "float32", partial(_vector, "shift")),
    "threshold": ("int32", "int32", _thresholds),
    "flip": ("bool", "uint8", _flips),
}


def _beside(name: str, asked: Asked, n: int, place: BitPlace, words: Any) -> Any:
    """An option as a vector beside the operands; None where it is not asked for.

    What is on the operands' GPU is used as it is: to look at it would wait.
    """
    value = getattr(asked, name)
    if name == "flip" and value is None and asked.threshold is not None:
        value = False
    if value is None:
        return None
    own, dtype, read = _VECTORS[name]
    in_place = getattr(value, "is_cuda", False) and place.takes(value)
    if in_place and tuple(value.shape) == (n,) and str(value.dtype) == f"torch.{own}":
        return place.vector(value, dtype, words)
    return place.vector(read(value, n), dtype, words)


def _check_out(
    out: Any, public: tuple[int, ...], dtype: str, place: BitPlace, a: BitMatrix
) -> None:
    if place_of(out, "out") is not place or place.device(out) != a.device:
        raise OperandError(f"out={short(out)}: accepted is an array on the device of a={a!r}")
    if tuple(out.shape) != public:
        raise ShapeError(f"out.shape={tuple(out.shape)}: must be {public}")
    if str(out.dtype).removeprefix("torch.") != dtype:
        raise DtypeError(f"out.dtype={out.dtype}: must be {dtype}")
    flags = getattr(out, "flags", None)  # NumPy's and pyopencl's; torch's layout the engine checks
    if flags is not None and not (flags.c_contiguous and getattr(flags, "writeable", True)):
        raise OperandError("out: accepted are dense, row-major, writable arrays")
