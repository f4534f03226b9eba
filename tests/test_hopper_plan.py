"""Plans of the Hopper engine, without a GPU: their tables, read as the kernels read them."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
from hopper_work import EDGES, Memory, emulated, sizes

from tilewright.backends.cuda.hopper import cost, engine, tiles
from tilewright.backends.cuda.hopper.orient import orient, unsuited
from tilewright.backends.cuda.hopper.shapes import BOX, NARROW, SHAPES, SHARED_LIMIT, STAGED, Shape
from tilewright.device import Device

LAYOUTS = ["".join(letters) for letters in itertools.product("rc", repeat=3)]


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.name)
def test_a_block_fits_a_multiprocessor(shape: Shape) -> None:
    assert shape.blocks * (shape.shared + 1024) <= SHARED_LIMIT + 1024
    registers = 128 * (shape.loader_registers + shape.warpgroups * shape.consumer_registers)
    assert shape.blocks * registers <= 65536
    assert shape.shared % 8 == 0
    assert shape.stages * (shape.warpgroups + shape.width // 64) * BOX < shape.shared


@pytest.mark.parametrize("pad", [1, 8])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_tables_multiply_every_layout(layout: str, pad: int) -> None:
    rng = np.random.default_rng(5)
    memory = Memory(EDGES[:: 11 if pad == 1 else 17], layout, pad, offset=3 if pad == 1 else 0)
    whole = np.full(memory.elements + 64, np.nan, np.float16)
    start = -(-whole.ctypes.data // 16) * 16 - whole.ctypes.data
    buffer = whole[start // 2 :]
    for problem, (which, at) in itertools.product(range(len(memory.mnk)), ((0, 0), (1, 1))):
        view = memory.view(which, problem, buffer)
        view[...] = rng.standard_normal(view.shape)
        assert at == which
    work = memory.work(buffer.ctypes.data)
    shapes = (NARROW,) if layout[0] == "r" else (STAGED,)
    outside = np.isnan(buffer)
    for problem in range(len(memory.mnk)):
        memory.view(2, problem, outside)[...] = False
    for bucket in engine.plan(work, shapes):
        emulated(bucket, buffer)
    for problem in range(len(memory.mnk)):
        a, b, c = (memory.view(which, problem, buffer).astype(np.float64) for which in range(3))
        np.testing.assert_allclose(c, a @ b, rtol=2e-3, atol=2e-2)
    assert np.isnan(buffer[outside]).all()


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.name)
def test_tiles_cover_each_problem_once_and_are_each_dealt_once(shape: Shape) -> None:
    memory = Memory(sizes(50, 1, 900))
    batch = orient(memory.work(0), turned=False)
    blocks = cost.PROCESSORS * shape.blocks
    whole = tiles.cut(batch, np.arange(50), shape, "auto")
    for cut in (whole, tiles.split_tail(batch, whole, shape, 20)):
        area = np.zeros(50, np.int64)
        np.add.at(area, cut.problem, cut.rows * cut.columns)
        assert (area == memory.m * memory.n).all()
        seen = {tuple(t) for t in zip(cut.problem, cut.row, cut.column, strict=True)}
        assert len(seen) == len(cut.problem)
        turns, busiest = tiles.deal(cut.seconds, blocks)
        assert sorted(turns[turns >= 0]) == list(range(len(cut.problem)))
        loads = np.append(cut.seconds, 0.0)[turns].sum(0)
        assert busiest == pytest.approx(loads.max())


def test_rows_that_would_fill_half_a_tile_are_turned_into_columns() -> None:
    (bucket,) = engine.plan(Memory([(200, 2816, 2048)] * 64, "rcr", pad=8).work(0))
    assert bucket.batch.turned
    assert int(bucket.tiles.columns.max()) == 200


def test_aligned_operands_are_read_where_they_lie() -> None:
    (aligned,) = engine.plan(Memory(sizes(20, 50, 300), pad=8).work(1 << 20))
    assert aligned.scratch == 0
    (packed,) = engine.plan(Memory([(65, 67, 69)] * 20).work(1 << 20))
    assert packed.scratch > 20 * 2 * (65 + 67) * 69


def test_vectors_join_the_launch_of_the_others() -> None:
    mnk = [*sizes(40, 30, 90), (1, 50, 60), (50, 1, 60), (50, 60, 1), (1, 1, 1)]
    assert len(engine.plan(Memory(mnk).work(0))) == 1


def test_what_cannot_be_had_is_said() -> None:
    work = Memory([(4, 5, 6)]).work(0)
    c = replace(work.c, row=np.array([16]), col=np.array([2]))
    assert unsuited(replace(work, c=c)) == "C is contiguous along neither dimension"
    far = replace(work.a, row=np.array([3]), col=np.array([2**30]))
    assert "A has no contiguous dimension" in str(unsuited(replace(work, a=far)))
    assert unsuited(replace(work, a=replace(far, row=np.array([1])))) is None
    device = Device(id="cuda:0", backend="cuda", name="an older GPU", kind="gpu")
    half = engine.HopperHalf()
    assert half.propose(work, device) == "needs wgmma: compute capability 9.0"
    assert half.propose(replace(work, dtype="float32"), device) == "float32 is not half precision"
