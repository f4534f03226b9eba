"""Batches as the Hopper engines get them, and their kernels' reading of the tables in NumPy.

`Memory` holds all matrices in one buffer and makes the `Work`. `emulated` does what the kernels do
with a plan: packing items, then tiles, every address and every box as they would have it.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from tilewright.arrays.addresses import Columns
from tilewright.backends.cuda.hopper import packing, records
from tilewright.backends.cuda.hopper.maps import Matrix, bucket_maps
from tilewright.backends.cuda.hopper.records import Bucket
from tilewright.backends.cuda.work import Work

EDGES = [
    (m, n, k)
    for m in (1, 63, 64, 65, 128, 130)
    for n in (1, 31, 64, 100, 257)
    for k in (0, 1, 16, 63, 64, 65, 200)
]


def sizes(count: int, low: int, high: int, seed: int = 0) -> list[tuple[int, int, int]]:
    drawn = np.random.default_rng(seed).integers(low, high + 1, (count, 3))
    return [tuple(map(int, row)) for row in drawn]  # type: ignore[misc]


@dataclass
class Memory:
    """A, B, C of every problem; `layout` has r (rows contiguous) or c for each of them."""

    mnk: list[tuple[int, int, int]]
    layout: str = "rrr"
    pad: int = 1
    offset: int = 0
    base: int = 0
    starts: list[np.ndarray] = field(default_factory=list)
    strides: list[tuple[np.ndarray, np.ndarray]] = field(default_factory=list)

    def __post_init__(self) -> None:
        m, n, k = np.array(self.mnk, np.int64).reshape(-1, 3).T
        self.m, self.n, self.k = m, n, k
        at = self.offset
        for (rows, columns), letter in zip(((m, k), (k, n), (m, n)), self.layout, strict=True):
            runs, length = (rows, columns) if letter == "r" else (columns, rows)
            step = np.maximum(1, -(-length // self.pad) * self.pad)
            room = -(-runs * step // self.pad) * self.pad
            start = at + np.cumsum(room) - room
            at = int(start[-1] + room[-1]) if len(start) else at
            one = np.ones_like(step)
            self.starts.append(start)
            self.strides.append((step, one) if letter == "r" else (one, step))
        self.elements = at + 64

    def work(self, base: int, dtype: str = "float16", **fields: object) -> Work:
        size = 4 if dtype == "float32" else 2
        sizes = ((self.m, self.k), (self.k, self.n), (self.m, self.n))
        a, b, c = (
            Columns(base + size * start, *shape, size * row, size * col)
            for start, shape, (row, col) in zip(self.starts, sizes, self.strides, strict=True)
        )
        count = len(self.m)
        given = {"alpha": np.ones(count), "beta": np.zeros(count), **fields}
        return Work(ordinal=0, a=a, b=b, c=c, dtype=dtype, **given)  # type: ignore[arg-type]

    def view(self, which: int, problem: int, buffer: np.ndarray) -> np.ndarray:
        """One matrix of a NumPy buffer: which is 0 for A, 1 for B, 2 for C."""
        m, n, k = self.mnk[problem]
        shape = ((m, k), (k, n), (m, n))[which]
        row, col = (int(s[problem]) for s in self.strides[which])
        size = buffer.itemsize
        start = buffer[int(self.starts[which][problem]) :]
        return np.lib.stride_tricks.as_strided(start, shape, (row * size, col * size))


def emulated(bucket: Bucket, buffer: np.ndarray) -> None:
    """Multiply a bucket whose addresses lie in `buffer`, float16, as the kernels would."""
    base = buffer.ctypes.data
    scratch = np.full(bucket.scratch // 2 + 64, np.nan, np.float16)
    place = -(-scratch.ctypes.data // 128) * 128
    skew = (place - scratch.ctypes.data) // 2
    panels = scratch[skew:]
    inside = np.zeros(len(bucket.batch.k), bool)
    inside[bucket.which] = True
    k = np.where(inside, bucket.batch.k, 0)
    for operand, laid in zip((bucket.batch.left, bucket.batch.right), bucket.panels, strict=True):
        for item in packing.items(operand, k, laid, 0):
            _pack(item, buffer, base, panels)
    matrices, numbers = bucket_maps(bucket, place)
    table = records.records(
        bucket.batch, bucket.shape, bucket.tiles, bucket.turns, bucket.panels, numbers
    )
    memory = {place: panels}
    for cluster in table.reshape(-1, bucket.shape.cluster, records.FIELDS):
        for rank, record in enumerate(cluster):
            if record[3] & 0xFFFF:
                _tile(bucket, cluster, rank, matrices, buffer, base, memory)


def _pack(item: np.void, buffer: np.ndarray, base: int, panels: np.ndarray) -> None:
    for row in range(item["rows_filled"]):
        for block in range(item["blocks"]):
            start = (item["target"] + item["panel_bytes"] * (block // 8) + 128 * row) // 2
            into = panels[start + 8 * (block % 8) :][:8]
            into[:] = 0
            if row < item["rows"]:
                count = min(8, item["columns"] - 8 * block)
                first = item["source"] - base + item["row_bytes"] * row
                at = (first + item["column_bytes"] * (8 * block + np.arange(max(0, count)))) // 2
                into[: max(0, count)] = buffer[at]


def _box(matrix: Matrix, x: int, y: int, buffer: np.ndarray, base: int, memory: dict) -> np.ndarray:  # type: ignore[type-arg]
    """As many rows of 64 elements as the map's boxes have, zeros outside."""
    assert matrix.address % 16 == 0
    assert matrix.stride % 16 == 0
    found = np.zeros((matrix.high, 64), np.float16)
    rows, columns = min(matrix.high, matrix.rows - y), min(64, matrix.columns - x)
    if rows > 0 and columns > 0:
        whole = memory.get(matrix.address, buffer[(matrix.address - base) // 2 :])
        at = (y + np.arange(rows))[:, None] * (matrix.stride // 2) + x + np.arange(columns)
        found[:rows, :columns] = whole[at]
    return found


def _operand(
    asked: list[tuple[Matrix, np.ndarray]],
    packed: bool,
    mn: bool,
    steps: int,
    boxes: int,
    box: object,
    high: int = 64,
) -> np.ndarray:
    """The operand of one tile, [high boxes, 64 steps]; its boxes are those `asked` for in turns."""
    along = 0 if packed else 64
    parts = []
    for h in range(boxes):
        matrix, walk = asked[h % len(asked)]
        x, y, stride = map(int, walk)
        across = []
        for step in range(steps):
            if mn:
                found = box(matrix, x + along * h, y + 64 * step + stride * h).T  # type: ignore[operator]
            else:
                found = box(matrix, x + along * step, y + stride * step + high * h)  # type: ignore[operator]
            across.append(found)
        parts.append(np.concatenate(across, 1) if across else np.zeros((high, 0), np.float16))
    return np.concatenate(parts, 0)


def _check_stored(bucket: Bucket, record: np.ndarray, matrices: list[Matrix]) -> None:
    """Boxes of C hold this tile's numbers, and beyond them only what the map leaves out."""
    if record[18] < 0:
        return
    batch, problem = bucket.batch, int(record[14])
    columns, column = int(record[11]), int(record[13])
    number = int(record[19]) >> 8
    box = matrices[number].high if number else 64
    assert box == 64 or batch.transposed[problem]
    assert columns % box == 0 or column + columns == batch.columns[problem]


def _tile(
    bucket: Bucket,
    cluster: np.ndarray,
    rank: int,
    matrices: list[Matrix],
    buffer: np.ndarray,
    base: int,
    memory: dict,  # type: ignore[type-arg]
) -> None:
    record = cluster[rank]
    problem, steps, shape = int(record[14]), int(record[2]), int(record[3])
    width, slices, flags = shape & 0xFFFF, shape >> 16 & 0xFF, shape >> 24
    rows, columns = int(record[7]), int(record[11])
    assert rows <= bucket.shape.rows
    assert columns <= width <= bucket.shape.width

    def box(matrix: Matrix, x: int, y: int) -> np.ndarray:
        return _box(matrix, x, y, buffer, base, memory)

    def asked(shared: int, number: int, walk: slice) -> list[tuple[Matrix, np.ndarray]]:
        """Each block asks for what its own record says."""
        return [(matrices[r[number]], r[walk]) for r in (cluster if flags & shared else [record])]

    batch = bucket.batch
    mn = bool(batch.right.mn[problem])
    high = 64 if mn else int(record[19]) & 255
    boxes = -(-columns // 64) if mn else -(-width // high)
    assert high % 8 == 0
    assert boxes * high <= bucket.shape.width
    if steps:
        assert matrices[record[1]].high == high
    left = _operand(
        asked(records.LEFT_SHARED, 0, slice(4, 7)),
        bool(flags & records.LEFT_PACKED),
        bool(batch.left.mn[problem]),
        steps,
        -(-rows // 64),
        box,
    )
    right = _operand(
        asked(records.RIGHT_SHARED, 1, slice(8, 11)),
        bool(flags & records.RIGHT_PACKED),
        mn,
        steps,
        boxes,
        box,
        high,
    )
    _check_stored(bucket, record, matrices)
    depth = 64 * (steps - 1) + 16 * slices if steps else 0
    product = left[:rows, :depth].astype(np.float64) @ right[:columns, :depth].T.astype(np.float64)
    c = (int(np.ascontiguousarray(record[16:18]).view(np.int64)[0]) - base) // 2
    i, j = np.arange(rows)[:, None], np.arange(columns)[None, :]
    stride = int(record[15])
    at = c + (j * stride + i if batch.transposed[problem] else i * stride + j)
    buffer[at] = product
