"""fp32-accurate products on Hopper's tensor cores, and what is left to its CUDA cores instead."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.support.hopper_arrays import Arrays, run, why_not_hopper
from tests.support.hopper_work import EDGES, Memory, sizes
from tilewright.backends.cuda.hopper import engine
from tilewright.backends.cuda.hopper.bind import bound
from tilewright.backends.cuda.hopper.blocks import SPLIT

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(why_not_hopper() is not None, reason=str(why_not_hopper())),
]
Fill = Callable[[Any], Any]


def _scaled(low: int, high: int) -> Fill:
    def fill(x: Any) -> Any:
        import torch

        return torch.randn_like(x) * torch.exp2(torch.randint(low, high + 1, x.shape).to(x))

    return fill


def _rows(x: Any) -> Any:
    import torch

    return torch.randn_like(x) * torch.exp2(torch.randint(-40, 41, (len(x), 1)).to(x))


FILLS: dict[str, Fill] = {
    "uniform": lambda x: x.new_empty(x.shape).uniform_(),
    "normal": lambda x: x.new_empty(x.shape).normal_(),
    "lognormal": lambda x: x.new_empty(x.shape).log_normal_(0, 1),
    "scaled by 2^-4 to 2^4": _scaled(-4, 4),
    "scaled by 2^-30 to 2^30": _scaled(-30, 30),
    "rows scaled by 2^-40 to 2^40": _rows,
    "large": lambda x: 1e17 * x.new_empty(x.shape).uniform_(),
}
BAD = "scaled by 2^-30 to 2^30"
# Whose sums of a long k round the same way at each step, or have few terms.
LONG: dict[str, Fill] = {
    "one number": lambda x: x.new_full(x.shape, 0.1),
    "uniform": FILLS["uniform"],
    "95 % zeros": lambda x: x * (x.new_empty(x.shape).uniform_() < 0.05),
}


def filled(memory: Memory, fill: Fill, beta: float = 0.0, every: int = 1) -> Arrays:
    """A batch with every so-many-th problem's operands drawn anew."""
    arrays = Arrays(memory, "float32", beta)
    for problem in range(0, len(memory.mnk), every):
        for which in (0, 1):
            view = arrays.view(which, problem)
            view.copy_(fill(view))
    arrays.before = arrays.flat.clone()
    return arrays


def launch_of(arrays: Arrays) -> Callable[[], None]:
    work = arrays.memory.work(arrays.flat.data_ptr(), "float32", keep=(arrays.flat,))
    return bound(work, engine.plan(work, (SPLIT,)))


@pytest.mark.parametrize("layout", ["rrr", "rcr", "crc", "ccc", "rcc", "crr"])
def test_edges_in_every_layout(layout: str) -> None:
    run(Arrays(Memory(EDGES[::5], layout, offset=1), "float32"), "float32", (SPLIT,))


def test_up_to_four_products_alone() -> None:
    run(Arrays(Memory([(70, 280, k) for k in (0, 1, 3, 4)]), "float32"), "float32", (SPLIT,))


@pytest.mark.parametrize("layout", ["rrr", "ccr"])
def test_problems_that_split_beside_problems_that_do_not(layout: str) -> None:
    run(filled(Memory(EDGES[::4], layout), FILLS[BAD], every=3), "float32", (SPLIT,))


@pytest.mark.parametrize("activation", ["none", "relu", "gelu"])
@pytest.mark.parametrize("every", [1, 3])
def test_scalars_and_activation_of_both_kinds_of_problem(activation: str, every: int) -> None:
    arrays = filled(Memory(EDGES[::6]), _scaled(-15, 5), beta=1.0, every=every)
    drawn = np.random.default_rng(4)
    count = len(arrays.memory.mnk)
    scalars = {"alpha": drawn.choice([1.0, -0.5], count), "beta": drawn.choice([0.0, 2.0], count)}
    run(arrays, "float32", (SPLIT,), activation=activation, **scalars)


@pytest.mark.parametrize("kind", FILLS)
@pytest.mark.parametrize(
    "mnk",
    [[(512,) * 3], [(1024,) * 3], [(4096,) * 3], sizes(100, 1, 512), sizes(100, 1, 40)],
    ids=["512", "1024", "4096", "1..512", "1..40"],
)
def test_errors_are_at_most_twice_those_of_cublas_in_fp32(
    mnk: list[tuple[int, int, int]], kind: str
) -> None:
    """In the Frobenius norm, relative to each problem's result, over the batch."""
    import torch

    torch.backends.cuda.matmul.fp32_precision = "ieee"
    arrays = filled(Memory(mnk), FILLS[kind])
    launch_of(arrays)()
    ours: list[float] = []
    theirs: list[float] = []
    for problem in range(len(mnk)):
        a, b, c = (arrays.view(which, problem) for which in range(3))
        exact = a.double() @ b.double()
        for errors, found in ((ours, c), (theirs, a @ b)):
            errors.append(float((found.double() - exact).norm() / exact.norm()))
    assert np.linalg.norm(ours) <= 2 * np.linalg.norm(theirs)


@pytest.mark.parametrize("kind", LONG)
@pytest.mark.parametrize("k", [2_000, 3_104, 20_000])
def test_errors_of_a_long_k_are_at_most_twice_those_of_cublas_in_fp32(k: int, kind: str) -> None:
    import torch

    torch.backends.cuda.matmul.fp32_precision = "ieee"
    arrays = filled(Memory([(24, 24, k), (200, 130, k)]), LONG[kind])
    launch_of(arrays)()
    for problem in range(2):
        a, b, c = (arrays.view(which, problem) for which in range(3))
        exact = a.double() @ b.double()
        ours, theirs = (float((found.double() - exact).norm()) for found in (c, a @ b))
        assert ours <= 2 * theirs


@pytest.mark.parametrize("k", [9, 40, 100, 300, 512, 1000, 1500])
@pytest.mark.parametrize("share", [0.05, 0.2])
def test_errors_of_few_products_are_at_most_twice_those_of_cublas(k: int, share: float) -> None:
    import torch

    torch.backends.cuda.matmul.fp32_precision = "ieee"
    torch.manual_seed(k)
    shapes = [(16, 16, k), (200, 130, k), (512, 512, k)]
    arrays = filled(Memory(shapes), lambda x: x * (x.new_empty(x.shape).uniform_() < share))
    launch_of(arrays)()
    for problem in range(len(shapes)):
        a, b, c = (arrays.view(which, problem) for which in range(3))
        exact = a.double() @ b.double()
        ours, theirs = (float((found.double() - exact).norm()) for found in (c, a @ b))
        assert ours <= 2 * theirs + 1e-9 * float(exact.norm())


def test_infinities_and_nan_are_ieees() -> None:
    import torch

    memory = Memory(sizes(40, 20, 300))
    arrays = Arrays(memory, "float32")
    for problem, values in enumerate([(np.inf, -np.inf), (1.0, np.nan), (3e38, 3e38)] * 13):
        for which, value in enumerate(values):
            arrays.view(which, problem)[3, 5] = value
    launch_of(arrays)()
    for problem in range(len(memory.mnk)):
        a, b, c = (arrays.view(which, problem) for which in range(3))
        expected = a @ b
        for what in (torch.isnan, torch.isposinf, torch.isneginf):
            assert torch.equal(what(c), what(expected)), problem


def test_the_same_bits_every_time_whatever_was_multiplied_before() -> None:
    import torch

    arrays = filled(Memory(sizes(60, 1, 400)), FILLS[BAD], every=4)
    launch = launch_of(arrays)
    bad, good = arrays.flat.clone(), torch.randn_like(arrays.flat)
    first = []
    for operands in (bad, good):
        arrays.flat.copy_(operands)
        launch_of(arrays)()
        first.append(arrays.flat.clone())
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        launch()
    for turn in (0, 1, 1, 0, 1):
        arrays.flat.copy_((bad, good)[turn])
        graph.replay()
        assert torch.equal(arrays.flat.view(torch.int32), first[turn].view(torch.int32))


def test_launches_on_two_streams_count_apart() -> None:
    import torch

    both = [filled(Memory(sizes(200, 1, 300)), FILLS[kind]) for kind in (BAD, "normal")]
    launches = [launch_of(arrays) for arrays in both]
    for launch in launches:
        launch()
    alone = [arrays.flat.clone() for arrays in both]
    streams = [torch.cuda.Stream() for _ in both]
    torch.cuda.synchronize()
    for _ in range(5):
        for stream, launch in zip(streams, launches, strict=True):
            with torch.cuda.stream(stream):
                launch()
    torch.cuda.synchronize()
    for arrays, expected in zip(both, alone, strict=True):
        assert torch.equal(arrays.flat.view(torch.int32), expected.view(torch.int32))
