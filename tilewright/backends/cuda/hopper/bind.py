"""From a plan to a callable that only launches: tables and maps on the device, scratch, kernels."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from tilewright.backends.cuda import nvrtc, tables
from tilewright.backends.cuda.engine import Prepared, Work
from tilewright.backends.cuda.hopper import maps, packing, tiles
from tilewright.backends.cuda.hopper.orient import c_runs_along_columns
from tilewright.backends.cuda.hopper.shapes import ACTIVATIONS, Shape
from tilewright.backends.cuda.hopper.tiles import depths

if TYPE_CHECKING:
    from tilewright.backends.cuda.hopper.engine import Bucket


class Ragged(ctypes.Structure):
    """`struct Ragged` of kernels/hopper_tiles.cuh; all zero where the table has records."""

    _fields_ = [
        *((name, ctypes.c_void_p) for name in ("c", "bias")),
        *((name, ctypes.c_int) for name in ("n", "k", "stride", "across", "flags")),
        *((name, ctypes.c_int) for name in ("bias_group", "bias_step", "band")),
    ]


_ELEMENT = {"bfloat16": 2, "float16": 2, "float32": 4}  # bytes
_STATE = 16  # bytes of `struct State` of kernels/hopper_scale.cuh


@dataclass(frozen=True, slots=True)
class Step:
    """One kernel, ready to launch on a stream; `keep` is what it reads and writes."""

    kernel: nvrtc.Function
    blocks: int
    threads: int
    arguments: nvrtc.Arguments
    keep: tuple[Any, ...]


# `struct ScalarsOf` of kernels/hopper_epilogue.cuh.
SCALARS = np.dtype(
    [
        *((name, np.float32) for name in ("alpha", "beta")),
        *((name, np.int32) for name in ("bias_row", "bias_column")),
        *((name, np.int64) for name in ("bias", "c")),
    ]
)


def bound(work: Work, buckets: tuple[Bucket, ...]) -> Prepared:
    """The kernels of every bucket.

    Packed operands go through scratch that all its launches share: two of them on different streams
    must not overlap.
    """
    scalars = None if plain(work) else upload(_scalars(work), work.ordinal)
    steps = [step for bucket in buckets for step in _steps(work, bucket, scalars)]

    return launcher(steps, (work, scalars))


def launcher(steps: list[Step], keep: tuple[Any, ...]) -> Prepared:
    """These steps, to be launched in order; they and `keep` live as long as what is returned.

    The driver is called at once: on an H200's host one kernel took 4 us and two took 7, where a
    Python function for each had taken 5 to 7 and 10.
    """
    from cuda.bindings import driver

    launch_kernel = driver.cuLaunchKernel
    parts = [
        (
            (step.kernel.handle, step.blocks, 1, 1, step.threads, 1, 1, step.kernel.shared),
            step.arguments.pointer,
        )
        for step in steps
    ]

    def enqueue(stream: int, keep: Any = (steps, keep)) -> None:
        for sizes, pointer in parts:
            (status,) = launch_kernel(*sizes, stream, pointer, 0)
            if status:
                nvrtc.check((status,), "launch of a Hopper kernel")

    return Prepared(enqueue, len(parts))


def plain(work: Work) -> bool:
    """Whether C is the product and nothing else."""
    return (
        work.bias is None
        and work.activation == "none"
        and not bool(work.beta.any())
        and bool((work.alpha == 1.0).all())
    )


def defines(
    dtype: str,
    shape: Shape,
    *,
    left_mn: bool,
    right_mn: bool,
    transposed: bool,
    epilogue: str | None,
    ragged: int = 0,
) -> nvrtc.Defines:
    """Macros of kernels/hopper_multiply.cu; `epilogue` is an activation, or None where plain."""
    return (
        ("BF16", int(dtype == "bfloat16")),
        ("LEFT_MN", int(left_mn)),
        ("RIGHT_MN", int(right_mn)),
        ("TRANSPOSED", int(transposed)),
        ("GENERAL", int(epilogue is not None)),
        ("RAGGED", ragged),
        ("ACTIVATION", ACTIVATIONS.index(epilogue or "none")),
        *shape.defines,
    )


def _steps(work: Work, bucket: Bucket, scalars: Any) -> list[Step]:
    batch, shape, ordinal = bucket.batch, bucket.shape, work.ordinal
    some = bucket.which[0]
    scratch = tables.scratch(max(bucket.scratch, 16), ordinal)
    matrices, numbers = maps.bucket_maps(bucket, scratch.data_ptr())
    encoded = upload(maps.encode(matrices, work.dtype), ordinal)
    table = tiles.records(
        batch, shape, bucket.tiles, bucket.turns, bucket.panels, numbers, _ELEMENT[work.dtype]
    )
    if shape.planes > 1:
        table[:, 3] |= packing.shallow_flags(batch.k[table[:, 14]])
    table_on_device = upload(table, ordinal)
    macros = defines(
        work.dtype,
        shape,
        left_mn=bool(batch.left.mn[some]),
        right_mn=bool(batch.right.mn[some]),
        transposed=bool(batch.transposed[some]),
        epilogue=None if scalars is None else work.activation,
    )
    keep = (scratch, encoded, table_on_device)
    pointers = (table_on_device.data_ptr(), encoded.data_ptr())
    table_at, maps_at = map(ctypes.c_void_p, pointers)
    scalars_at = ctypes.c_void_p(None if scalars is None else scalars.data_ptr())
    count, blocks = ctypes.c_int(len(table)), bucket.turns.shape[1] * shape.cluster
    if shape.planes == 1:
        values = (table_at, count, maps_at, scalars_at, Ragged())
        function = nvrtc.function("hopper_multiply", macros, ordinal, shared=shape.shared)
        multiply = Step(function, blocks, shape.threads, nvrtc.Arguments(values), keep)
        return [*_packing(bucket, scratch, ordinal), multiply]
    halves = _halves(bucket, ordinal)
    rows, operands = ctypes.c_int(bucket.plane_rows), (halves.matrices, halves.states)
    split = (table_at, count, maps_at, rows, scalars_at, *operands)
    exact = (table_at, count, halves.matrices, scalars_at, halves.states, halves.problems)
    function = nvrtc.function("hopper_split", macros, ordinal, shared=shape.shared)
    other = nvrtc.function("hopper_exact", macros, ordinal, shared=shape.exact_shared)
    return [
        *_packing(bucket, scratch, ordinal, halves),
        Step(function, blocks, shape.threads, nvrtc.Arguments(split), keep),
        Step(other, blocks, shape.threads - 128, nvrtc.Arguments(exact), (keep, halves)),
    ]


@dataclass(frozen=True, slots=True)
class _Halves:
    """What kernels/hopper_scale.cuh reads and writes of a launch: addresses, and their memory."""

    matrices: ctypes.c_void_p
    states: ctypes.c_void_p
    launch: ctypes.c_void_p
    problems: ctypes.c_int
    keep: tuple[Any, ...]


def _halves(bucket: Bucket, ordinal: int) -> _Halves:
    """Every matrix of the batch, and a state a problem, all zero, and one of the launch."""
    k = depths(bucket.batch, bucket.which)
    sides = [packing.matrices(x, k) for x in (bucket.batch.left, bucket.batch.right)]
    matrices = upload(np.stack(sides, axis=1), ordinal)
    states = upload(np.zeros((len(k) + 1, _STATE), np.uint8), ordinal)
    places = (matrices.data_ptr(), states.data_ptr(), states.data_ptr() + len(k) * _STATE)
    at = tuple(ctypes.c_void_p(place) for place in places)
    return _Halves(at[0], at[1], at[2], ctypes.c_int(len(k)), (matrices, states))


def _packing(
    bucket: Bucket, scratch: Any, ordinal: int, halves: _Halves | None = None
) -> list[Step]:
    if not bucket.scratch:
        return []
    k = depths(bucket.batch, bucket.which)
    operands = (bucket.batch.left, bucket.batch.right)
    k, plane_rows = (packing.deep(k), bucket.plane_rows) if halves else (k, 0)
    items = np.concatenate(
        [
            packing.items(operand, k, panels, scratch.data_ptr(), side, plane_rows)
            for side, (operand, panels) in enumerate(zip(operands, bucket.panels, strict=True))
        ]
    )
    table = upload(items, ordinal)
    values = [ctypes.c_void_p(table.data_ptr())]
    if halves:
        values += [halves.matrices, halves.states, halves.launch]
    planes = bucket.shape.planes if halves else 0
    function = nvrtc.function("hopper_pack", (("PLANES", planes),), ordinal)
    return [
        Step(function, len(items), 256, nvrtc.Arguments(values), (table, scratch, halves)),
    ]


def _scalars(work: Work) -> npt.NDArray[np.void]:
    table = np.zeros(len(work.m), SCALARS)
    table["alpha"], table["beta"], table["c"] = work.alpha, work.beta, work.c.address
    if work.bias is not None:
        table["bias"] = work.bias.address
        along = c_runs_along_columns(work)
        table["bias_column"] = along
        table["bias_row"] = ~along
    return table


def upload(table: npt.NDArray[Any], ordinal: int) -> Any:
    """A table on the device, bytes; at least 16 of them."""
    flat = np.ascontiguousarray(table).reshape(-1).view(np.uint8)
    return tables.upload([flat if flat.size else np.zeros(16, np.uint8)], ordinal).held
