"""From a plan to a callable that only launches: tables and maps on the device, scratch, kernels."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from tilewright.backends.cuda import nvrtc, tables
from tilewright.backends.cuda.engine import Launch, Work
from tilewright.backends.cuda.hopper import maps, packing, tiles
from tilewright.backends.cuda.hopper.orient import c_runs_along_columns
from tilewright.backends.cuda.hopper.shapes import ACTIVATIONS, Shape
from tilewright.backends.cuda.hopper.tiles import depths

if TYPE_CHECKING:
    from tilewright.backends.cuda.hopper.engine import Bucket


class Ragged(ctypes.Structure):
    """`struct Ragged` of kernels/hopper_tiles.cuh; all zero where the table has records."""

    _fields_ = [
        ("c", ctypes.c_void_p),
        *((name, ctypes.c_int) for name in ("n", "k", "stride", "across", "flags", "unused")),
    ]


_ELEMENT = {"bfloat16": 2, "float16": 2, "float32": 4}  # bytes


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


def bound(work: Work, buckets: tuple[Bucket, ...]) -> Launch:
    """A callable that launches every bucket on torch's current stream of the device.

    Packed operands go through scratch that all its launches share: two of them on different streams
    must not overlap.
    """
    scalars = None if plain(work) else upload(_scalars(work), work.ordinal)
    steps = [step for bucket in buckets for step in _steps(work, bucket, scalars)]

    return launcher(work.ordinal, steps, (work, scalars))


def launcher(ordinal: int, steps: list[Step], keep: tuple[Any, ...]) -> Launch:
    """A callable that launches these on torch's current stream of a device.

    It calls the driver itself: on an H200's host one kernel took 4 us and two took 7, where a
    Python function for each had taken 5 to 7 and 10.
    """
    import torch
    from cuda.bindings import driver

    stream_of, launch_kernel = torch._C._cuda_getCurrentRawStream, driver.cuLaunchKernel
    parts = [
        (
            (step.kernel.handle, step.blocks, 1, 1, step.threads, 1, 1, step.kernel.shared),
            step.arguments.pointer,
        )
        for step in steps
    ]

    def launch(keep: Any = (steps, keep)) -> None:
        stream = stream_of(ordinal)
        for sizes, pointer in parts:
            (status,) = launch_kernel(*sizes, stream, pointer, 0)
            if status:
                nvrtc.check((status,), "launch of a Hopper kernel")

    return launch


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
    ragged: bool = False,
) -> nvrtc.Defines:
    """Macros of kernels/hopper_multiply.cu; `epilogue` is an activation, or None where plain."""
    return (
        ("BF16", int(dtype == "bfloat16")),
        ("LEFT_MN", int(left_mn)),
        ("RIGHT_MN", int(right_mn)),
        ("TRANSPOSED", int(transposed)),
        ("GENERAL", int(epilogue is not None)),
        ("RAGGED", int(ragged)),
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
        batch, bucket.tiles, bucket.turns, bucket.panels, numbers, _ELEMENT[work.dtype]
    )
    table_on_device = upload(table, ordinal)
    macros = defines(
        work.dtype,
        shape,
        left_mn=bool(batch.left.mn[some]),
        right_mn=bool(batch.right.mn[some]),
        transposed=bool(batch.transposed[some]),
        epilogue=None if scalars is None else work.activation,
    )
    pointers = (table_on_device.data_ptr(), encoded.data_ptr())
    table_at, maps_at = map(ctypes.c_void_p, pointers)
    scalars_at = ctypes.c_void_p(None if scalars is None else scalars.data_ptr())
    count, name = ctypes.c_int(len(table)), "hopper_multiply"
    values: tuple[Any, ...] = (table_at, count, maps_at, scalars_at, Ragged())
    if shape.planes > 1:
        name = "hopper_split"
        values = (table_at, count, maps_at, ctypes.c_int(bucket.plane_rows), scalars_at)
    multiply = Step(
        kernel=nvrtc.function(name, macros, ordinal, shared=shape.shared),
        blocks=bucket.turns.shape[1],
        threads=shape.threads,
        arguments=nvrtc.Arguments(values),
        keep=(scratch, encoded, table_on_device),
    )
    return [*_packing(bucket, scratch, ordinal), multiply]


def _packing(bucket: Bucket, scratch: Any, ordinal: int) -> list[Step]:
    if not bucket.scratch:
        return []
    k = depths(bucket.batch, bucket.which)
    planes = bucket.shape.planes if bucket.shape.planes > 1 else 0
    plane_rows = bucket.plane_rows if planes else 0
    operands = (bucket.batch.left, bucket.batch.right)
    items = np.concatenate(
        [
            packing.items(operand, k, panels, scratch.data_ptr(), plane_rows)
            for operand, panels in zip(operands, bucket.panels, strict=True)
        ]
    )
    table = upload(items, ordinal)
    return [
        Step(
            kernel=nvrtc.function("hopper_pack", (("PLANES", planes),), ordinal),
            blocks=len(items),
            threads=256,
            arguments=nvrtc.Arguments((ctypes.c_void_p(table.data_ptr()),)),
            keep=(table, scratch),
        )
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
