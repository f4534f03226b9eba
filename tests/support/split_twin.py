"""What hopper_pack.cu and hopper_split.cu do to fp32 numbers, in NumPy, to be judged there.

Products of halves are exact and summed in float64, then rounded to fp32 after each 32 of k: wgmma's
own rounding, which is coarser, is for the tests on the GPU.
"""

from __future__ import annotations

import re

import numpy as np
import numpy.typing as npt

from tilewright.backends.cuda.hopper import packing
from tilewright.backends.cuda.hopper.packing import SPLIT_FILL, Panels, small_elements
from tilewright.backends.cuda.hopper.records import Bucket, depths
from tilewright.backends.cuda.machine.nvrtc import path_of

Floats = npt.NDArray[np.float32]
Halves = tuple[npt.NDArray[np.float16], npt.NDArray[np.float16]]


def constant(name: str) -> float:
    """A number of backends/cuda/kernels/hopper/hopper_scale.cuh."""
    text = path_of("hopper_scale.cuh").read_text(encoding="utf-8")
    (found,) = re.findall(rf"\b{name} = ([-+.\w]+?)f?[,;]", text)
    return float.fromhex(found) if found.startswith("0x1p") else float(found)


def sample(runs: Floats) -> Floats:
    """What is looked at of a matrix whose rows are its contiguous runs."""
    rows, columns = runs.shape
    count = int(constant("SAMPLES"))
    if rows * columns <= count:
        return runs.reshape(-1)
    at = np.arange(count, dtype=np.uint64)
    steps = ((0xC13FA9A9, rows), (0x91E10DA5, columns))
    i, j = ((0x80000000 + at * step & 0xFFFFFFFF) * size >> 32 for step, size in steps)
    return runs[i.astype(int), j.astype(int)]


def exponent(runs: Floats) -> int:
    """The scale of such a matrix."""
    seen = sample(runs)
    top = np.abs(seen)[np.isfinite(seen)].max(initial=0)
    biased = int(np.float32(top).view(np.int32)) >> 23 if top else 127
    return min(int(constant("TOP")) + 127 - biased, 126)


def scaled(x: Floats, e: int) -> Floats:
    """Times a power of two, as one fp32 multiplication."""
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        return x * np.float32(2.0**e)


def split(x: Floats, e: int) -> Halves:
    """Both halves of every number."""
    with np.errstate(over="ignore", invalid="ignore"):
        y = scaled(x, e)
        first = y.astype(np.float16)
        rest = (y - first.astype(np.float32)) * np.float32(2 ** constant("SHIFT"))
        return first, rest.astype(np.float16)


def fails(runs: Floats, e: int, k: int, mn: bool) -> bool:
    """Whether the problem of this operand, `runs` of it contiguous, is left out."""
    rows, columns = runs.shape
    groups = np.zeros((2, rows, -(-columns // 8) * 8), np.float32)
    groups[0, :, :columns], groups[1, :, :columns] = np.abs(scaled(runs, e)), runs
    size, x = groups.reshape(2, rows, -1, 8)
    is_small = size < constant("SMALL")
    small = (is_small & (x != 0)).sum(-1)
    allowed, alone, beside = (
        int(v[0]) for v in small_elements(np.array([mn]), np.array([runs.size // k]), np.array([k]))
    )
    whole = 8 * (1 + np.arange(small.shape[1])) <= columns
    count = (small * np.where(is_small.all(-1), np.where(whole, alone, alone // 2), beside)).sum()
    return bool((~(size < constant("LIMIT"))).any() or count > allowed)


def few(a: Floats, b: Floats) -> bool:
    """Whether sums have few products that are not zero, as far as samples show."""
    both = float(np.prod([max(1, np.count_nonzero(x)) / x.size for x in map(sample, (a, b))]))
    return 2 * both <= 1 and both * a.shape[1] < constant("FEW")


def product(a: Floats, b: Floats) -> tuple[Floats, bool]:
    """A [m, k] times B [k, n], both contiguous by rows, and whether it failed."""
    k = a.shape[1]
    scales = exponent(a), exponent(b)
    failed = fails(a, scales[0], k, mn=False) or fails(b, scales[1], k, mn=True) or few(a, b)
    (a0, a1), (b0, b1) = (
        tuple(half.astype(np.float64) for half in split(x, e))
        for x, e in zip((a, b), scales, strict=True)
    )
    total = np.zeros((len(a), b.shape[1]), np.float32)
    with np.errstate(over="ignore", invalid="ignore"):
        for start in range(0, k, SPLIT_FILL):
            part = slice(start, start + SPLIT_FILL)
            total += (a0[:, part] @ b0[part]).astype(np.float32)
        low = (a0 @ b1 + a1 @ b0).astype(np.float32)
        total = total + low * np.float32(2 ** -constant("SHIFT"))
        whole = -sum(scales)
        return scaled(scaled(total, whole >> 1), whole - (whole >> 1)), failed


def panels(bucket: Bucket, buffer: Floats) -> Halves:
    """Both planes of a bucket's panels, [rows, 64] each, after every item of the packing pass."""
    k = packing.deep(depths(bucket.batch, bucket.which))
    operands = (bucket.batch.left, bucket.batch.right)
    tables = [packing.matrices(operand, bucket.batch.k) for operand in operands]
    scratch = np.full((2, bucket.plane_rows * 64), np.nan, np.float16)
    for side, (operand, laid) in enumerate(zip(operands, bucket.panels, strict=True)):
        for item in packing.items(operand, k, laid, 0, side, bucket.plane_rows):
            assert item["matrix"] & 1 == side
            assert item["plane_bytes"] == bucket.plane_rows * packing.ROW
            _pack(item, tables[side][item["matrix"] >> 1], buffer, scratch)
    first, rest = scratch.reshape(2, -1, 64)
    return first, rest


def _read(record: np.void, rows: int, columns: int, buffer: Floats) -> Floats:
    """Runs of an item or a matrix."""
    start = int(record["source"]) - buffer.ctypes.data
    steps = (int(record["row_bytes"]), int(record["column_bytes"]))
    at = start + steps[0] * np.arange(rows)[:, None] + steps[1] * np.arange(columns)
    found: Floats = buffer[at // 4]
    return found


def _pack(item: np.void, matrix: np.void, buffer: Floats, scratch: npt.NDArray[np.float16]) -> None:
    e = exponent(_read(matrix, matrix["rows"], matrix["columns"], buffer))
    width = 8 * int(item["blocks"])
    filled = np.zeros((item["rows_filled"], width), np.float32)
    columns = min(width, int(item["columns"]))
    filled[: item["rows"], :columns] = _read(item, item["rows"], columns, buffer)
    for plane, half in zip(scratch, split(filled, e), strict=True):
        for row, block in np.ndindex(len(filled), width // 8):
            place = item["target"] + item["panel_bytes"] * (block // 8) + 128 * row
            plane[place // 2 + 8 * (block % 8) :][:8] = half[row, 8 * block : 8 * block + 8]


def unpacked(
    plane: npt.NDArray[np.float16], laid: Panels, problem: int, shape: tuple[int, ...]
) -> npt.NDArray[np.float16]:
    """The runs of one operand, out of its panels."""
    runs, length = shape
    count, padded = -(-length // 64), int(laid.padded[problem])
    place = int(laid.base[problem])
    found = plane[place : place + count * padded].reshape(count, padded, 64)
    return found[:, :runs].transpose(1, 0, 2).reshape(runs, -1)[:, :length]
