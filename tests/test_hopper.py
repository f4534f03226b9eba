"""The Hopper engine on the GPU it is made for, against float64; outputs poisoned beforehand."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hopper_work import EDGES, Memory, sizes

from tilewright.backends.cuda import driver, nvrtc
from tilewright.backends.cuda.engine import Columns
from tilewright.backends.cuda.hopper import engine, ragged
from tilewright.backends.cuda.hopper.bind import bound
from tilewright.backends.cuda.hopper.shapes import SHAPES, SPLIT, Shape


def _missing() -> str | None:
    reason = driver.missing()
    if reason is None and nvrtc.architecture(0) != "sm_90a":
        return "no Hopper GPU"
    return reason


pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(_missing() is not None, reason=str(_missing())),
]
# Of one result: rounding once to the type, relative to the size of its terms.
ROUNDING = {"bfloat16": 2.0**-8, "float16": 2.0**-11, "float32": 2.0**-24}


class Arrays:
    """The matrices of a batch in one tensor on the GPU; C is NaN but where it is read."""

    def __init__(self, memory: Memory, dtype: str = "bfloat16", beta: float = 0.0) -> None:
        import torch

        self.memory = memory
        kind = getattr(torch, dtype)
        self.flat = torch.randn(memory.elements, device="cuda").to(kind)
        self.outside = torch.ones(memory.elements, dtype=torch.bool, device="cuda")
        for problem in range(len(memory.mnk)):
            for which in range(3):
                self.view(which, problem, self.outside).fill_(False)
            if not beta:
                self.view(2, problem).fill_(float("nan"))
        self.flat[self.outside] = float("nan")
        self.before = self.flat.clone()

    def view(self, which: int, problem: int, flat: Any = None) -> Any:
        import torch

        m, n, k = self.memory.mnk[problem]
        shape = ((m, k), (k, n), (m, n))[which]
        strides = tuple(int(s[problem]) for s in self.memory.strides[which])
        start = int(self.memory.starts[which][problem])
        return torch.as_strided(self.flat if flat is None else flat, shape, strides, start)


def run(
    arrays: Arrays, dtype: str = "bfloat16", shapes: tuple[Shape, ...] = SHAPES, **fields: Any
) -> None:
    """Multiply, and compare every problem to float64."""
    import torch

    memory = arrays.memory
    work = memory.work(arrays.flat.data_ptr(), dtype, keep=(arrays.flat,), **fields)
    bound(work, engine.plan(work, shapes))()
    count = len(memory.mnk)
    alpha, beta = (
        fields.get(name, np.full(count, v)) for name, v in (("alpha", 1.0), ("beta", 0.0))
    )
    for problem, (m, n, _) in enumerate(memory.mnk):
        a, b = (arrays.view(which, problem, arrays.before).double() for which in (0, 1))
        expected, size = alpha[problem] * (a @ b), abs(alpha[problem]) * (a.abs() @ b.abs())
        if beta[problem]:
            c = beta[problem] * arrays.view(2, problem, arrays.before).double()
            expected, size = expected + c, size + c.abs()
        if fields.get("bias") is not None:
            bias = arrays.bias[problem].double()  # type: ignore[attr-defined]
            expected, size = expected + bias, size + bias.abs()
        if fields.get("activation") == "relu":
            expected = torch.relu(expected)
        if fields.get("activation") == "gelu":
            expected = torch.nn.functional.gelu(expected)
        error = (arrays.view(2, problem).double() - expected).abs()
        limit = ROUNDING[dtype] * expected.abs() + 2.0**-20 * size + 1e-6
        assert bool((error <= limit).all()), (problem, memory.mnk[problem], m, n)
    assert bool(torch.isnan(arrays.flat[arrays.outside]).all())


@pytest.mark.parametrize("pad", [1, 8])
@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.name)
def test_sizes_around_the_edges_of_tiles(shape: Shape, pad: int) -> None:
    run(Arrays(Memory(EDGES, pad=pad)), shapes=(shape,))


@pytest.mark.parametrize("pad", [1, 8])
@pytest.mark.parametrize("layout", ["".join(x) for x in itertools.product("rc", repeat=3)])
def test_every_layout(layout: str, pad: int) -> None:
    run(Arrays(Memory(EDGES[::5], layout, pad, offset=pad % 8), "float16"), "float16")


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
    bias = Columns(flat.data_ptr() + 2 * starts, zero, zero + 1)
    drawn = np.random.default_rng(2)
    alpha, beta = drawn.choice([1.0, -0.5], len(zero)), drawn.choice([0.0, 1.0, 2.0], len(zero))
    run(arrays, alpha=alpha, beta=beta, bias=bias, activation=activation)


def test_a_stride_of_two_is_packed_element_by_element() -> None:
    memory = Memory([(70, 80, 90), (33, 65, 129)])
    memory.strides[0] = (2 * memory.strides[0][0], 2 * memory.strides[0][1])
    room = int(memory.starts[1][0])
    memory.starts = [start + (room if which else 0) for which, start in enumerate(memory.starts)]
    memory.elements += room
    memory.starts[0] = 2 * memory.starts[0]
    run(Arrays(memory))


def test_the_same_bits_every_time_and_in_a_graph() -> None:
    import torch

    arrays = Arrays(Memory(sizes(50, 1, 600)))
    work = arrays.memory.work(arrays.flat.data_ptr(), "bfloat16", keep=(arrays.flat,))
    launch = bound(work, engine.plan(work))
    launch()
    first = arrays.flat.clone()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        launch()
    for _ in range(3):
        graph.replay()
        assert torch.equal(arrays.flat.view(torch.int16), first.view(torch.int16))


@pytest.mark.parametrize("layout", ["rrr", "rcr", "crc", "ccc"])
def test_split_products_are_as_accurate_as_fp32(layout: str) -> None:
    run(Arrays(Memory(EDGES[::5], layout, offset=1), "float32"), "float32", (SPLIT,))


def test_split_products_with_scalars_and_activation() -> None:
    arrays = Arrays(Memory(EDGES[::6]), "float32", beta=1.0)
    count = len(arrays.memory.mnk)
    scalars = {"alpha": np.full(count, -0.5), "beta": np.full(count, 2.0)}
    run(arrays, "float32", (SPLIT,), activation="relu", **scalars)


@pytest.mark.parametrize("kind", ["uniform", "normal", "badly scaled"])
def test_split_products_err_no_more_than_twice_cublas(kind: str) -> None:
    import torch

    memory = Memory([(200, 300, k) for k in (30, 100, 700, 3000)])
    arrays = Arrays(memory, "float32")
    if kind == "uniform":
        arrays.flat.uniform_()
    if kind == "badly scaled":
        arrays.flat *= torch.exp2(torch.randint(-40, 40, arrays.flat.shape, device="cuda").float())
    work = memory.work(arrays.flat.data_ptr(), "float32", keep=(arrays.flat,))
    bound(work, engine.plan(work, (SPLIT,)))()
    for problem in range(len(memory.mnk)):
        a, b, c = (arrays.view(which, problem) for which in range(3))
        exact = a.double() @ b.double()
        error, theirs = ((found.double() - exact).norm() for found in (c, a @ b))
        assert float(error) <= 2 * float(theirs)


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("n", [512, 520, 204])
def test_ragged_rows_with_their_numbers_on_the_device(n: int, transposed: bool) -> None:
    import torch

    k, counts = 320, [0, 1, 64, 300, 0, 33, 600, 128]
    if not transposed and n % 8:
        n += 4
    ends = np.cumsum([5, *counts])
    x = torch.randn(int(ends[-1]) + 7, k, device="cuda").bfloat16()
    shape = (len(counts), n, k) if transposed else (len(counts), k, n)
    w = torch.randn(shape, device="cuda").bfloat16()
    w = w.transpose(1, 2) if transposed else w
    out = torch.full((len(x), n), float("nan"), device="cuda", dtype=torch.bfloat16)
    rows = [
        (group, int(start), min(int(start) + ragged.ROWS, int(ends[group + 1])), 0)
        for group in range(len(counts))
        for start in range(int(ends[group]), int(ends[group + 1]), ragged.ROWS)
    ]
    assert len(rows) <= ragged.entries(sum(counts), len(counts))
    table = torch.tensor([(len(rows), 0, 0, 0), *rows], dtype=torch.int32, device="cuda")
    assert ragged.unsuited(x, w, out) is None
    ragged.bound(table, x, w, out)()
    for group in range(len(counts)):
        part = slice(int(ends[group]), int(ends[group + 1]))
        expected = x[part].double() @ w[group].double()
        limit = 2.0**-8 * expected.abs() + 2.0**-20 * (
            x[part].abs().double() @ w[group].abs().double()
        )
        assert bool(((out[part].double() - expected).abs() <= limit + 1e-6).all())
    assert bool(torch.isnan(out[:5]).all())
    assert bool(torch.isnan(out[int(ends[-1]) :]).all())
