"""Makes the tensor maps of a launch: of the matrices that it reads and writes by the copy engine.

All are of one kind: rows of 2-byte elements, boxes of 64 columns. They are made once per plan and
copied to the device: on an H200 that was 5 to 20 % faster than making them in the kernel, tile by
tile.

A map's address is its first word, which is proven on samples (`begins_with_address`), so that maps
of thousands of matrices move in array code; the driver's own call takes 0.4 us each.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tilewright.backends.cuda.hopper.orient import Operand
from tilewright.backends.cuda.hopper.packing import ROW
from tilewright.backends.cuda.hopper.records import Bucket, cut_within, slabs
from tilewright.backends.cuda.machine import nvrtc
from tilewright.backends.cuda.machine.placing import Sources
from tilewright.backends.cuda.machine.tensor_maps import ALIGNMENT, BYTES, encoded
from tilewright.backends.cuda.work import Ints
from tilewright.remember import Shelf

_KINDS = {
    "bfloat16": "BFLOAT16",
    "float32": "FLOAT16",  # the halves it is split into
    "float16": "FLOAT16",
}
_FEW_ROWS = 16  # of a box of a turned C (kernels/hopper/hopper_multiply.cu)
Numbers = tuple[Ints, Ints, Ints, Ints]
# Maps by dtype and sizes, at whatever address.
_made: Shelf[tuple[Any, ...], bytes] = Shelf("tensor maps", most=16 << 20)


class Matrix(NamedTuple):
    """Rows of contiguous 2-byte elements: an address and a stride in bytes, divisible by 16.

    A tuple, as a batch has thousands: one is made in 0.2 us, where a frozen record took 0.5.
    """

    address: int
    rows: int
    columns: int
    stride: int
    high: int = 64  # rows of a box


def bucket_maps(bucket: Bucket, scratch: int) -> tuple[list[Matrix], Numbers]:
    """What a launch's maps describe, and the map of each problem's left and right operand and C.

    Last that of a C in boxes of few rows, 0 where no tile ends within 64 of them.

    Map 0 is that of the panels, at address `scratch`, where there are any. A C that the copy engine
    cannot write has -1; the map of one that it can ends at a multiple of 8 columns, since the copy
    engine clips what it writes in units of 16 bytes.
    """
    batch, which = bucket.batch, bucket.which
    matrices: list[Matrix] = []
    if bucket.scratch:
        matrices.append(Matrix(scratch, bucket.scratch // ROW, 64, ROW))
    left = _operand_maps(batch.left, batch.k, which, matrices)
    high = slabs(batch, bucket.shape, bucket.tiles)
    right = _operand_maps(batch.right, batch.k, which, matrices, high)
    rows = np.where(batch.transposed, batch.columns, batch.rows)
    columns = np.where(batch.transposed, batch.rows, batch.columns) // 8 * 8
    stored = which[(batch.engine_stores & (columns > 0))[which]]
    fields = (batch.c_address, rows, columns, batch.c_stride)
    whole = _numbered(fields, stored, matrices, -1)
    within = stored[cut_within(batch, bucket.shape, bucket.tiles)[stored]]
    few = _numbered((*fields, np.full(len(rows), _FEW_ROWS)), within, matrices, 0)
    return matrices, (left, right, whole, few)


def sides(bucket: Bucket, where: Sources) -> tuple[Ints, Ints]:
    """The places of the left and the right operand of every problem."""
    return (where.b, where.a) if bucket.batch.turned else (where.a, where.b)


def sources(bucket: Bucket, numbers: Numbers, count: int, where: Sources) -> Ints:
    """The place that each of `count` maps of `bucket_maps` belongs to: its first word is there."""
    found = np.full(count, where.scratch)
    batch, which = bucket.batch, bucket.which
    columns = (*sides(bucket, where), where.c, where.c)
    read = batch.k > 0
    stored = numbers[2] >= 0
    there = (batch.left.direct & read, batch.right.direct & read, stored, numbers[3] > 0)
    for number, place, has in zip(numbers, columns, there, strict=True):
        mine = which[has[which]]
        found[number[mine]] = place[mine]
    return found


def _operand_maps(
    operand: Operand, k: Ints, which: Ints, matrices: list[Matrix], slab: Ints | int = 64
) -> Ints:
    direct = which[operand.direct[which] & (k[which] > 0)]
    rows = np.where(operand.mn, k, operand.free)
    columns = np.where(operand.mn, operand.free, k)
    high = np.where(operand.mn, 64, slab)
    fields = (operand.address, rows, columns, operand.outer_stride(), high)
    return _numbered(fields, direct, matrices, 0)


def _numbered(
    fields: tuple[Ints, ...], which: Ints, matrices: list[Matrix], otherwise: int
) -> Ints:
    """Add the matrices `which` of these columns; the number of each problem's."""
    numbers = np.full(len(fields[0]), otherwise, np.int64)
    numbers[which] = len(matrices) + np.arange(len(which))
    matrices += map(Matrix, *(column[which].tolist() for column in fields))
    return numbers


def encode(matrices: list[Matrix], dtype: str) -> npt.NDArray[np.uint8]:
    """One map a matrix, [matrices, 128] bytes, the first at a multiple of 64.

    A map of the same sizes as an earlier one is that one with its address replaced: training makes
    the same again in other memory. Raises DeviceError where the driver refuses a map.
    """
    from cuda.bindings import driver

    templates = [_template(matrix, dtype) for matrix in matrices]
    memory = np.zeros(len(matrices) * BYTES + ALIGNMENT, np.uint8)
    start = -memory.ctypes.data % ALIGNMENT
    table = memory[start : start + len(matrices) * BYTES].reshape(len(matrices), BYTES)
    table[:] = np.frombuffer(b"".join(templates), np.uint8).reshape(-1, BYTES)
    at, replace, reference = table.ctypes.data, driver.cuTensorMapReplaceAddress, driver.CUtensorMap
    for matrix in matrices:
        (status,) = replace(reference(at), matrix.address)
        if status:
            nvrtc.check((status,), f"address of the tensor map of {matrix}")
        at += BYTES
    return table


def encode_one(matrix: Matrix, dtype: str) -> bytes:
    """The map of one matrix, for sizes not likely to come again. Raises DeviceError.

    L2 fetches 256 bytes at once where rows begin there, which won 2 % on an H200, and 128 where
    they do not: 256 lost 20 to 30 %.
    """
    fetch = 256 if _begins_far(matrix) else 128
    sizes = (matrix.columns, matrix.rows)
    box = (64, matrix.high)
    return encoded(_KINDS[dtype], matrix.address, sizes, matrix.stride, box, fetch=fetch)


def _template(matrix: Matrix, dtype: str) -> bytes:
    """A map of this matrix at whatever address."""
    key = (dtype, *matrix[1:], _begins_far(matrix))
    return _made.found(key, lambda: encode_one(matrix, dtype), len)


def _begins_far(matrix: Matrix) -> bool:
    """Whether every row begins at a multiple of 256 bytes."""
    return (matrix.address | matrix.stride) % 256 == 0
