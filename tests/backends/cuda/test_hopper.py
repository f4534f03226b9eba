"""The Hopper engine on the GPU it is made for, against float64; outputs poisoned beforehand."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from tests.support.hopper_arrays import Arrays, run, why_not_hopper
from tests.support.hopper_work import EDGES, Memory, sizes
from tilewright.arrays.addresses import row_major
from tilewright.backends.cuda.hopper import engine
from tilewright.backends.cuda.hopper.bind import bound
from tilewright.backends.cuda.hopper.blocks import PAIR, SHAPES, TALL, WIDE, HopperTile

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(why_not_hopper() is not None, reason=str(why_not_hopper())),
]

# Those of two strips are for results alone whose columns may be cut close: rows of 16 bytes.
TWO_STRIPS = [shape for shape in SHAPES if shape.strips > 1]
ANYWHERE = [shape for shape in SHAPES if shape.strips == 1]


@pytest.mark.parametrize("pad", [1, 8])
@pytest.mark.parametrize("shape", ANYWHERE, ids=lambda shape: shape.name)
def test_sizes_around_the_edges_of_tiles(shape: HopperTile, pad: int) -> None:
    run(Arrays(Memory(EDGES, pad=pad)), shapes=(shape,))


@pytest.mark.parametrize("pad", [1, 8])
@pytest.mark.parametrize("layout", ["".join(x) for x in itertools.product("rc", repeat=3)])
def test_every_layout(layout: str, pad: int) -> None:
    run(Arrays(Memory(EDGES[::5], layout, pad, offset=pad % 8), "float16"), "float16")


@pytest.mark.parametrize("pad", [1, 8])
@pytest.mark.parametrize("layout", ["rrr", "ccc", "crr", "rcc"])
def test_pairs_of_blocks_that_share_an_operand(layout: str, pad: int) -> None:
    sides = itertools.product((64, 129, 192, 257, 300, 513), (1, 65, 257, 700), (0, 1, 64, 600))
    run(Arrays(Memory(list(sides), layout, pad, offset=pad % 8)), shapes=(PAIR,))


@pytest.mark.parametrize("shape", TWO_STRIPS, ids=lambda shape: shape.name)
@pytest.mark.parametrize("layout", ["rrr", "ccc", "rcc", "rcr"])
def test_tiles_of_two_strips_store_no_more_than_is_theirs(layout: str, shape: HopperTile) -> None:
    """Their last rows or columns lie where another tile's begin."""
    sides = itertools.product((64, 129, 257, 300, 513), (1, 33, 97, 200, 281, 700), (0, 1, 64, 600))
    run(Arrays(Memory([*sides, *EDGES], layout, pad=8)), shapes=(shape,))


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.name)
def test_rows_of_experts_as_columns(shape: HopperTile) -> None:
    """Their tiles begin at every sixteenth column, where another tile's rows of C end."""
    rows = (1, 8, 17, 64, 129, 200, 256, 265, 272, 300, 385, 540, 1030)
    mnk = [(m, n, k) for m in rows for n, k in ((2816, 200), (1288, 1024), (320, 16), (64, 0))]
    run(Arrays(Memory(mnk, pad=8)), shapes=(shape,), turned=True)


@pytest.mark.parametrize("shape", [WIDE, TALL], ids=lambda shape: shape.name)
def test_tiles_that_are_taken_in_turn_give_the_same_bits_every_time(shape: HopperTile) -> None:
    import torch

    mnk = [(28672, 540, 1024), (28672, 3, 1024), (28672, 8, 1024), (28672, 397, 1024)]
    arrays = Arrays(Memory(mnk, "ccc", pad=8))
    work = arrays.memory.work(arrays.flat.data_ptr(), "bfloat16", keep=(arrays.flat,))
    plan = engine.plan(work, (shape,))
    assert [bucket.taken for bucket in plan] == [True]
    run(arrays, shapes=(shape,))
    first, launch = arrays.flat.clone(), bound(work, plan)
    for _ in range(20):
        arrays.flat.copy_(arrays.before)
        launch()
        assert torch.equal(arrays.flat.view(torch.int16), first.view(torch.int16))


def test_problems_of_all_sizes_at_odd_addresses() -> None:
    run(Arrays(Memory([*sizes(60, 1, 700), (1, 4096, 512), (3, 5000, 100)], offset=3)))


@pytest.mark.parametrize("activation", ["none", "relu", "gelu"])
@pytest.mark.parametrize("layout", ["rrr", "rcc"])
def test_scalars_bias_and_activation(layout: str, activation: str) -> None:
    import torch

    memory = Memory(EDGES[::4], layout)
    arrays = Arrays(memory, beta=1.0)
    starts = np.cumsum(memory.n) - memory.n
    flat = torch.randn(int(memory.n.sum()), device="cuda").bfloat16()
    arrays.bias = flat.split(memory.n.tolist())  # type: ignore[attr-defined]
    zero = np.zeros_like(starts)
    bias = row_major(zero + 1, memory.n, flat.data_ptr() + 2 * starts, 2)
    drawn = np.random.default_rng(2)
    alpha, beta = drawn.choice([1.0, -0.5], len(zero)), drawn.choice([0.0, 1.0, 2.0], len(zero))
    run(arrays, alpha=alpha, beta=beta, bias=bias, activation=activation)


@pytest.mark.parametrize("shape", [WIDE, PAIR], ids=lambda shape: shape.name)
def test_scalars_where_halves_are_kept_while_the_next_tile_is_multiplied(shape: HopperTile) -> None:
    arrays = Arrays(Memory([*EDGES[::7], *sizes(30, 200, 700)], pad=8), beta=1.0)
    count = len(arrays.memory.mnk)
    drawn = np.random.default_rng(2)
    alpha, beta = drawn.choice([1.0, -0.5], count), drawn.choice([0.0, 1.0, 2.0], count)
    run(arrays, shapes=(shape,), alpha=alpha, beta=beta, activation="relu")


def test_a_stride_of_two_is_packed_element_by_element() -> None:
    memory = Memory([(70, 80, 90), (33, 65, 129)])
    memory.strides[0] = (2 * memory.strides[0][0], 2 * memory.strides[0][1])
    room = int(memory.starts[1][0])
    memory.starts = [start + (room if which else 0) for which, start in enumerate(memory.starts)]
    memory.elements += room
    memory.starts[0] = 2 * memory.starts[0]
    run(Arrays(memory))


@pytest.mark.parametrize("shapes", [SHAPES, (PAIR,)], ids=["chosen", PAIR.name])
def test_the_same_bits_every_time_and_in_a_graph(shapes: tuple[HopperTile, ...]) -> None:
    import torch

    arrays = Arrays(Memory(sizes(50, 1, 600)))
    work = arrays.memory.work(arrays.flat.data_ptr(), "bfloat16", keep=(arrays.flat,))
    launch = bound(work, engine.plan(work, shapes))
    launch()
    first = arrays.flat.clone()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        launch()
    for _ in range(3):
        graph.replay()
        assert torch.equal(arrays.flat.view(torch.int16), first.view(torch.int16))
