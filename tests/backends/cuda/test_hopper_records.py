"""What the Hopper kernel makes of a table on the device, its own source compiled for the host."""

from __future__ import annotations

import ctypes
import itertools
import shutil
import subprocess
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from tilewright.backends.cuda.hopper.bind import Ragged, defines
from tilewright.backends.cuda.hopper.blocks import HALF, STAGED, WIDE, HopperTile
from tilewright.backends.cuda.hopper.records import ENGINE_STORES
from tilewright.backends.cuda.machine import nvrtc

COMPILER = shutil.which("c++")
pytestmark = pytest.mark.skipif(COMPILER is None, reason="no C++ compiler")
ROWS, DEPTHS = 1, 2
BASE = 1 << 40  # where C lies
COUNTS = [0, 1, 64, 300, 0, 33, 600, 256, 63, 65]

Ints = npt.NDArray[np.int32]


def library(folder: Path, kind: int, shape: HopperTile) -> ctypes.CDLL:
    """The header as one of its two kinds of table has it; weights [groups, k, n]."""
    macros = defines("bfloat16", shape, (True, kind == DEPTHS, kind == ROWS), ragged=kind)
    made, source = folder / "records.so", Path(__file__).parent / "hopper_records.cpp"
    words = [f"-D{name}={value}" for name, value in macros]
    command = [str(COMPILER), "-std=c++17", "-w", "-shared", "-fPIC", *words]
    command += [f"-I{nvrtc.path_of('hopper_tiles.cuh').parent}", str(source), "-o", str(made)]
    subprocess.run(command, check=True)
    return ctypes.CDLL(str(made))


def records(library: ctypes.CDLL, entries: list[list[int]], count: int, ragged: Ragged) -> Ints:
    """[count, 20], as drawn in the header."""
    table = np.array([[len(entries), 0, 0, 0], *entries], np.int32)
    out = np.full((count, 20), -1, np.int32)
    at = ctypes.c_void_p(table.ctypes.data)
    library.records(at, count, ctypes.byref(ragged), ctypes.c_void_p(out.ctypes.data))
    return out


def address(record: Ints) -> int:
    return int(record[16:18].view(np.int64)[0])


@pytest.mark.parametrize("shape", [STAGED, HALF], ids=lambda shape: shape.name)
def test_every_tile_of_every_groups_depth_product_has_one_record(
    shape: HopperTile, tmp_path: Path
) -> None:
    made = library(tmp_path, DEPTHS, shape)
    for m, n in [(128, 256), (2048, 700), (41, 33), (385, 2816), (4224, 8)]:
        check_depths(made, shape, m, n)


def check_depths(made: ctypes.CDLL, shape: HopperTile, m: int, n: int) -> None:
    ends = np.cumsum([5, *COUNTS]).tolist()
    pairs = list(itertools.pairwise(ends))
    entries = [[group, *pairs[group], 0] for group in reversed(range(len(COUNTS)))]
    across, stride = -(-n // shape.width), n + 8
    count = len(COUNTS) * -(-m // shape.rows) * across
    ragged = Ragged(c=BASE, n=n, k=m, stride=stride, across=across, flags=ENGINE_STORES)
    covered = np.zeros((len(COUNTS), m, n), np.int32)
    for record in records(made, entries, count, ragged):
        row, column = int(record[4]), int(record[8])
        group, first = int(record[14]), int(record[12]) - int(record[14]) * m
        rows, columns, (begin, end) = int(record[7]), int(record[11]), pairs[group]
        covered[group, row : row + rows, column : column + columns] += 1
        steps, width, last = int(record[2]), record[3] & 0xFFFF, record[3] >> 16 & 0xFF
        assert (record[0], record[1], record[18], record[3] >> 24) == (0, 1, 2, ENGINE_STORES)
        assert (first, record[13]) == (row, column)
        assert record[5] == record[9] == begin
        assert 64 * steps - 64 + last == end - begin if steps else begin == end
        assert 1 <= last <= 64
        assert columns <= width <= shape.width
        assert width % 32 == 0
        assert address(record) == BASE + 2 * ((group * m + row) * stride + column)
    assert (covered == 1).all()


@pytest.mark.parametrize("n", [128, 512, 200, 8])
def test_every_tile_of_every_groups_rows_has_one_record(n: int, tmp_path: Path) -> None:
    made = library(tmp_path, ROWS, WIDE)
    ends = np.cumsum([5, *COUNTS]).tolist()
    k, stride, across = 336, n + 3, -(-n // WIDE.rows)
    entries = [
        [group, start, min(start + WIDE.width, end), 0]
        for group, (begin, end) in enumerate(itertools.pairwise(ends))
        for start in range(begin, end, WIDE.width)
    ]
    ragged = Ragged(c=BASE, n=n, k=k, stride=stride, across=across, flags=0, band=3)
    covered = np.zeros((ends[-1], n), np.int32)
    for record in records(made, entries, len(entries) * across, ragged):
        row, column, group = int(record[9]), int(record[4]), int(record[14])
        rows, columns = int(record[11]), int(record[7])
        covered[row : row + rows, column : column + columns] += 1
        assert ends[group] <= row <= row + rows <= ends[group + 1]
        assert record[5] == group * k
        assert (record[2], record[3] >> 16 & 0xFF) == (6, 1)  # 5 steps of 64, then 16
        assert rows <= record[3] & 0xFFFF <= WIDE.width
        assert (record[12], record[13]) == (column, row)
        assert address(record) == BASE + 2 * (row * stride + column)
    assert (covered[5:] == 1).all()
    assert (covered[:5] == 0).all()
