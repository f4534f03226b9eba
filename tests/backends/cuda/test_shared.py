"""Memory that launches on several streams read: told by a torch of our own; on a GPU by torch's."""

from __future__ import annotations

import gc
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest

import tilewright
from tests.support.gpu_arrays import why_no_gpu
from tilewright.backends.cuda import guards
from tilewright.backends.cuda.machine import driver, nvrtc
from tilewright.backends.cuda.machine.shared import Shared

on_gpu = [
    pytest.mark.gpu,
    pytest.mark.skipif(why_no_gpu() is not None, reason=f"no GPU: {why_no_gpu()}"),
]


class Torch:
    """Streams by their handles; what is waited for and who is told to use memory is noted."""

    def __init__(self) -> None:
        self.now, self.captured = 1, False
        self.said: list[tuple[Any, ...]] = []
        stream = SimpleNamespace(wait_event=lambda event: self.said.append(("waits", self.now)))
        self._C = SimpleNamespace(
            _cuda_getDevice=lambda: 0, _cuda_getCurrentRawStream=lambda ordinal: self.now
        )
        self.cuda = SimpleNamespace(
            Event=lambda: SimpleNamespace(record=lambda: self.said.append(("filled", self.now))),
            current_stream=lambda ordinal: stream,
            device=lambda ordinal: nullcontext(),
            is_current_stream_capturing=lambda: self.captured,
        )

    def memory(self, name: str) -> Any:
        """A tensor that notes which streams use it."""
        return SimpleNamespace(record_stream=lambda _: self.said.append((name, self.now)))


@pytest.fixture
def torch_(monkeypatch: pytest.MonkeyPatch) -> Torch:
    """In the place of torch, for what is asked of streams."""
    made = Torch()
    monkeypatch.setattr(driver, "need", lambda: made)
    monkeypatch.setattr(nvrtc, "enter", lambda ordinal: False)
    return made


def test_each_other_stream_waits_once_and_torch_is_told_of_it(torch_: Torch) -> None:
    shared = Shared((torch_.memory("table"), None, torch_.memory("scratch")), 0)
    for stream in (1, 2, 2, 1, 3):
        torch_.now = stream
        shared.meet(stream)
    others = [(what, stream) for stream in (2, 3) for what in ("waits", "table", "scratch")]
    assert torch_.said == [("filled", 1), *others]


def test_a_capture_waits_for_nothing_and_is_not_remembered(torch_: Torch) -> None:
    shared = Shared((torch_.memory("table"),), 0)
    torch_.now, torch_.captured = 2, True
    shared.meet(2)
    assert torch_.said == [("filled", 1)]
    torch_.captured = False
    shared.meet(2)
    assert torch_.said == [("filled", 1), ("waits", 2), ("table", 2)]


def test_what_is_made_in_a_capture_has_no_event(torch_: Torch) -> None:
    torch_.captured = True
    shared = Shared((torch_.memory("table"),), 0)
    torch_.now, torch_.captured = 2, False
    shared.meet(2)
    assert torch_.said == [("table", 2)]


def test_a_bound_launch_tells_torch_which_streams_use_its_memory(torch_: Torch) -> None:
    launched = torch_.said.append
    run = guards.guarded(
        lambda stream: launched(("launch", stream)), 0, (torch_.memory("table"), None)
    )
    for stream in (1, 2, 2):
        torch_.now = stream
        run()
    assert torch_.said == [
        ("filled", 1),
        ("launch", 1),
        ("waits", 2),
        ("table", 2),
        ("launch", 2),
        ("launch", 2),
    ]


class TestOnAGpu:
    """Torch's own allocator, streams and graphs."""

    pytestmark = on_gpu

    def test_a_bound_plan_that_is_dropped_is_done_on_another_stream_first(self) -> None:
        torch: Any = pytest.importorskip("torch")
        given = [torch.randn(259, 301, device="cuda").bfloat16() for _ in range(40)]
        others = [torch.randn(301, 187, device="cuda").bfloat16() for _ in range(40)]
        truth = [a.double() @ b.double() for a, b in zip(given, others, strict=True)]
        stream = torch.cuda.Stream()
        torch.cuda.synchronize()
        for _ in range(10):
            plan = tilewright.plan_grouped([259] * 40, [187] * 40, [301] * 40, dtype="bfloat16",
                                           device="cuda")  # fmt: skip
            run = plan.bind(given, others)
            torch.cuda.synchronize()
            with torch.cuda.stream(stream):
                torch.cuda._sleep(2_000_000)
                found = run()
            del run, plan
            tilewright.forget()
            gc.collect()
            junk = [torch.full((1 << 18,), 1 << 60, device="cuda") for _ in range(8)]
            torch.cuda.synchronize()
            del junk
            for made, right in zip(found, truth, strict=True):
                assert (made.double() - right).norm() <= 1e-2 * right.norm()

    @pytest.mark.parametrize("captured", [False, True])
    def test_what_an_8_bit_product_adds_to_its_arguments_is_there_on_every_stream(
        self, captured: bool
    ) -> None:
        torch: Any = pytest.importorskip("torch")
        a, b = (torch.randint(-9, 9, (256, 256), device="cuda", dtype=torch.int8) for _ in "ab")
        truth = a.double() @ b.double()
        tilewright.matmul(a, b.t().contiguous().t())  # compiled
        b = b.t().contiguous().t()
        for _ in range(20):
            tilewright.forget()
            torch.cuda.synchronize()
            if captured:
                graph = torch.cuda.CUDAGraph()
                with torch.cuda.graph(graph):
                    found = tilewright.matmul(a, b)
                later = tilewright.matmul(a, b)  # reads nothing that only a replay fills
                tilewright.forget()
                junk = [torch.full((64,), 1 << 60, device="cuda") for _ in range(64)]
                graph.replay()
                del junk
            else:
                with torch.cuda.stream(torch.cuda.Stream()):
                    torch.cuda._sleep(1_000_000)
                    found = tilewright.matmul(a, b)
                with torch.cuda.stream(torch.cuda.Stream()):
                    later = tilewright.matmul(a, b)
            torch.cuda.synchronize()
            assert torch.equal(found.double(), truth)
            assert torch.equal(later.double(), truth)
