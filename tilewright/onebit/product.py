"""Products of bits: arguments checked, an engine chosen, results of the operands' own kind.

matmul          checks -> BitProblem -> engine -> BitWork -> result
grouped_matmul  the same for many, one launch an engine
explain         the choice alone, told
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tilewright.arrays.views import short
from tilewright.engines.bits import FORMS, WORD, BitPlace, BitProblem, BitWork
from tilewright.errors import ArgumentError, DtypeError, OperandError, ShapeError
from tilewright.facts.device import Device
from tilewright.inputs.devices import resolve
from tilewright.onebit.choice import Choice, choose, engine_names, tell
from tilewright.onebit.matrix import BitMatrix, check_bits, clipped, place_of

_DTYPES = ("int32", "float16", "float32")
_VECTORS = {"scale": "float32", "shift": "float32", "threshold": "int32", "flip": "uint8"}
_LONGEST = 2**31 - 64  # counts and sizes are 32 bits in every kernel


def matmul(
    a: BitMatrix,
    b: BitMatrix,
    *,
    form: str = "xor",
    scale: Any = None,
    shift: Any = None,
    threshold: Any = None,
    flip: Any = None,
    dtype: npt.DTypeLike | None = None,
    out: Any = None,
    device: Device | str | None = None,
    kernel: str | None = None,
) -> Any:
    """The exact product of two one-bit matrices, `b` given by its columns.

    `matmul(pack(x), pack(y, axis=0))` equals `x @ y` for x [m, k], y [k, n] of -1 and +1. With no
    option the result is int32. Scale and shift, or a threshold, are applied to the integers while
    they are in registers; a threshold packs its answers at once, 1 bit instead of 32 to memory.

    Args:
        a: [..., m, k] or [k].
        b: [n, k], a row for each column of the product, or [k]; on the same device.
        form: "xor" for elements of {-1, +1}: k - 2 popcount(a xor b). "and" for elements of {0, 1}:
            popcount(a and b).
        scale, shift: [n] or a number, real: float32(scale · dot) + shift, each step rounded once.
        threshold: [n] or a number, integers: element j of the result is +1 where
            dot >= threshold[j], else -1. Cannot be combined with scale, shift, dtype and out.
        flip: [n] or one bool: where True the answer of `threshold` is negated (dot < threshold), as
            a batch norm with a negative slope asks for.
        dtype: "int32" (default), or "float32" (default with scale or shift) or "float16", rounded
            once more from float32.
        out: [..., m, n] of that dtype, dense and row-major, where the result is written.
        device: where host operands are multiplied: "host", "opencl:0", "opencl:intel", ...; None is
            the host, or the default device where that works in the host's memory and is faster.
        kernel: one of `kernels(device)`, used whatever it costs.

    Returns:
        [..., m, n] of the operands' kind of array (NumPy on the host), dimensions of vectors
        dropped; `out` if given; with `threshold` a BitMatrix of shape [..., m, n].

    Raises:
        ShapeError, DtypeError, ArgumentError, OperandError, KernelError: before anything is
            written. DeviceError, DeviceMemoryError: the device failed or has too little memory.
    """
    job = _job(a, b, form, _Asked(scale, shift, threshold, flip, dtype), out)
    _run([job], device, kernel)
    return job.result()


def grouped_matmul(
    a: Sequence[BitMatrix],
    b: Sequence[BitMatrix],
    *,
    form: str = "xor",
    scale: Sequence[Any] | None = None,
    shift: Sequence[Any] | None = None,
    threshold: Sequence[Any] | None = None,
    flip: Sequence[Any] | None = None,
    dtype: npt.DTypeLike | None = None,
    device: Device | str | None = None,
    kernel: str | None = None,
) -> list[Any]:
    """`matmul` of a[i] and b[i] for every i, sizes as they come, all on one device.

    `scale`, `shift`, `threshold` and `flip` are sequences with one entry a problem (None for none).
    Returns the results in order; raises what `matmul` raises, naming the problem.
    """
    per_problem = {"scale": scale, "shift": shift, "threshold": threshold, "flip": flip}
    for name, values in {"a": a, "b": b, **per_problem}.items():
        if values is None and name in per_problem:
            continue
        if not isinstance(values, Sequence):
            raise OperandError(f"{name}={short(values)}: accepted are lists, one entry a problem")
        if len(values) != len(a):
            raise ShapeError(f"{name}: {len(values)} entries, must equal the {len(a)} of a")
    jobs = []
    for index, (left, right) in enumerate(zip(a, b, strict=True)):
        options = {
            name: None if values is None else values[index] for name, values in per_problem.items()
        }
        try:
            jobs.append(_job(left, right, form, _Asked(**options, dtype=dtype)))
        except (ShapeError, DtypeError, ArgumentError, OperandError) as error:
            raise type(error)(f"problem {index}: {error}") from None
    _run(jobs, device, kernel)
    return [job.result() for job in jobs]


def explain(
    a: BitMatrix,
    b: BitMatrix,
    *,
    form: str = "xor",
    scale: Any = None,
    shift: Any = None,
    threshold: Any = None,
    flip: Any = None,
    dtype: npt.DTypeLike | None = None,
    device: Device | str | None = None,
    kernel: str | None = None,
) -> str:
    """Which kernel `matmul(a, b, ...)` would use, the predicted time, and why not the others.

    Nothing is computed. Raises what `matmul` raises.
    """
    job = _job(a, b, form, _Asked(scale, shift, threshold, flip, dtype), dry=True)
    return tell(job.problem, _choice([job], device, kernel))


def kernels(device: Device | str | None = None) -> tuple[str, ...]:
    """Names of the one-bit kernels of a device, for `kernel=`."""
    return engine_names(resolve(device))


@dataclass(frozen=True, slots=True)
class _Asked:
    """The options of a product, as they were passed."""

    scale: Any = None
    shift: Any = None
    threshold: Any = None
    flip: Any = None
    dtype: Any = None


@dataclass(slots=True)
class _Job:
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


def _job(a: Any, b: Any, form: str, asked: _Asked, out: Any = None, *, dry: bool = False) -> _Job:
    check_bits((("a", a), ("b", b)))
    if form not in FORMS:
        raise ArgumentError(f"form={form!r}: accepted are {', '.join(map(repr, FORMS))}")
    problem, public = _sizes(a, b, form, _result_type(asked, out))
    if b.device != a.device:
        raise OperandError(
            f"b={b!r}: lies on another device than a={a!r}; b.to(a.device) copies it"
        )
    place, n = a.place, problem.n
    vectors = {
        "scale": _reals("scale", asked.scale, n, place),
        "shift": _reals("shift", asked.shift, n, place),
        "threshold": _thresholds(asked.threshold, n, place),
        "flip": _flips(asked.flip, n, place, wanted=asked.threshold is not None),
    }
    vectors = {
        name: None if value is None else place.vector(value, _VECTORS[name], a.words)
        for name, value in vectors.items()
    }
    if out is not None:
        _check_out(out, public, problem.out, place, a)
        return _Job(problem, place, a, b, vectors, public, out, True)
    columns = -(-n // WORD) if problem.out == "bits" else n
    made = None if dry else place.empty((problem.m, columns), problem.out, a.words)
    return _Job(problem, place, a, b, vectors, public, made, False)


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


def _result_type(asked: _Asked, out: Any) -> str:
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
    try:
        name = np.dtype(dtype).name
    except TypeError:
        name = ""
    if name not in _DTYPES or (real and name == "int32"):
        accepted = _DTYPES[1:] if real else _DTYPES
        raise DtypeError(f"dtype={str(dtype)!r}: accepted are {', '.join(accepted)}")
    return name


def _vector(name: str, value: Any, n: int) -> npt.NDArray[Any]:
    try:
        array = np.asarray(value.cpu() if hasattr(value, "cpu") else value)
    except (TypeError, ValueError):
        array = np.empty(0, object)
    if array.dtype.kind not in "biuf":
        raise DtypeError(f"{name}={short(value)}: accepted are real numbers")
    if array.shape not in ((), (1,), (n,)):
        raise ShapeError(f"{name}.shape={array.shape}: accepted are a number and ({n},)")
    return np.broadcast_to(array, (n,))


def _is_in_place(value: Any, n: int, dtype: str, place: BitPlace) -> bool:
    """Whether it is a vector on the operands' GPU, used as it is: to look at it would wait."""
    if not getattr(value, "is_cuda", False) or not place.takes(value):
        return False
    return tuple(value.shape) == (n,) and str(value.dtype).removeprefix("torch.") == dtype


def _reals(name: str, value: Any, n: int, place: BitPlace) -> Any:
    if _is_in_place(value, n, "float32", place):
        return value
    return None if value is None else np.ascontiguousarray(_vector(name, value, n), np.float32)


def _thresholds(value: Any, n: int, place: BitPlace) -> Any:
    """Integers, clipped to int32: a dot product never leaves it, so the answers stay."""
    if value is None or _is_in_place(value, n, "int32", place):
        return value
    array = _vector("threshold", value, n)
    if array.dtype.kind == "f" and not np.array_equal(array, np.round(array)):
        raise DtypeError(
            f"threshold={short(value)}: accepted are whole numbers; dot >= t is dot >= ceil(t)"
        )
    return clipped(array)


def _flips(value: Any, n: int, place: BitPlace, *, wanted: bool) -> Any:
    if not wanted:
        return None
    if _is_in_place(value, n, "bool", place):
        return value
    array = np.zeros(n, bool) if value is None else _vector("flip", value, n)
    if array.dtype != np.bool_:
        raise DtypeError(f"flip={short(value)}: accepted are bool")
    return np.ascontiguousarray(array).view(np.uint8)


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


def _choice(jobs: Sequence[_Job], device: Device | str | None, kernel: str | None) -> Choice:
    return choose([job.problem for job in jobs], jobs[0].a.device, device, kernel)


def _run(jobs: Sequence[_Job], device: Device | str | None, kernel: str | None) -> None:
    if not jobs:
        return
    for index, job in enumerate(jobs):
        if job.a.device != jobs[0].a.device:
            raise OperandError(
                f"problem {index}: a={job.a!r}: lies on another device than problem 0"
            )
    chosen = _choice(jobs, device, kernel)
    engine = chosen.engine
    works = [
        job.work(counts=engine.needs_counts) for job in jobs if job.problem.m and job.problem.n
    ]
    if works:
        engine.run(works, chosen.device)
