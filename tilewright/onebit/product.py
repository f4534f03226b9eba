"""The public products of bits: `matmul`, `grouped_matmul`, `explain`, `kernels`.

matmul          checks (job.py) -> BitProblem -> engine (choice.py) -> BitWork -> result
grouped_matmul  the same for many, one launch an engine
explain         the choice alone, in words
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy.typing as npt

from tilewright.arrays.views import never_followed
from tilewright.errors import ArgumentError, DtypeError, OperandError, ShapeError
from tilewright.facts.device import Device
from tilewright.facts.verdict import Verdict
from tilewright.inputs.devices import host_for, resolve
from tilewright.onebit.choice import WORTH_PROBING, engine_of, engines_of, judged
from tilewright.onebit.job import Asked, Job, checked
from tilewright.onebit.matrix import BitMatrix
from tilewright.planning.explain import lines_of
from tilewright.wording import short


@never_followed
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
    job = checked(a, b, form, Asked(scale, shift, threshold, flip, dtype), out)
    _run([job], device, kernel)
    return job.result()


@never_followed
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
        if not isinstance(values, Sequence) or isinstance(values, memoryview):
            raise OperandError(f"{name}={short(values)}: accepted are lists, one entry a problem")
        if len(values) != len(a):
            raise ShapeError(f"{name}: {len(values)} entries, must equal the {len(a)} of a")
    jobs = []
    for index, (left, right) in enumerate(zip(a, b, strict=True)):
        options = {
            name: None if values is None else values[index] for name, values in per_problem.items()
        }
        try:
            jobs.append(checked(left, right, form, Asked(**options, dtype=dtype)))
        except (ShapeError, DtypeError, ArgumentError, OperandError) as error:
            raise type(error)(f"problem {index}: {error}") from None
    _run(jobs, device, kernel)
    return [job.result() for job in jobs]


@never_followed
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
    job = checked(a, b, form, Asked(scale, shift, threshold, flip, dtype), dry=True)
    verdict, problem = _verdict([job], device, kernel), job.problem
    where = verdict.best.device
    head = f"m={problem.m} n={problem.n} k={problem.k}, {problem.form}, to {problem.out}"
    lines = [f"problem    {head}", f"device     {where.id}  {where.name}"]
    return "\n".join(lines + lines_of(verdict, problem.operations, "OP/s"))


def kernels(device: Device | str | None = None) -> tuple[str, ...]:
    """Names of the one-bit kernels of a device, for `kernel=`."""
    return tuple(engine.name for engine in engines_of(resolve(device)))


def _verdict(jobs: Sequence[Job], device: Device | str | None, kernel: str | None) -> Verdict:
    return judged([job.problem for job in jobs], jobs[0].a.device, device, kernel)


def _is_host(jobs: Sequence[Job], device: Device | str | None) -> bool:
    return (jobs[0].a.device if device is None else resolve(device)).backend == "host"


def _run(jobs: Sequence[Job], device: Device | str | None, kernel: str | None) -> None:
    if not jobs:
        return
    for index, job in enumerate(jobs):
        if job.a.device != jobs[0].a.device:
            raise OperandError(
                f"problem {index}: a={job.a!r}: lies on another device than problem 0"
            )
    if sum(job.problem.operations for job in jobs) >= WORTH_PROBING and _is_host(jobs, device):
        host_for(bits=True)
    chosen = _verdict(jobs, device, kernel).best
    engine = engine_of(chosen)
    works = [
        job.work(counts=engine.needs_counts) for job in jobs if job.problem.m and job.problem.n
    ]
    if works:
        engine.bind(chosen, works)()
