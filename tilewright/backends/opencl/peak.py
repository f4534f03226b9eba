"""The probes behind `tilewright peak` on OpenCL devices: the most their arithmetic gives.

Registers: multiply-add chains by type, way, vector width and number of chains, bytes by
cl_khr_integer_dot_product, one-bit products by popcount. Memory is in peak_memory.py. A device runs
whole groups on every compute unit: on CPUs one item a group, its vectors as written, or 64 for the
compiler to put side by side; on GPUs 256, sixteen groups a unit.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from tilewright.backends.opencl.peak_memory import memory_probes
from tilewright.backends.opencl.probe import ProbeKernel, own_cores
from tilewright.backends.opencl.runtime import Session, session
from tilewright.engines.probes import Effort, Probe
from tilewright.facts.ceilings import Rate
from tilewright.facts.device import Device

WAYS = ("a*b+c", "mad", "fma")
_STEPS = 8  # that a round unrolls
_GROUPS = 16  # a compute unit
_SUMS: dict[str, Any] = {"float16": np.float16, "float32": np.float32, "float64": np.float64}
# More elements than that a work-item and registers spill: 32 of 512 bits on the widest CPU, 255 of
# 32 bits on a GPU, where few items with many registers hide less.
_MOST_ELEMENTS = {"cpu": 256, "gpu": 64}


def probes(device: Device, effort: Effort) -> Iterator[Probe]:
    """Every row of an OpenCL device."""
    opened = session(device)
    for dtype in reversed(device.dtypes):
        yield from _multiply_adds(opened, dtype, effort)
    yield from _bytes(opened, effort)
    yield from _bits(opened, effort)
    yield from memory_probes(opened, effort)


def _multiply_adds(opened: Session, dtype: str, effort: Effort) -> Iterator[Probe]:
    sums = _SUMS[dtype]
    bits = 8 * np.dtype(sums).itemsize
    for number, way in enumerate(WAYS):
        for vector, chains in _shapes(opened.device, effort):
            defines = {"PRECISION": bits, "ACCUMULATE": bits, "MULTIPLY_ADD": number}
            row = Rate(dtype, way, vector, chains)
            yield _chained(opened, row, 2.0, "multiply_add", (sums(0.5),) * 2, **defines)


def _bytes(opened: Session, effort: Effort) -> Iterator[Probe]:
    if "cl_khr_integer_dot_product" not in opened.cl_device.extensions:
        return
    for chains in effort.chains:
        row = Rate("int8", "dot4", 1, chains)
        yield _chained(opened, row, 8.0, "dot8", (np.uint32(0x01020304),))


def _bits(opened: Session, effort: Effort) -> Iterator[Probe]:
    for vector, chains in _shapes(opened.device, effort):
        row, argument = Rate("bits", "popcount", vector, chains), (np.uint32(0x5A5A5A5A),)
        yield _chained(opened, row, 64.0, "popcount_sum", argument, "popcount")


def _shapes(device: Device, effort: Effort) -> Iterator[tuple[int, int]]:
    most = _MOST_ELEMENTS.get(device.kind, 64)
    for vector in effort.vectors:
        for chains in effort.chains:
            if vector * chains <= most:
                yield vector, chains


def _chained(
    opened: Session,
    row: Rate,
    each: float,
    entry: str,
    arguments: tuple[Any, ...],
    program: str | None = None,
    **defines: int,
) -> Probe:
    """Chains of steps that count as `each` operations on a number."""
    device = opened.device
    group = 256 if device.kind == "gpu" else 64 if row.vector == 1 else 1
    group = min(group, device.max_work_group)
    kernel = ProbeKernel(
        opened,
        entry,
        lambda out, rounds: (out, *arguments, np.int32(rounds)),
        (_GROUPS * device.compute_units, 1),
        group,
        program,
        **{**defines, "VECTOR": row.vector, "CHAINS": row.chains, "GROUP": group},
    )
    work = each * row.vector * row.chains * _STEPS * kernel.items
    return Probe(row, work, kernel, own_cores(device))
