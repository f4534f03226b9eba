"""Launches on a GPU, again and again: graphs, streams, threads, operands that move. Needs a GPU."""

from __future__ import annotations

import gc
import threading
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tilewright
from tests.support.gpu_arrays import why_no_gpu
from tilewright import matmul, plan_grouped, ragged_matmul
from tilewright.backends.cuda.machine import fixed
from tilewright.errors import DeviceError, DeviceWarning
from tilewright.pytorch import GroupedLinear, grouped_matmul

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(why_no_gpu() is not None, reason=f"no GPU: {why_no_gpu()}"),
]
torch: Any = pytest.importorskip("torch")
NAN = float("nan")
# Sizes, dtype and options: one kernel, a packing one before it, several tile shapes, three kernels.
WAYS: dict[str, tuple[int, int, str, dict[str, Any]]] = {
    "one": (1, 32, "float32", {"kernel": "triton_grouped"}),
    "packed": (1, 200, "bfloat16", {}),
    "shapes": (1, 300, "float32", {"kernel": "triton_grouped"}),
    "split": (30, 200, "float32", {"precision": "fp32x"}),
    "vendor": (64, 64, "float32", {"kernel": "vendor"}),
}


def sizes_of(way: str, count: int = 60) -> list[list[int]]:
    low, high = WAYS[way][:2]
    drawn = np.random.default_rng(0).integers(low, high + 1, (count if low < high else 1, 3))
    return [*drawn.tolist(), [3, 5, 4000]] if way == "shapes" else drawn.tolist()


def operands(way: str) -> tuple[list[Any], list[Any]]:
    dtype = getattr(torch, WAYS[way][2])
    a = [torch.randn(m, k, device="cuda").to(dtype) for m, n, k in sizes_of(way)]
    return a, [torch.randn(k, n, device="cuda").to(dtype) for m, n, k in sizes_of(way)]


class Bound:
    """A bound plan, what it gave the first time, and whether it gives that again."""

    def __init__(self, way: str) -> None:
        self.a, self.b = operands(way)
        m, n, k = zip(*sizes_of(way), strict=True)
        plan = plan_grouped(m, n, k, dtype=self.a[0].dtype, device="cuda:0")
        self.run = plan.bind(self.a, self.b, **WAYS[way][3])
        self.first = [z.clone() for z in self.run()]
        self.results = self.run()
        for x, y, z in zip(self.a, self.b, self.first, strict=True):
            truth = x.double() @ y.double()
            assert (z.double() - truth).norm() <= 1e-2 * truth.norm()

    def poison(self) -> None:
        for z in self.results:
            z.fill_(NAN)
        torch.cuda.synchronize()

    def check(self) -> None:
        torch.cuda.synchronize()
        assert all(torch.equal(x, y) for x, y in zip(self.first, self.results, strict=True))
        self.poison()


@pytest.mark.parametrize("way", WAYS)
def test_every_run_gives_the_same_bits_on_any_stream(way: str) -> None:
    bound = Bound(way)
    streams = [torch.cuda.current_stream(), torch.cuda.Stream(), torch.cuda.Stream()]
    bound.poison()
    for stream in streams * 3:
        with torch.cuda.stream(stream):
            bound.run()
        bound.check()
    for turn in range(30):  # nothing waits in between
        with torch.cuda.stream(streams[1 + turn % 2]):
            bound.run()
    bound.check()


@pytest.mark.parametrize("way", WAYS)
def test_a_graph_of_the_callers_captures_it_however_often_it_ran(way: str) -> None:
    bound = Bound(way)
    for _ in range(4):
        bound.poison()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            bound.run()
        graph.replay()
        bound.check()
        bound.run()
        bound.check()


@pytest.mark.parametrize("way", WAYS)
def test_threads_that_never_called_torch_may_run_it(way: str) -> None:
    bound = Bound(way)
    bound.poison()
    failed: list[BaseException] = []

    def work() -> None:
        try:
            for _ in range(50):
                bound.run()
        except BaseException as error:
            failed.append(error)

    in_threads(work, 3)
    assert failed == []
    bound.check()


def in_threads(work: Callable[[], None], count: int) -> None:
    threads = [threading.Thread(target=work) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def test_a_bound_plan_may_be_dropped_while_a_graph_is_captured() -> None:
    bound, kept = Bound("packed"), Bound("shapes")
    kept.poison()
    for _ in range(3):
        bound.run()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        kept.run()
        del bound
        gc.collect()
    graph.replay()
    kept.check()


# Products of sizes on the device: what is prepared for one serves for all that lie alike.


def drawn(dtype: str, rows: int, k: int = 64, n: int = 96, groups: int = 5) -> tuple[Any, ...]:
    kind = getattr(torch, dtype)
    x = torch.randn(rows, k, device="cuda").to(kind)
    w = torch.randn(groups, k, n, device="cuda").to(kind)
    ends = torch.randint(0, rows + 1, (groups,), device="cuda").sort()[0]
    return x, w, ends


def check_rows(x: Any, w: Any, ends: Any, found: Any) -> None:
    begin = 0
    for group, end in enumerate(ends.tolist()):
        truth = x[begin:end].double() @ w[group].double()
        assert (found[begin:end].double() - truth).norm() <= 1e-2 * truth.norm()
        begin = end
    assert bool((found[begin:] == 0).all())


@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
def test_operands_that_move_are_found_where_they_are(dtype: str) -> None:
    held = []
    for _ in range(6):
        x, w, ends = drawn(dtype, 300)
        junk = torch.full((300, 96), NAN, device="cuda", dtype=x.dtype)
        del junk  # the result lies there
        held.append((x, w, ends, ragged_matmul(x, w, ends)))
        check_rows(*held[-1])
        shifted = torch.empty(x.numel() + 1, device="cuda", dtype=x.dtype)[1:].view_as(x)
        check_rows(shifted.copy_(x), w, ends, ragged_matmul(shifted, w, ends))
    for one in held:
        check_rows(*one)


@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
def test_threads_share_what_was_prepared(dtype: str) -> None:
    x, w, ends = drawn(dtype, 300)
    check_rows(x, w, ends, ragged_matmul(x, w, ends))
    torch.cuda.synchronize()
    found: list[Any] = []

    def work() -> None:
        for turn in range(40):
            mine = x * (turn % 4 + 1)
            found.append((mine, ragged_matmul(mine, w, ends)))

    in_threads(work, 3)
    torch.cuda.synchronize()
    assert len(found) == 120
    for mine, result in found[::7]:
        check_rows(mine, w, ends, result)


@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
def test_gradients_come_first_in_a_thread_of_autograds(dtype: str) -> None:
    layer = GroupedLinear(5, 64, 96, device="cuda", dtype=getattr(torch, dtype))
    x, _, ends = drawn(dtype, 300)
    out = layer(x.requires_grad_(), ends)
    above = torch.randn_like(out)
    with warnings.catch_warnings():
        warnings.simplefilter("error", DeviceWarning)
        out.backward(above)
    check_rows(above, layer.weight.detach().transpose(1, 2), ends, x.grad)


@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
def test_lists_that_move_are_found_where_they_are(dtype: str) -> None:
    sizes = np.random.default_rng(1).integers(1, 100, (20, 3)).tolist()
    for turn in range(4):
        a = [torch.randn(m, k, device="cuda").to(getattr(torch, dtype)) for m, n, k in sizes]
        b = [torch.randn(k, n, device="cuda").to(getattr(torch, dtype)) for m, n, k in sizes]
        if turn == 3:  # elsewhere within 16 bytes
            a = [torch.cat((x.new_zeros(1), x.flatten()))[1:].view_as(x) for x in a]
        for x, y, z in zip(a, b, grouped_matmul(a, b), strict=True):
            truth = x.double() @ y.double()
            assert (z.double() - truth).norm() <= 1e-2 * truth.norm()


@pytest.mark.parametrize("precision", [None, "fp32x"])
def test_batches_that_take_turns_are_read_by_their_own_maps(precision: str | None) -> None:
    """Tables are filled anew at each call and may lie where those of the other batch lay."""
    kernel, dtype = ("hopper-split", torch.float32) if precision else ("hopper", torch.bfloat16)
    draw = lambda: [torch.randn(256, 256, device="cuda").to(dtype) for _ in range(4)]  # noqa: E731
    batches = [(draw(), draw()) for _ in range(3)]

    def products(a: list[Any], b: list[Any]) -> Any:
        return torch.stack(tilewright.grouped_matmul(a, b, kernel=kernel, precision=precision))

    first = [products(a, b) for a, b in batches]
    for (a, b), found in zip(batches, first, strict=True):
        truth = torch.stack(a).double() @ torch.stack(b).double()
        assert (found.double() - truth).norm() <= 1e-2 * truth.norm()
    wrong = torch.zeros((), dtype=torch.int64, device="cuda")
    for _ in range(200):
        for (a, b), found in zip(batches, first, strict=True):
            wrong += (products(a, b) != found).any()
    assert int(wrong) == 0


def plain_calls() -> list[Callable[[], Any]]:
    """Calls that are not bound: dense by the vendor and by tables, packed, split, a list."""
    single, half = torch.randn(301, 257, device="cuda"), torch.randn(301, 257, device="cuda").half()
    a, b = operands("one")
    return [
        lambda: matmul(single, single.T),
        lambda: matmul(single, single.T, activation="gelu"),
        lambda: matmul(half, half.T, kernel="hopper"),
        lambda: matmul(single, single.T, precision="fp32x", kernel="hopper-split"),
        lambda: tilewright.grouped_matmul(a, b),
    ]


def test_graphs_of_plain_calls_leave_nothing_when_they_are_dropped() -> None:
    for call in plain_calls():

        def once(call: Callable[[], Any] = call) -> None:
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                call()
            graph.replay()
            torch.cuda.synchronize()

        def reserved() -> int:
            gc.collect()
            torch.cuda.empty_cache()
            return int(torch.cuda.memory_reserved())

        call()
        once()
        before = reserved()
        for _ in range(10):
            once()
        assert reserved() <= before


def test_a_plain_call_that_was_never_made_can_be_captured() -> None:
    tilewright.forget()
    for call in plain_calls():
        truth = call()
        tilewright.forget()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            found = call()
        for _ in range(2):
            torch.cuda.empty_cache()
            graph.replay()
            torch.cuda.synchronize()
            pairs = [(truth, found)] if torch.is_tensor(found) else zip(truth, found, strict=True)
            assert all(torch.equal(x, y) for x, y in pairs)


def test_plans_of_plain_calls_hold_no_memory_of_the_device_but_their_graphs() -> None:
    for call in plain_calls():
        tilewright.forget()
        call()
        gc.collect()
        before = torch.cuda.memory_allocated()
        kept = [call() for _ in range(5)]
        of_results = sum(
            one.untyped_storage().nbytes()
            for result in kept
            for one in ([result] if torch.is_tensor(result) else result[:1])
        )
        gc.collect()
        held = torch.cuda.memory_allocated() - before
        assert held <= of_results + 5 * 512 + fixed._graphs.bytes
        del kept
        tilewright.forget()
        gc.collect()
        assert torch.cuda.memory_allocated() <= before


def test_a_bind_inside_a_capture_is_refused() -> None:
    a, b = operands("one")
    m, n, k = zip(*sizes_of("one"), strict=True)
    plan = plan_grouped(m, n, k, dtype=torch.float32, device="cuda:0")
    plan.bind(a, b)()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph), pytest.raises(DeviceError, match="before the capture"):
        plan.bind(a, b)


def test_a_bound_plan_keeps_the_operands_that_it_reads() -> None:
    drawn = np.random.default_rng(0).integers(256, 512, (40, 3)).tolist()
    for kernel in ("triton_grouped", "cuda_grouped", "hopper-split"):
        a = [torch.randn(m, k, device="cuda") for m, _, k in drawn]
        b = [torch.randn(k, n, device="cuda") for _, n, k in drawn]
        truth = [x.double() @ y.double() for x, y in zip(a, b, strict=True)]
        m, n, k = zip(*drawn, strict=True)
        more = {"precision": "fp32x"} if kernel == "hopper-split" else {}
        plan = plan_grouped(m, n, k, dtype=torch.float32, device="cuda:0")
        run = plan.bind(a, b, kernel=kernel, **more)
        shapes = [x.shape for x in (*a, *b)]
        del a, b
        gc.collect()
        junk = [torch.full(shape, NAN, device="cuda") for shape in shapes]
        for found, right in zip(run(), truth, strict=True):
            assert (found.double() - right).norm() <= 1e-4 * right.norm()
        assert len(junk) == len(shapes)


@pytest.mark.parametrize("given", ["none", "views", "alone"])
def test_what_autograd_saved_of_bound_results_is_known_to_be_overwritten(given: str) -> None:
    sizes = [(3, 4, 5), (1, 7, 2), (6, 2, 9)]
    a = [torch.randn(m, k, device="cuda") for m, _, k in sizes]
    b = [torch.randn(k, n, device="cuda") for _, n, k in sizes]
    whole = torch.zeros(100, device="cuda")
    out = {
        "none": None,
        "views": [whole[30 * i :][: m * n].view(m, n) for i, (m, n, _) in enumerate(sizes)],
        "alone": [torch.zeros(m, n, device="cuda") for m, n, _ in sizes],
    }[given]
    run = plan_grouped(*zip(*sizes, strict=True), device="cuda").bind(a, b, out)
    weights = [torch.randn_like(one).requires_grad_() for one in run()]
    kept = [weight * one for weight, one in zip(weights, run(), strict=True)]
    kept[0].sum().backward()  # before the next run: as it should be
    assert torch.allclose(weights[0].grad, a[0] @ b[0], rtol=1e-4, atol=1e-4)
    again = run()
    for weight, one, product in zip(weights, again, kept, strict=True):
        if product is not kept[0]:
            with pytest.raises(RuntimeError, match="modified by an inplace operation"):
                product.sum().backward()
            assert weight.grad is None
        assert one._version >= 3
