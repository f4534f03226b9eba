"""Products with a long k in CUDA C++ without a GPU: their shares, what compiles, who takes them.

On a GPU they run in test_deep_gpu.py.
"""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.backends.cuda.test_hopper_compile import needs_nvrtc
from tests.support.cases import Case, operands
from tests.support.launched import Recorder
from tests.support.machine_code import Compiled, together
from tests.support.spills import stacks
from tests.support.triton_proof import CUDA_H200, work_of
from tilewright.backends.cuda.deep import engine, shares
from tilewright.backends.cuda.deep.engine import DTYPES, TILE, DeepTiles
from tilewright.backends.cuda.deep.shares import SIDE, SLIVER, START, UNITS, Shares, shared_out
from tilewright.backends.cuda.machine import nvrtc, placing
from tilewright.backends.cuda.machine.placing import At
from tilewright.backends.cuda.machine.tables import records
from tilewright.backends.cuda.tiled.parts import CHUNK
from tilewright.backends.cuda.work import Work
from tilewright.facts.problem import ACTIVATIONS

ARCHITECTURES = ("sm_80", "sm_90a", "sm_100a")
DRAWS = {
    "many": ([64] * 90, [64] * 90, np.random.default_rng(0).integers(1000, 20_000, 90).tolist()),
    "one": ([300], [700], [5000]),
    "with small ones": ([5, 300, 40, 1], [9, 130, 64, 1], [4, 9000, 0, 3]),
    "nothing": ([0, 3], [7, 0], [10, 20]),
    "one step": ([1], [1], [1]),
}


def shared(name: str, blocks: int = 264, step: int = 128) -> tuple[Shares, Any]:
    sizes = tuple(np.array(column, np.int64) for column in DRAWS[name])
    return shared_out(*sizes, step=step, blocks=blocks), sizes


@pytest.mark.parametrize("blocks", [1, 7, 264, 1000])
@pytest.mark.parametrize("name", DRAWS)
def test_all_k_of_every_tile_is_in_one_entry_and_in_order(name: str, blocks: int) -> None:
    found, (m, n, k) = shared(name, blocks)
    tiles: dict[tuple[int, int, int], list[tuple[int, int]]] = {}
    for entry in found.entries.tolist():
        problem, row, column, begin, end = entry[:5]
        tiles.setdefault((problem, row, column), []).append((begin, end))
    expected = {
        (p, row, column)
        for p in range(len(m))
        for row in range(0, m[p], SIDE)
        for column in range(0, n[p], SIDE)
    }
    assert set(tiles) == expected
    for (problem, _, _), spans in tiles.items():
        begins, ends = zip(*spans, strict=True)
        assert begins == (0, *ends[:-1])
        assert ends[-1] == k[problem]
        assert all(end % 128 == 0 for end in ends[:-1])


@pytest.mark.parametrize("name", DRAWS)
def test_every_block_has_entries_of_its_own_and_they_are_all(name: str) -> None:
    found, _ = shared(name)
    assert found.starts[0] == 0
    assert found.starts[-1] == len(found.entries)
    assert (np.diff(found.starts) >= 0).all()


def test_blocks_have_equal_work_within_what_is_not_cut_off() -> None:
    found, (_, _, k) = shared("many")
    steps = -(-(found.entries["end"] - found.entries["begin"]) // 128)
    first = found.entries["begin"] == 0
    each = np.add.reduceat(steps + START / UNITS * first, found.starts[:-1])
    even = (np.ceil(k / 128) + START / UNITS).sum() / 264
    assert abs(each - even).max() <= SLIVER + 1
    assert each.max() == found.longest


@pytest.mark.parametrize("name", DRAWS)
def test_parts_of_cut_tiles_lie_one_behind_another_and_whole_tiles_have_none(name: str) -> None:
    found, (m, n, _) = shared(name)
    taken = np.zeros(found.elements, int)
    count = np.zeros(len(found.entries), int)
    for first, parts in zip(found.cut.tolist(), found.parts.tolist(), strict=True):
        entry = found.entries[first]
        rows = min(m[entry["problem"]] - entry["row"], SIDE)
        area = rows * min(n[entry["problem"]] - entry["column"], SIDE)
        for part in range(parts):
            assert found.entries[first + part]["to"] == entry["to"] + part * area
            taken[entry["to"] + part * area :][:area] += 1
            count[first + part] += 1
    assert (taken == 1).all()
    assert ((found.entries["to"] >= 0) == (count == 1)).all()


def test_entries_are_laid_out_as_the_kernels_have_them() -> None:
    text = nvrtc.path_of("deep.cuh").read_text()
    (line,) = [x for x in text.splitlines() if x.strip().startswith("int problem")]
    names = [x.strip() for x in line.strip().removeprefix("int").rstrip(";").split(",")]
    assert shares.ENTRY.names is not None
    assert [*names, "to"] == [*shares.ENTRY.names]
    assert shares.ENTRY.itemsize == 32


def batch(*cases: Case) -> Work:
    return work_of([operands(case, seed) for seed, case in enumerate(cases)])


DEEP = Case(64, 64, 5003, dtype="float16")


@pytest.mark.parametrize(
    ("cases", "change", "why"),
    [
        ([DEEP], {"dtype": "float64"}, "not float64"),
        ([replace(DEEP, dtype="float32")], {}, "not float32"),
        ([DEEP], {"version": "sm_75"}, "capability 8.0"),
        ([DEEP], {"version": "gfx942"}, "capability 8.0"),
        ([DEEP], {"local_memory": 99 << 10}, "bytes of shared memory"),
        ([replace(DEEP, b="F")], {}, "element by element"),
        ([DEEP, replace(DEEP, m=904, n=904, k=100)], {}, "a short k"),
        ([replace(DEEP, k=0)], {}, "a short k"),
        ([replace(DEEP, m=904, n=904, k=1100)], {}, "of many tiles"),
        ([replace(DEEP, n=63)], {}, "multiples of 16 bytes"),
    ],
)
def test_what_the_engine_does_not_take_is_said(
    cases: list[Case], change: dict[str, Any], why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nvrtc, "missing", lambda: None)
    facts = {x: change.pop(x) for x in ("version", "local_memory") if x in change}
    answer = DeepTiles().why_not(replace(batch(*cases), **change), replace(CUDA_H200, **facts))
    assert why in str(answer)


@pytest.mark.parametrize("dtype", DTYPES)
def test_long_products_are_taken_and_more_of_them_take_longer(
    dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nvrtc, "missing", lambda: None)
    one, more = (replace(batch(*[DEEP] * count), dtype=dtype) for count in (1, 200))
    assert DeepTiles().why_not(more, CUDA_H200) is None
    few, many = (DeepTiles().propose(work, CUDA_H200) for work in (one, more))
    assert few.seconds is not None
    assert many.seconds is not None
    assert few.seconds < many.seconds
    assert "tiles cut" in many.reason


def test_records_of_cut_tiles_are_those_of_their_part_of_c() -> None:
    work = batch(Case(100, 130, 9000, dtype="float16", bias=True, alpha=0.5, beta=2.0))
    found = engine._shared(work, 264)
    table = records(work)
    rows = engine._of_tiles(table, found.entries[found.cut], 2)
    for record, entry in zip(rows, found.entries[found.cut], strict=True):
        row, column = int(entry["row"]), int(entry["column"])
        assert record[2] == work.c.address[0] + row * work.c.row[0] + 2 * column
        assert record[3] == table[0, 3] + 2 * column
        assert record[4:6].tolist() == [min(100 - row, 64), min(130 - column, 64)]
        assert record[11:].tolist() == table[0, 11:].tolist()
    splits, pieces = engine._sums(found, 1, np.concatenate((table, rows)))
    assert splits[:, 0].tolist() == list(range(1, 1 + len(found.cut)))
    assert len(pieces) == int((-(-rows[:, 4] * rows[:, 5] // CHUNK)).sum())


def test_what_is_launched_is_one_kernel_and_the_sums_of_what_is_cut(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made: list[Any] = []
    recorder = Recorder()
    monkeypatch.setattr(nvrtc, "function", recorder)
    monkeypatch.setattr(placing, "in_order", lambda steps: made.append(steps))
    monkeypatch.setattr(engine, "placed", lambda task, ordinal: made.append(task))
    small = batch(replace(DEEP, m=5, n=9, k=7))
    work = batch(DEEP, replace(DEEP, n=72, k=3000), replace(DEEP, m=5, n=9, k=7))
    found = engine._shared(work, 264)
    whole = engine.kernels(work, found)
    (step,), task = made
    assert whole.count == 2
    assert (step.blocks, step.threads) == (len(found.starts) - 1, 128)
    assert step.values[3] == At(0, scratch=True)
    assert whole.template.scratch == 4 * found.elements
    assert task.arguments[3].bytes == 4 * found.elements
    words = whole.template.words
    entries = words[step.values[1].offset // 8 :][: 4 * len(found.entries)]
    assert (entries == found.entries.view(np.int64)).all()
    assert engine.kernels(small, engine._shared(small, 264)).count == 1


VARIANTS = tuple(itertools.product(DTYPES, ACTIVATIONS))


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Compiled:
    def macros(dtype: str, activation: str) -> dict[str, int]:
        given = {"BF16": int(dtype == "bfloat16"), "ACTIVATION": ACTIVATIONS.index(activation)}
        return given | dict(TILE.defines)

    return together("deep_half", {one: macros(*one) for one in VARIANTS}, tmp_path_factory)


@needs_nvrtc
@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_the_kernels_compile_and_keep_their_sums_in_registers(
    arch: str, dtype: str, activation: str, compiled: Compiled
) -> None:
    code, found = compiled(arch)[dtype, activation]
    assert "LDGSTS" in found, "copies that hold no registers"
    assert found.count("HMMA.16816") == 64
    assert found.count("LDSM.16.MT88.4") == 32
    assert max(stacks(code), default=0) == 0
