"""Makes launches of a plan: kernels compiled, tables and tensor maps laid out for any addresses."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tilewright.backends.cuda.hopper import maps, packing, records
from tilewright.backends.cuda.hopper.blocks import HopperTile
from tilewright.backends.cuda.hopper.orient import c_runs_along_columns, plain
from tilewright.backends.cuda.hopper.records import Bucket, depths
from tilewright.backends.cuda.machine import fixed, nvrtc, placing, tensor_maps
from tilewright.backends.cuda.work import Moving, Prepared, Work
from tilewright.errors import DeviceError
from tilewright.facts.problem import ACTIVATIONS


class Ragged(ctypes.Structure):
    """`struct Ragged` of kernels/hopper/hopper_tiles.cuh; all zero where the table has records."""

    _fields_ = [
        *((name, ctypes.c_void_p) for name in ("c", "bias", "other", "source", "index")),
        *((name, ctypes.c_int) for name in ("n", "k", "stride", "across", "flags")),
        *(
            (name, ctypes.c_int)
            for name in ("bias_group", "bias_step", "band", "source_stride", "slab")
        ),
    ]


_ELEMENT = {"bfloat16": 2, "float16": 2, "float32": 4}  # bytes
_STATE = 16  # bytes of `struct State` of kernels/hopper/hopper_scale.cuh
_SCRATCH = 1 << 40  # where scratch is thought to lie while tables are laid out


# `struct ScalarsOf` of kernels/hopper/hopper_epilogue.cuh.
SCALARS = np.dtype(
    [
        *((name, np.float32) for name in ("alpha", "beta")),
        *((name, np.int32) for name in ("bias_row", "bias_column")),
        *((name, np.int64) for name in ("bias", "c")),
    ]
)


def bound(work: Work, buckets: tuple[Bucket, ...]) -> Prepared:
    """The kernels of every bucket, on the batch's own addresses.

    Packed operands go through scratch that all its launches share: two of them on different streams
    must not overlap.
    """
    return placing.bound(kernels(work, buckets), work)


def moving(work: Work, buckets: tuple[Bucket, ...]) -> Moving:
    """The same on any addresses that are as aligned."""
    return fixed.moving(kernels(work, buckets), work)


def kernels(work: Work, buckets: tuple[Bucket, ...]) -> placing.Kernels:
    """The kernels of every bucket. Buckets follow one another, so one scratch serves all.

    Raises DeviceError where the driver's maps are not laid out as they were known to be.
    """
    if not tensor_maps.begins_with_address():
        raise DeviceError("cuda: this driver's tensor maps do not begin with their address")
    draft = placing.Draft(placing.places(work, _SCRATCH))
    where = placing.sources(work)
    scalars = None
    if not plain(work):
        scalars = draft.add(_scalars(work), (2, where.bias), (3, where.c))
    steps = [step for bucket in buckets for step in _steps(work, bucket, scalars, draft, where)]
    scratch = max((bucket.scratch for bucket in buckets), default=0)
    return placing.Kernels(draft.template(scratch), placing.in_order(steps), len(steps))


def defines(
    dtype: str,
    shape: HopperTile,
    lies: tuple[bool, bool, bool],
    epilogue: str | None = None,
    ragged: int = 0,
    chosen: int = 0,
    *,
    taken: bool = False,
) -> nvrtc.Defines:
    """Macros of hopper_multiply.cu; `epilogue` is an activation, or None where plain.

    How operands lie: whether k is not the dense dimension of the left one, nor of the right one,
    and whether C is transposed. `chosen`: whose rows are found by index, where RAGGED: 1 the left
    one's, 2 the right one's. `taken`: whether blocks take tiles as they are done (records.py).
    """
    names = ("LEFT_MN", "RIGHT_MN", "TRANSPOSED")
    return (
        ("BF16", int(dtype == "bfloat16")),
        *zip(names, map(int, lies), strict=True),
        ("GENERAL", int(epilogue is not None)),
        ("RAGGED", ragged),
        ("CHOSEN", chosen),
        ("TAKEN", int(taken)),
        ("ACTIVATION", ACTIVATIONS.index(epilogue or "none")),
        *shape.defines,
    )


def _steps(
    work: Work,
    bucket: Bucket,
    scalars: int | None,
    draft: placing.Draft,
    where: placing.Sources,
) -> list[placing.Step]:
    batch, shape, ordinal = bucket.batch, bucket.shape, work.ordinal
    some = bucket.which[0]
    matrices, numbers = maps.bucket_maps(bucket, _SCRATCH)
    encoded = maps.encode(matrices, work.dtype)
    maps_at = draft.add(encoded, (0, maps.sources(bucket, numbers, len(matrices), where)))
    table = records.records(
        batch, shape, bucket.tiles, bucket.turns, bucket.panels, numbers, _ELEMENT[work.dtype]
    )
    if shape.planes > 1:
        table[:, 3] |= packing.shallow_flags(batch.k[table[:, 14]])
    # Blocks without a tile have records of zeros: no address.
    results = np.where(table[:, 16:18].any(axis=1), where.c[table[:, 14]], -1)
    count = ctypes.c_int(len(table))
    if bucket.taken:
        # A count of tiles taken, 0 before and after each launch, and how many maps there are.
        table = np.concatenate([table, np.zeros((1, table.shape[1]), table.dtype)])
        table[-1, 1] = len(matrices)
        results = np.append(results, -1)
    table_at = placing.At(draft.add(table, (8, results)))
    lies = batch.left.mn[some], batch.right.mn[some], batch.transposed[some]
    epilogue = None if scalars is None else work.activation
    macros = defines(work.dtype, shape, lies, epilogue, taken=bucket.taken)
    scalars_at = ctypes.c_void_p() if scalars is None else placing.At(scalars)
    blocks = bucket.turns.shape[1] * shape.cluster
    if shape.planes == 1:
        values = (table_at, count, placing.At(maps_at), scalars_at, Ragged())
        function = nvrtc.function("hopper_multiply", macros, ordinal, shared=shape.shared)
        multiply = placing.Step(function, blocks, shape.threads, values)
        return [*_packing(bucket, ordinal, draft, where), multiply]
    halves = _halves(bucket, draft, where)
    rows, operands = ctypes.c_int(bucket.plane_rows), (halves.matrices, halves.states)
    split = (table_at, count, placing.At(maps_at), rows, scalars_at, *operands)
    exact = (table_at, count, halves.matrices, scalars_at, halves.states, halves.problems)
    function = nvrtc.function("hopper_split", macros, ordinal, shared=shape.shared)
    other = nvrtc.function("hopper_exact", macros, ordinal, shared=shape.exact_shared)
    return [
        *_packing(bucket, ordinal, draft, where, halves),
        placing.Step(function, blocks, shape.threads, split),
        placing.Step(other, blocks, shape.threads - 128, exact),
    ]


@dataclass(frozen=True, slots=True)
class _Halves:
    """What kernels/hopper/hopper_scale.cuh reads and writes of a launch."""

    matrices: placing.At
    states: placing.At
    launch: placing.At
    problems: ctypes.c_int


def _halves(bucket: Bucket, draft: placing.Draft, where: placing.Sources) -> _Halves:
    """Every matrix of the batch, and a state a problem, all zero, and one of the launch."""
    k = depths(bucket.batch, bucket.which)
    sides = [packing.matrices(x, k) for x in (bucket.batch.left, bucket.batch.right)]
    pairs = np.stack(sides, axis=1).reshape(-1)
    matrices = draft.add(pairs, (0, np.stack(maps.sides(bucket, where), axis=1).reshape(-1)))
    states = draft.add(np.zeros((len(k) + 1, _STATE), np.uint8))
    ours, last = placing.At(states), placing.At(states + len(k) * _STATE)
    return _Halves(placing.At(matrices), ours, last, ctypes.c_int(len(k)))


def _packing(
    bucket: Bucket,
    ordinal: int,
    draft: placing.Draft,
    where: placing.Sources,
    halves: _Halves | None = None,
) -> list[placing.Step]:
    if not bucket.scratch:
        return []
    k = depths(bucket.batch, bucket.which)
    operands = (bucket.batch.left, bucket.batch.right)
    k, plane_rows = (packing.deep(k), bucket.plane_rows) if halves else (k, 0)
    items = np.concatenate(
        [
            packing.items(operand, k, panels, _SCRATCH, side, plane_rows)
            for side, (operand, panels) in enumerate(zip(operands, bucket.panels, strict=True))
        ]
    )
    of_side = np.stack(maps.sides(bucket, where))
    read = of_side[items["matrix"] % 2, items["matrix"] // 2]
    table = draft.add(items, (0, read), (1, np.full(len(items), where.scratch)))
    values: list[Any] = [placing.At(table)]
    if halves:
        values += [halves.matrices, halves.states, halves.launch]
    planes = bucket.shape.planes if halves else 0
    function = nvrtc.function("hopper_pack", (("PLANES", planes),), ordinal)
    return [placing.Step(function, len(items), 256, tuple(values))]


def _scalars(work: Work) -> npt.NDArray[np.void]:
    table = np.zeros(len(work.m), SCALARS)
    table["alpha"], table["beta"], table["c"] = work.alpha, work.beta, work.c.address
    if work.bias is not None:
        table["bias"] = work.bias.address
        along = c_runs_along_columns(work)
        table["bias_column"] = along
        table["bias_row"] = ~along
    return table
