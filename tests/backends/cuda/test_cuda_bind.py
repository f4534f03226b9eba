"""From a proposal to a launch, with no GPU: who steps in for whom, what lives how long, streams."""

from __future__ import annotations

import gc
import sys
import weakref
from contextlib import nullcontext
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.backends.cuda.test_cuda_engines import dense
from tests.support.triton_proof import CUDA_H200
from tilewright.backends.cuda import choose, guards
from tilewright.backends.cuda.machine import arrays, driver, nvrtc, placing, triton_launch
from tilewright.backends.cuda.work import Prepared, Work
from tilewright.errors import BuildError, DeviceError, DeviceWarning
from tilewright.facts.verdict import Proposal


class Pretender:
    """A family of kernels that takes everything and cannot always be bound."""

    def __init__(
        self, name: str, seconds: float, fails: Exception | None = None, scratch: int = 0
    ) -> None:
        self.name, self.seconds, self.fails, self.scratch = name, seconds, fails, scratch

    def why_not(self, work: Work, device: Any) -> None:
        """It takes everything."""

    def least(self, work: Work, device: Any) -> float:
        """Nothing is known before."""
        return 0.0

    def propose(self, work: Work, device: Any) -> Proposal:
        """As predicted."""
        return Proposal(self.name, device, self.seconds, "", self.scratch, decisions=())

    def bind(self, proposal: Proposal, work: Work) -> Prepared:
        """Nothing to launch."""
        if self.fails is not None:
            raise self.fails
        return Prepared(lambda stream: None, 1)


NOT_COMPILED = BuildError("hopper_multiply.cu for sm_90a: error: no such instruction\nand more")


def bind_with(
    monkeypatch: pytest.MonkeyPatch,
    *pretenders: Pretender,
    wanted: str | None = None,
    often: bool = False,
) -> choose.Bound:
    """What engines.bind makes of these families."""
    torch = pytest.importorskip("torch")
    monkeypatch.setattr(driver, "missing", lambda: None)
    monkeypatch.setattr(choose, "engines", lambda: pretenders)
    monkeypatch.setattr(choose, "guarded", lambda enqueue, ordinal, memory: enqueue)
    monkeypatch.setattr(nvrtc, "enter", lambda ordinal: False)
    monkeypatch.setattr(torch.cuda, "device", lambda ordinal: nullcontext())
    return choose.bind(dense(3, 4, 5, "float32"), CUDA_H200, wanted, often=often)


def test_an_engine_that_cannot_be_compiled_or_loaded_gives_way_and_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    first = Pretender("first", 1.0, NOT_COMPILED)
    second = Pretender("second", 2.0, DeviceError("launch of nothing: INVALID_IMAGE"))
    with pytest.warns(DeviceWarning) as said:
        found = bind_with(monkeypatch, second, Pretender("third", 3.0), first)
    assert found.engine == "third"
    assert [str(one.message) for one in said] == [
        "cuda:0: first cannot be used here (hopper_multiply.cu for sm_90a: error: no such"
        " instruction); third runs the batch",
        "cuda:0: second cannot be used here (launch of nothing: INVALID_IMAGE); third runs the"
        " batch",
    ]


def test_where_every_engine_fails_the_best_ones_error_is_raised(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    others = Pretender("second", 2.0, DeviceError("another"))
    with pytest.raises(BuildError, match="no such instruction"):
        bind_with(monkeypatch, others, Pretender("first", 1.0, NOT_COMPILED))


def test_an_engine_asked_for_by_name_does_not_give_way(monkeypatch: pytest.MonkeyPatch) -> None:
    able, unable = Pretender("able", 2.0), Pretender("unable", 1.0, NOT_COMPILED)
    with pytest.raises(BuildError, match="no such instruction"):
        bind_with(monkeypatch, able, unable, wanted="unable")


@pytest.mark.parametrize("often", [False, True])
def test_only_what_runs_often_goes_through_a_graph(
    often: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []

    def through_a_graph(prepared: Prepared, ordinal: int) -> Any:
        asked.append(ordinal)
        return prepared.enqueue

    monkeypatch.setattr(choose, "_few_calls", through_a_graph)
    bind_with(monkeypatch, Pretender("one", 1.0), often=often)
    assert asked == [0] * often


def test_an_engine_without_memory_gives_way_to_one_that_needs_less(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    torch = pytest.importorskip("torch")
    greedy = Pretender("greedy", 1.0, torch.OutOfMemoryError("no room"), scratch=4096)
    with pytest.warns(DeviceWarning, match="greedy needs 4096 bytes of scratch.*; modest runs"):
        assert bind_with(monkeypatch, Pretender("modest", 2.0), greedy).engine == "modest"


@pytest.mark.parametrize("had_context", [True, False])
def test_a_thread_that_the_driver_does_not_know_yet_is_made_known_once(
    had_context: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried: list[int] = []

    def enqueue(stream: int) -> None:
        tried.append(stream)
        if len(tried) == 1:
            raise DeviceError("launch: CUDA_ERROR_INVALID_CONTEXT")

    stand_in = SimpleNamespace(
        _C=SimpleNamespace(_cuda_getDevice=lambda: 0, _cuda_getCurrentRawStream=lambda ordinal: 7),
        cuda=SimpleNamespace(
            Event=lambda: SimpleNamespace(record=lambda: None),
            is_current_stream_capturing=lambda: False,
        ),
    )
    monkeypatch.setattr(driver, "need", lambda: stand_in)
    monkeypatch.setattr(nvrtc, "enter", lambda ordinal: not had_context)
    run = guards.guarded(enqueue, 0)
    if had_context:
        with pytest.raises(DeviceError, match="INVALID_CONTEXT"):
            run()
    else:
        run()
        assert tried == [7, 7]


def test_a_source_that_was_refused_is_not_compiled_again(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def refuse(source: str, *given: Any) -> bytes:
        asked.append(source)
        raise NOT_COMPILED

    monkeypatch.setattr(nvrtc, "_refused", {})
    monkeypatch.setattr(nvrtc, "_cache_path", lambda *given: None)
    monkeypatch.setattr(nvrtc, "compiled", refuse)
    for _ in range(2):
        with pytest.raises(BuildError, match="no such instruction"):
            nvrtc.cubin("hopper_multiply", (("BF16", 1),), "sm_90a")
    assert asked == ["hopper_multiply"]


def test_a_kernel_that_triton_cannot_compile_is_a_build_error() -> None:
    errors = pytest.importorskip("triton.errors", reason="Triton is not installed")

    class Broken:
        __name__ = "grouped_tiles"

        def warmup(self, *given: Any, **options: Any) -> None:
            raise errors.TritonError("at 3:4: no such name\nand more")

    with pytest.raises(BuildError, match=r"kernel 'grouped_tiles': at 3:4: no such name$"):
        triton_launch.placed(triton_launch.Task(Broken(), 1, (), {}, {}), 0)


def test_a_table_is_made_anew_for_the_addresses_of_each_run() -> None:
    torch = pytest.importorskip("torch")
    work = dense(3, 4, 5, "float32")
    draft = placing.Draft(placing.places(work, 4096))
    where = placing.sources(work)
    draft.add(np.arange(6, dtype=np.int32))
    at = draft.add(np.array([[7, int(work.b.address[0]) + 24, 9]]), (1, where.b))
    scratch = np.array([where.scratch])
    panel = draft.add(np.array([4096 + 512, 1]), (0, np.append(scratch, -1)))
    seen: list[Any] = []

    def launch(stream: int, table: Any, held: Any) -> None:
        seen.append((stream, table.tolist(), held.data_ptr()))

    kernels = placing.Kernels(draft.template(640), launch, 1)
    assert at % 128 == panel % 128 == 0
    for by in (0, 1 << 33):
        elsewhere = placing.places(work) + by
        placing.moving(kernels, triton_launch.INTERPRETED).run(5, elsewhere)
        stream, table, held = seen[-1]
        assert stream == 5
        assert table[at // 8 : at // 8 + 3] == [7, int(work.b.address[0]) + by + 24, 9]
        assert table[panel // 8 : panel // 8 + 2] == [held + 512, 1]
        assert np.array(table[:3]).view(np.int32).tolist() == [*range(6)]
    alive = torch.zeros(1)
    bound = placing.bound(kernels, replace(work, ordinal=triton_launch.INTERPRETED, keep=(alive,)))
    gone = weakref.ref(alive)
    del alive
    gc.collect()
    bound.enqueue(1)
    assert gone() is not None  # a bound plan keeps what it reads


def test_cupys_current_stream_is_that_of_the_arrays_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    entered: list[Any] = []

    class Current:
        """A GPU that is CuPy's current one within a block."""

        number = 0

        def __init__(self, ordinal: int) -> None:
            self.ordinal = ordinal

        def __enter__(self) -> None:
            self.before, Current.number = Current.number, self.ordinal

        def __exit__(self, *given: Any) -> None:
            Current.number = self.before

    def enter(one: Any) -> Any:
        entered.append(one)
        return nullcontext()

    stream = SimpleNamespace
    cuda = SimpleNamespace(
        Device=Current, get_current_stream=lambda: stream(ptr=100 + Current.number)
    )
    stand_in = SimpleNamespace(
        _C=SimpleNamespace(_cuda_getCurrentRawStream=lambda ordinal: 7),
        device=lambda *given: given,
        cuda=SimpleNamespace(
            stream=enter,
            ExternalStream=lambda pointer, device: (pointer, device),
        ),
    )
    monkeypatch.setitem(sys.modules, "cupy", SimpleNamespace(cuda=cuda))
    monkeypatch.setattr(driver, "need", lambda: stand_in)
    array = type("ndarray", (), {"__module__": "cupy"})()
    with arrays.stream_of(array, 1):
        assert entered == [(101, ("cuda", 1))]
    assert Current.number == 0
