"""Plans of the Hopper engine, without a GPU: their tables, read as the kernels read them."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest

from tests.support.hopper_work import EDGES, Memory, emulated, sizes
from tilewright.backends.cuda.hopper import cost, engine, records
from tilewright.backends.cuda.hopper.blocks import (
    BOX,
    FINE,
    NARROW,
    PAIR,
    SHAPES,
    SHARED_LIMIT,
    SLIM,
    SPLIT,
    STAGED,
    TALL,
    WIDE,
    HopperTile,
)
from tilewright.backends.cuda.hopper.maps import bucket_maps
from tilewright.backends.cuda.hopper.orient import orient, why_not
from tilewright.facts.device import Device
from tilewright.facts.measured import h200
from tilewright.planning import deal

LAYOUTS = ["".join(letters) for letters in itertools.product("rc", repeat=3)]


@pytest.mark.parametrize("shape", [*SHAPES, SPLIT], ids=lambda shape: shape.name)
def test_a_block_fits_a_multiprocessor(shape: HopperTile) -> None:
    assert shape.blocks * (shape.shared + 1024) <= SHARED_LIMIT + 1024
    registers = 128 * (shape.loader_registers + shape.warpgroups * shape.consumer_registers)
    at_launch = 65536 // (shape.blocks * shape.threads) // 8 * 8
    assert registers <= shape.threads * at_launch, "warps would wait for registers for ever"
    assert shape.shared % 8 == 0
    assert shape.stages * (shape.warpgroups + shape.width // 64) * BOX < shape.shared


@pytest.mark.parametrize("pad", [1, 8])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_tables_multiply_every_layout(layout: str, pad: int) -> None:
    memory = Memory(EDGES[:: 11 if pad == 1 else 17], layout, pad, offset=3 if pad == 1 else 0)
    shapes = {"r": (NARROW,), "c": (STAGED,)}[layout[0]] if layout[1] == "r" else (PAIR,)
    _multiplied(memory, shapes)


@pytest.mark.parametrize("layout", ["rrr", "ccc", "rcr"])
def test_the_tables_of_tiles_of_two_strips_multiply(layout: str) -> None:
    _multiplied(Memory([(300, 213, 70), (130, 97, 64), (513, 33, 17)], layout, 8), (TALL,))


EXPERTS = [(m, 512, 200) for m in (272, 265, 256, 300, 129, 17, 8, 385, 540)]


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.name)
def test_the_tables_multiply_rows_of_experts_as_columns(shape: HopperTile) -> None:
    _multiplied(Memory(EXPERTS, pad=8), (shape,), turned=True)


@pytest.mark.parametrize("shape", [WIDE, PAIR, TALL], ids=lambda shape: shape.name)
def test_experts_rows_are_multiplied_in_sixteens_and_no_more_are_loaded(shape: HopperTile) -> None:
    """Tiles of a problem are about as wide; but those of the last rounds, cut in half."""
    work = Memory(EXPERTS, pad=8).work(1 << 20)
    batch = orient(work, turned=True)
    tiles = records.cut(batch, np.arange(len(EXPERTS)), shape, "auto")
    boxes = records.slabs(batch, shape, tiles)
    for problem, (m, _, _) in enumerate(EXPERTS):
        of = np.unique(tiles.column[tiles.problem == problem])
        columns = np.diff([*of, m])
        across = -(-m // shape.width)
        assert (of % FINE == 0).all()
        assert len(of) == across
        assert columns.max() - columns.min() <= 2 * FINE
        widths = shape.padded(columns)
        assert across == 1 or widths.sum() == -(-m // FINE) * FINE
        assert 2 * boxes[problem] == widths.max()
    gated = replace(work, activation="relu")
    (bucket,) = engine.plan(gated, (shape,)) if shape != TALL else engine.plan(gated, (WIDE,))
    assert (bucket.shape.padded(np.arange(1, 257)) % 32 == 0).all(), "fewer widths, each long"


def _multiplied(
    memory: Memory, shapes: tuple[HopperTile, ...], *, turned: bool | None = None
) -> None:
    rng = np.random.default_rng(5)
    whole = np.full(memory.elements + 64, np.nan, np.float16)
    start = -(-whole.ctypes.data // 16) * 16 - whole.ctypes.data
    buffer = whole[start // 2 :]
    for problem, (which, at) in itertools.product(range(len(memory.mnk)), ((0, 0), (1, 1))):
        view = memory.view(which, problem, buffer)
        view[...] = rng.standard_normal(view.shape)
        assert at == which
    work = memory.work(buffer.ctypes.data)
    outside = np.isnan(buffer)
    for problem in range(len(memory.mnk)):
        memory.view(2, problem, outside)[...] = False
    plan = engine.plan(work, shapes)
    if turned is not None:
        batch, every = orient(work, turned=turned), np.arange(len(memory.mnk))
        plan = (engine.bucket_of(batch, every, shapes[0], "auto", records.AS_MEASURED),)
    for bucket in plan:
        emulated(bucket, buffer)
    for problem in range(len(memory.mnk)):
        a, b, c = (memory.view(which, problem, buffer).astype(np.float64) for which in range(3))
        np.testing.assert_allclose(c, a @ b, rtol=2e-3, atol=2e-2)
    assert np.isnan(buffer[outside]).all()


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.name)
def test_tiles_cover_each_problem_once_and_are_each_dealt_once(shape: HopperTile) -> None:
    memory = Memory(sizes(50, 1, 900))
    batch = orient(memory.work(0), turned=False)
    blocks = h200.UNITS * shape.blocks
    whole = records.cut(batch, np.arange(50), shape, "auto")
    for cut in (whole, records.split_tail(batch, whole, shape, 20)):
        area = np.zeros(50, np.int64)
        np.add.at(area, cut.problem, cut.rows * cut.columns)
        assert (area == memory.m * memory.n).all()
        seen = {tuple(t) for t in zip(cut.problem, cut.row, cut.column, strict=True)}
        assert len(seen) == len(cut.problem)
        turns, busiest = deal.turns(cut.seconds, blocks)
        assert sorted(turns[turns >= 0]) == list(range(len(cut.problem)))
        loads = np.append(cut.seconds, 0.0)[turns].sum(0)
        assert busiest == pytest.approx(loads.max())


@pytest.mark.parametrize("base", [PAIR, NARROW], ids=lambda shape: shape.name)
def test_two_blocks_of_a_cluster_keep_step_and_share_one_operand(base: HopperTile) -> None:
    shape = replace(base, cluster=2)
    work = Memory([*EDGES[::3], *sizes(60, 1, 900)], pad=8).work(1 << 20)
    for bucket in engine.plan(work, (shape,)):
        batch = bucket.batch
        _, numbers = bucket_maps(bucket, 1 << 30)
        table = records.records(batch, shape, bucket.tiles, bucket.turns, bucket.panels, numbers)
        covered = [
            np.zeros((rows, columns), int)
            for rows, columns in zip(batch.rows, batch.columns, strict=True)
        ]
        for pair in table.reshape(-1, 2, records.FIELDS):
            steps, shares = pair[:, 2], (pair[:, 3] >> 24) & ~7
            rows, columns, widths = pair[:, 7], pair[:, 11], pair[:, 3] & 0xFFFF
            assert steps[0] == steps[1]
            assert shares[0] == shares[1]
            if shares[0] == records.RIGHT_SHARED:
                assert (pair[0, [1, 8, 9, 10]] == pair[1, [1, 8, 9, 10]]).all()
                assert widths[0] == widths[1] > 0
            elif shares[0] == records.LEFT_SHARED:
                assert (pair[0, [0, 4, 5, 6]] == pair[1, [0, 4, 5, 6]]).all()
                assert rows[0] == rows[1] > 0
            else:
                assert rows[1] == columns[1] == widths[1] == 0
            for i, j, high, wide, p in pair[:, [12, 13, 7, 11, 14]]:
                assert high <= shape.rows
                assert wide <= shape.width
                covered[p][i : i + high, j : j + wide] += 1
        assert all((covered[p] == 1).all() for p in bucket.which)


def test_pairs_are_the_tiles_of_single_blocks_where_rows_fill_them() -> None:
    work = Memory([(1024, 2048, 512)], pad=64).work(1 << 20)
    batch = orient(work, turned=False)
    which = np.arange(1)
    one, two = (records.members(s, records.cut(batch, which, s, "auto"))[0] for s in (WIDE, PAIR))
    assert sorted(zip(one.row, one.column, strict=True)) == sorted(
        zip(two.row, two.column, strict=True)
    )
    few = records.cut(batch, which, PAIR, "auto")
    assert (few.rows == 2 * PAIR.rows).all()


def test_rows_that_begin_within_lines_are_left_to_pairs_of_blocks() -> None:
    work = Memory([(1160, 1160, 1160)] * 50, pad=8).work(1 << 20)
    alone, together = (engine.plan(work, (shape,))[0] for shape in (WIDE, PAIR))
    assert (cost.lines(alone.batch.left) == 2).all()
    assert together.seconds < 0.8 * alone.seconds
    assert engine.plan(work)[0].shape == PAIR
    whole = orient(Memory([(64, 64, 128)]).work(1 << 20), turned=False)
    assert (cost.lines(whole.left) == 1).all()
    packed = orient(Memory([(64, 64, 127)]).work(1 << 20), turned=False)
    assert (cost.lines(packed.left) == 1).all(), "panels have rows of 128 aligned bytes"


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
    c = replace(work.c, row=np.array([32]), col=np.array([4]))
    assert why_not(replace(work, c=c)) == "C is contiguous along neither dimension"
    far = replace(work.a, row=np.array([6]), col=np.array([2**31]))
    assert "A has no contiguous dimension" in str(why_not(replace(work, a=far)))
    assert why_not(replace(work, a=replace(far, row=np.array([2])))) is None
    device = Device(id="cuda:0", backend="cuda", name="an older GPU", kind="gpu")
    half = engine.HopperHalf()
    assert half.why_not(work, device) == "needs wgmma: compute capability 9.0"
    assert half.why_not(replace(work, dtype="float32"), device) == "float32 is not half precision"


def _thirds_of(problem: int, cut: records.Tiles) -> list[int]:
    """How many tiles of a problem are in each third of a launch."""
    return [int((part == problem).sum()) for part in np.array_split(cut.problem, 3)]


def test_a_problem_that_waits_for_memory_is_spread_among_those_that_multiply() -> None:
    mnk = [(1024, 8192, 4096), (3, 28672, 4096), (1024, 8192, 4096)]
    batch = orient(Memory(mnk, pad=64).work(1 << 20), turned=False)
    which = np.arange(3)
    spread, given = (records.cut(batch, which, WIDE, order) for order in ("auto", "given"))
    thirds = _thirds_of(1, spread)
    assert max(thirds) - min(thirds) <= 2
    assert _thirds_of(1, given)[0] == 0, "an order that was asked for is kept"
    for problem in range(3):
        ours, theirs = (x.take(np.flatnonzero(x.problem == problem)) for x in (spread, given))
        assert all(np.array_equal(x, y) for x, y in zip(ours, theirs, strict=True))


@pytest.mark.parametrize(
    "mnk", [[(3, 28672, 4096)] * 3, [(1024, 8192, 4096)] * 2, [(1024, 2048, 512), (3, 2048, 512)]]
)
def test_nothing_is_spread_where_all_wait_or_none_or_little_is_won(
    mnk: list[tuple[int, int, int]],
) -> None:
    batch = orient(Memory(mnk, pad=64).work(1 << 20), turned=False)
    cut = records.cut(batch, np.arange(len(mnk)), WIDE, "auto")
    assert (np.diff(cut.problem) >= 0).all()


MIXTRAL = [(m, 28672, 4096) for m in (281, 397, 8, 3, 225, 540, 278, 316)]


def test_tiles_among_which_some_wait_for_memory_are_taken_in_turn() -> None:
    (bucket,) = engine.plan(Memory(MIXTRAL, pad=8).work(1 << 20))
    assert (bucket.shape, bucket.batch.turned, bucket.taken) == (TALL, True, True)
    count = len(bucket.tiles.problem)
    assert (bucket.turns.reshape(-1)[:count] == np.arange(count)).all()
    assert (bucket.turns.reshape(-1)[count:] == -1).all()
    assert int(bucket.tiles.columns.max()) <= TALL.width
    assert (bucket.tiles.column % FINE == 0).all()
    assert "256x160, turned, taken in turn" in engine._words(bucket)
    assert not engine.plan(Memory([(256, 2816, 2048)] * 64, pad=8).work(1 << 20))[0].taken


@pytest.mark.parametrize("shape", [WIDE, TALL], ids=lambda shape: shape.name)
def test_the_batch_that_is_run_again_and_again_on_a_gpu_is_taken(shape: HopperTile) -> None:
    """Of test_hopper.py, which says so where there is a GPU only."""
    mnk = [(28672, m, 1024) for m in (540, 3, 8, 397)]
    assert engine.plan(Memory(mnk, "ccc", pad=8).work(1 << 20), (shape,))[0].taken


def test_an_order_that_was_asked_for_and_pairs_are_dealt() -> None:
    work = Memory(MIXTRAL, pad=8).work(1 << 20)
    assert not engine.plan(replace(work, order="given"))[0].taken
    assert not engine.plan(work, (PAIR,))[0].taken


def test_tiles_of_two_strips_are_for_plain_results_whose_columns_may_be_cut_close() -> None:
    odd = Memory([(m, n + 1, k) for m, n, k in MIXTRAL]).work(1 << 20)
    gated = Memory(MIXTRAL, pad=8).work(1 << 20, activation="relu")
    by_rows = Memory(MIXTRAL, "crr", pad=8).work(1 << 20)  # k contiguous in neither operand
    for work in (odd, gated, by_rows):
        assert all(bucket.shape.strips == 1 for bucket in engine.plan(work))


@pytest.mark.parametrize(
    ("experts", "rows", "n", "k", "shape"),
    [(64, 16384, 2816, 2048, SLIM), (8, 8192, 14336, 4096, PAIR), (253, 8192, 4096, 7168, TALL)],
)
def test_layers_of_experts_get_the_shape_that_was_measured_fastest(
    experts: int, rows: int, n: int, k: int, shape: HopperTile
) -> None:
    drawn = np.random.default_rng(0).multinomial(rows, np.full(experts, 1 / experts))
    work = Memory([(int(m), n, k) for m in drawn], pad=8).work(1 << 20)
    assert [bucket.shape for bucket in engine.plan(work)] == [shape]


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.name)
def test_no_tile_is_wider_than_its_shape(shape: HopperTile) -> None:
    """Nor where columns begin at multiples that do not divide it evenly."""
    for layout in ("rrr", "crr"):
        batch = orient(Memory(sizes(40, 1, 900), layout, 8).work(1 << 20), turned=True)
        tiles = records.cut(batch, np.arange(40), shape, "auto")
        assert shape.padded(records.members(shape, tiles)[0].columns).max() <= shape.width


@pytest.mark.parametrize(
    ("rows", "columns", "down"), [(16384, 1024, 4), (4096, 1024, 16), (16384, 8192, 16)]
)
def test_so_many_tiles_down_follow_one_another(rows: int, columns: int, down: int) -> None:
    batch = orient(Memory([(rows, columns, 512)], pad=64).work(1 << 20), turned=False)
    cut = records.cut(batch, np.arange(1), WIDE, "auto")
    assert (cut.column[:down] == 0).all()
    assert cut.column[down] > 0
