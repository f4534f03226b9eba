"""One product again and again, by a graph that takes new addresses: told by a driver of our own.

What needs a GPU is marked so: streams, captures, threads, and memory that is given back.
"""

from __future__ import annotations

import gc
import sys
import threading
from types import SimpleNamespace
from typing import Any

import pytest

import tilewright
from tests.backends.cuda.test_cuda_replay import Driver, Status
from tests.support.gpu_arrays import why_no_gpu
from tilewright import matmul
from tilewright.backends.cuda.machine import fixed, nvrtc, replay
from tilewright.errors import DeviceError, DeviceWarning

torch: Any = pytest.importorskip("torch")
on_gpu = [
    pytest.mark.gpu,
    pytest.mark.skipif(why_no_gpu() is not None, reason=f"no GPU: {why_no_gpu()}"),
]


class Steers(Driver):
    """That driver, with graphs of one first node."""

    def __getattr__(self, name: str) -> Any:
        if name == "cuGraphGetRootNodes":
            return lambda graph, most: (Status(0), ["first"][:most], self.many)
        if name == "cuGraphKernelNodeGetParams":
            return lambda node: (Status(0), SimpleNamespace(kernelParams=0))
        return super().__getattr__(name)

    many = 1


@pytest.fixture
def driver() -> Any:
    """No streams of earlier tests."""
    replay._streams.clear()
    yield Steers()
    replay._streams.clear()


def test_a_launch_of_a_steered_graph_is_two_calls_of_the_driver(driver: Any) -> None:
    arguments = SimpleNamespace(pointer=77)
    graph = replay.Graph(lambda stream: None, 0, driver, arguments)
    driver.said.clear()
    graph.launch(7)
    (steer, handle, node, params), launch = driver.said
    assert (steer, handle, node) == ("cuGraphExecKernelNodeSetParams", "graph", "first")
    assert params.kernelParams == 77
    assert launch == ("cuGraphLaunch", "graph", 7)
    driver.said.clear()
    del graph
    gc.collect()
    ended = [name for name, *_ in driver.said]
    assert "cuGraphExecDestroy" in ended
    assert "cuGraphDestroy" in ended


def test_a_graph_that_two_kernels_begin_is_refused_and_destroyed(driver: Any) -> None:
    driver.many = 2
    with pytest.raises(DeviceError, match="2 begin it"):
        replay.Graph(lambda stream: None, 0, driver, SimpleNamespace(pointer=0))
    assert ("cuGraphDestroy", "recorded") in driver.said


class Recorded:
    """Stands for a graph; notes what it launches."""

    def __init__(self, launched: list[Any], size: int = 1000) -> None:
        self.launched, self.bytes = launched, size

    def launch(self, stream: int, a: int, b: int, c: int) -> None:
        """Note it."""
        self.launched.append((stream, a, b, c))


class Host:
    """`Again` without a GPU: what ran by a table, what by a graph."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, record: Any = None) -> None:
        self.captured, self.by_table, self.by_graph = False, [], []
        stand_in = SimpleNamespace(
            _C=SimpleNamespace(
                _cuda_getCurrentRawStream=lambda ordinal: 7,
                _cuda_isCurrentStreamCapturing=lambda: self.captured,
            ),
            OutOfMemoryError=torch.OutOfMemoryError,
        )
        monkeypatch.setitem(sys.modules, "torch", stand_in)
        run = lambda stream, places: self.by_table.append((stream, *places.tolist()))  # noqa: E731
        self.again = fixed.Again(run, 0, record or (lambda: Recorded(self.by_graph)))


def test_the_third_run_records_and_captures_take_a_table(monkeypatch: pytest.MonkeyPatch) -> None:
    host = Host(monkeypatch)
    host.captured = True
    for _ in range(5):
        host.again(1, 2, 3)
    host.captured = False
    for _ in range(3):
        host.again(1, 2, 3)
    assert host.by_table == [(7, 1, 2, 3, 0)] * 8
    assert host.by_graph == []
    host.again(4, 5, 6)
    assert host.by_graph == [(7, 4, 5, 6)]
    host.captured = True
    host.again(4, 5, 6)
    assert len(host.by_table) == 9
    host.captured = False
    tilewright.forget()
    for _ in range(3):  # forgotten: recorded anew by and by
        host.again(1, 2, 3)
    host.again(7, 8, 9)
    assert host.by_graph == [(7, 4, 5, 6), (7, 7, 8, 9)]


def test_a_plan_that_is_dropped_drops_its_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    tilewright.forget()
    host = Host(monkeypatch)
    before = len(fixed._graphs)
    for _ in range(3):
        host.again(1, 2, 3)
    assert len(fixed._graphs) == before + 1
    del host.again
    gc.collect()
    assert len(fixed._graphs) == before


def test_where_nothing_can_be_recorded_tables_go_on_and_it_is_said_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse() -> Any:
        raise DeviceError("graph of kernels: CAPTURE_REFUSED")

    host = Host(monkeypatch, refuse)
    host.again(1, 2, 3)
    host.again(1, 2, 3)
    with pytest.warns(DeviceWarning, match="CAPTURE_REFUSED"):
        host.again(1, 2, 3)
    for _ in range(5):
        host.again(1, 2, 3)
    assert len(host.by_table) == 8


def test_a_thread_that_the_driver_does_not_know_is_made_known(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    known = []

    class Strange(Recorded):
        def launch(self, *given: Any) -> None:
            if not known:
                raise DeviceError("launch: INVALID_CONTEXT")
            super().launch(*given)

    launched: list[Any] = []
    host = Host(monkeypatch, lambda: Strange(launched))
    monkeypatch.setattr(nvrtc, "enter", lambda ordinal: not known and not known.append(ordinal))
    for _ in range(4):
        host.again(1, 2, 3)
    assert launched == [(7, 1, 2, 3)]


WAYS: dict[str, tuple[str, dict[str, Any]]] = {
    "split": ("float32", {"precision": "fp32x", "kernel": "hopper-split"}),
    "packed": ("bfloat16", {"kernel": "hopper"}),
    "tiles": ("float32", {"kernel": "triton_grouped"}),
}


def right(a: Any, b: Any, found: Any) -> bool:
    truth = a.double() @ b.double()
    return bool((found.double() - truth).norm() <= 1e-2 * truth.norm())


def operands(way: str) -> tuple[Any, Any]:
    draw = lambda m, n: torch.randn(m, n, device="cuda").to(getattr(torch, WAYS[way][0]))  # noqa: E731
    return draw(259, 301), draw(301, 187)


class TestOnAGpu:
    """The driver's own graphs."""

    pytestmark = on_gpu

    @pytest.mark.parametrize("way", WAYS)
    def test_results_are_right_wherever_operands_lie(self, way: str) -> None:
        tilewright.forget()
        kept = []
        for _ in range(12):
            a, b = operands(way)
            kept.append((a, b, matmul(a, b, **WAYS[way][1])))
        assert len(fixed._graphs) == 1
        assert all(right(*one) for one in kept)
        out = torch.full_like(kept[0][2], float("nan"))
        assert matmul(*kept[3][:2], out=out, **WAYS[way][1]) is out
        assert torch.equal(out, kept[3][2])

    @pytest.mark.parametrize("way", WAYS)
    def test_streams_take_turns_and_memory_is_kept_until_they_are_done(self, way: str) -> None:
        options = WAYS[way][1]
        streams = [torch.cuda.Stream() for _ in range(3)]
        given = [operands(way) for _ in range(6)]
        truth = [matmul(a, b, **options) for a, b in given]
        wrong = torch.zeros((), dtype=torch.int64, device="cuda")
        torch.cuda.synchronize()
        for turn in range(60):
            stream, one = streams[turn % 3], turn % 6
            with torch.cuda.stream(stream):
                if turn % 9 == 0:
                    torch.cuda._sleep(200_000)
                found = matmul(*given[one], **options)
                wrong += (found != truth[one]).any()
            if turn % 20 == 19:
                tilewright.forget()
                junk = [torch.full((1 << 20,), float("nan"), device="cuda") for _ in range(4)]
                del junk
        torch.cuda.synchronize()
        assert int(wrong) == 0

    @pytest.mark.parametrize("way", WAYS)
    def test_a_capture_after_the_graph_holds_what_it_reads(self, way: str) -> None:
        a, b = operands(way)
        for _ in range(5):
            matmul(a, b, **WAYS[way][1])
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            found = matmul(a, b, **WAYS[way][1])
        tilewright.forget()
        a.mul_(2)
        graph.replay()
        assert right(a, b, found)

    @pytest.mark.parametrize("way", WAYS)
    def test_threads_share_a_graph(self, way: str) -> None:
        given = [operands(way) for _ in range(4)]
        torch.cuda.synchronize()  # streams of their own do not wait for the one that draws these
        found: dict[int, Any] = {}

        def work(one: int) -> None:
            with torch.cuda.stream(torch.cuda.Stream()):
                found[one] = [matmul(*given[one], **WAYS[way][1]) for _ in range(25)]

        threads = [threading.Thread(target=work, args=(one,)) for one in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        torch.cuda.synchronize()
        for one, made in found.items():
            assert all(right(*given[one], each) for each in made)

    @pytest.mark.parametrize("way", WAYS)
    def test_threads_that_meet_a_shape_together_get_their_own_results(self, way: str) -> None:
        """Each plans it, and one plan is kept: that of whoever is done first."""
        given = [operands(way) for _ in range(4)]
        torch.cuda.synchronize()
        for _ in range(60):
            tilewright.forget()
            found = together(given, WAYS[way][1])
            torch.cuda.synchronize()
            for one, made in found.items():
                assert all(right(*given[one], each) for each in made)


def together(given: list[Any], options: dict[str, Any]) -> dict[int, Any]:
    """What threads, a pair of operands and a stream each, compute from the same moment on."""
    found: dict[int, Any] = {}
    start = threading.Barrier(len(given))

    def work(one: int) -> None:
        with torch.cuda.stream(torch.cuda.Stream()):
            start.wait()
            found[one] = [matmul(*given[one], **options) for _ in range(5)]

    threads = [threading.Thread(target=work, args=(one,)) for one in range(len(given))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == len(given)
    return found
