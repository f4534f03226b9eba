"""Runs a batch where no grouped kernel reaches its memory: a loop of products, or with copies.

`host_loop` is the host device. `through_device` packs operands into one buffer each, runs there and
brings the results back: what a GPU with memory of its own needs for lists of NumPy arrays.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import repeat
from typing import Any

import numpy as np

from tilewright.arrays.array import NDArray
from tilewright.backends.host.backend import NO_ROOM, activate, multiply
from tilewright.engines.grouped import GroupedKernel, GroupedOperands
from tilewright.errors import DeviceMemoryError
from tilewright.facts.device import Device
from tilewright.facts.scalars import Scalars
from tilewright.inputs.batch import Call
from tilewright.inputs.matrices import Matrices, matrices
from tilewright.inputs.narrow import stored
from tilewright.inputs.overlap_batch import extents
from tilewright.inputs.ragged_batch import RaggedBatch
from tilewright.planning.grouped import GroupedLayout
from tilewright.planning.host_part import ZEROED


def views(part: Matrices) -> list[NDArray]:
    """The matrices of a host operand as NumPy views, transposes applied."""
    at = part.at
    low, high = extents(part)
    held = np.flatnonzero(low < high)
    first = int(low[held].min(initial=2**62)) if len(held) else 0
    reach = int(high[held].max(initial=first)) - first if len(held) else 0
    # One view of memory from the lowest address on; only what the matrices reach is touched.
    span: Any = (ctypes.c_char * reach).from_address(first)
    memory = np.frombuffer(span, np.uint8) if reach else np.empty(0, np.uint8)
    starts = np.where(low < high, at.address - first, 0).tolist()
    shapes = zip(at.rows.tolist(), at.cols.tolist(), strict=True)
    steps = zip(at.row.tolist(), at.col.tolist(), strict=True)
    view: Any = np.ndarray
    return list(map(view, shapes, repeat(stored(part.dtype)), repeat(memory), starts, steps))


def host_loop(
    a: Matrices,
    b: Matrices,
    c: Matrices,
    bias: Matrices | None,
    scalars: list[Scalars],
    activation: str,
) -> Callable[[], None]:
    """NumPy's products and passes, one after another, their views made beforehand."""
    shifts = [None] * len(a) if bias is None else [_vector(v) for v in views(bias)]
    jobs = [
        (x, y, z, scale, shift)
        for x, y, z, scale, shift in zip(views(a), views(b), views(c), scalars, shifts, strict=True)
        if z.size
    ]
    if c.dtype == np.float16 or activation == "gelu":

        def run_all() -> None:
            try:
                for x, y, z, scale, shift in jobs:
                    multiply(x, y, z, scale, shift, activation)
            except MemoryError:
                raise DeviceMemoryError(NO_ROOM) from None

        return run_all
    largest = max((z.size for _, _, z, scale, _ in jobs if scale.beta), default=0)
    beside = np.empty(largest, c.dtype)
    steps = [step for job in jobs for step in _steps(*job, activation, beside)]

    def run() -> None:
        try:
            for function, arguments in steps:
                function(*arguments)
        except MemoryError:
            raise DeviceMemoryError(NO_ROOM) from None

    return run


def _steps(
    x: NDArray,
    y: NDArray,
    z: NDArray,
    scale: Scalars,
    shift: NDArray | None,
    activation: str,
    beside: NDArray,
) -> list[tuple[Callable[..., Any], tuple[Any, ...]]]:
    """What `multiply` does, without its temporaries: functions of NumPy's and their arguments.

    A product that is added to what lies in `z` is made in `beside` first.
    """
    number = partial(np.array, dtype=z.dtype)  # NumPy takes it in 0.2 to 0.7 µs less than a float
    if scale.alpha == 0:
        x, y = x[:, :0], y[:0]
    made = beside[: z.size].reshape(z.shape) if scale.beta else z
    steps: list[tuple[Callable[..., Any], tuple[Any, ...]]] = []
    if made.size < ZEROED and made.flags.carray:  # aligned, too, which dot refuses to do without
        steps.append((x.dot, (y, made)))  # 0.4 µs less than numpy.matmul
    else:
        steps.append((np.matmul, (x, y, made)))
    if scale.alpha not in (0, 1):
        steps.append((np.multiply, (made, number(scale.alpha), made)))
    if scale.beta not in (0, 1):
        steps.append((np.multiply, (z, number(scale.beta), z)))
    if scale.beta:
        steps.append((np.add, (z, made, z)))
    if shift is not None:
        steps.append((np.add, (z, shift, z)))
    if activation == "relu":
        steps.append((partial(np.maximum, out=z), (z, number(0))))
    return steps


def through_device(
    device: Device,
    layout: GroupedLayout,
    kernel: GroupedKernel,
    call: Call,
) -> Callable[[], None]:
    """Copies in, one run on the device, copies out; the copies are made anew at every call.

    Bias and activation are applied on the way out: a bias lies on the host in any case.
    """
    a, b, c = (views(part) for part in (call.a, call.b, call.c))
    shifts = None if call.bias is None else [_vector(vector) for vector in views(call.bias)]
    reads_c = bool(call.beta.any())

    def run() -> None:
        there = [RaggedBatch.from_list(part).to(device) for part in (a, b)]
        if reads_c:
            target = RaggedBatch.from_list(c).to(device)
        else:
            target = RaggedBatch.empty([x.shape for x in c], call.c.dtype, device)
        x, y, z = (matrices(batch, "batch") for batch in (*there, target))
        moved = replace(call, a=x, b=y, c=z, bias=None, activation="none")
        kernel.bind(layout, operands_of(moved))()
        for i, (result, out) in enumerate(zip(target.to("host"), c, strict=True)):
            shift = None if shifts is None else shifts[i]
            np.copyto(out, activate(result if shift is None else result + shift, call.activation))

    return run


def operands_of(call: Call) -> GroupedOperands:
    """A call as grouped kernels take it."""
    held = (call.a, call.b, call.c, call.bias or call.c)
    bases = None if call.c.base is None else tuple(part.base for part in held)
    return GroupedOperands(**call.columns, bases=bases)


def _vector(column: NDArray) -> NDArray | None:
    return column[:, 0] if len(column) else None
