"""Launches of several kernels become one graph, told by a driver of our own; needs no GPU."""

from __future__ import annotations

import gc
import sys
import threading
from collections.abc import Iterator
from types import ModuleType, SimpleNamespace
from typing import Any, ClassVar

import pytest

from tilewright.backends.cuda.machine import nvrtc, replay, streams
from tilewright.errors import DeviceError, DeviceWarning

USERS, OTHERS, OURS = 7, 8, 99  # streams
REFUSED = ("StreamCreate", "StreamBeginCapture", "StreamEndCapture", "GraphInstantiate")


class Status(int):
    """A driver's answer: false where it went well."""

    @property
    def value(self) -> int:
        """Its number."""
        return int(self)

    @property
    def name(self) -> str:
        """As the driver's enumeration calls it."""
        return "CAPTURE_REFUSED" if self else "SUCCESS"


class Driver:
    """The calls of `cuda.bindings.driver`, written down; `refused` is the one that fails."""

    CUstreamCaptureMode = SimpleNamespace(CU_STREAM_CAPTURE_MODE_RELAXED="relaxed")
    ANSWERS: ClassVar[dict[str, Any]] = {
        "cuStreamCreate": OURS,
        "cuThreadExchangeStreamCaptureMode": "strict",
        "cuStreamEndCapture": "recorded",
        "cuGraphInstantiate": "graph",
    }

    def __init__(self, refused: str = "") -> None:
        self.said: list[tuple[Any, ...]] = []
        self.refused = refused

    def __getattr__(self, name: str) -> Any:
        def call(*given: Any) -> tuple[Any, ...]:
            self.said.append((name, *given))
            return (Status(900 * (name == self.refused)), *values)

        values = [self.ANSWERS[name]] if name in self.ANSWERS else []
        return call


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    """No streams of earlier tests."""
    replay._streams.clear()
    yield
    replay._streams.clear()


class Run:
    """A launch of kernels through graphs; `is_captured` is the caller's own capture."""

    def __init__(self, refused: str = "") -> None:
        self.driver, self.is_captured = Driver(refused), False
        self.run = replay.replayed(self.enqueue, 0, self.driver, lambda: self.is_captured)

    def enqueue(self, stream: int) -> None:
        """What launches the kernels."""
        self.driver.said.append(("kernels", stream))

    def said(self, stream: int = USERS) -> list[tuple[Any, ...]]:
        """What one more run asks of the driver."""
        self.driver.said.clear()
        self.run(stream)
        return list(self.driver.said)


def test_the_first_run_launches_the_second_records_too_the_others_replay() -> None:
    given = Run()
    assert given.said() == [("kernels", USERS)]
    assert given.said() == [
        ("kernels", USERS),
        ("cuThreadExchangeStreamCaptureMode", "relaxed"),
        ("cuStreamCreate", 1),
        ("cuStreamBeginCapture", OURS, "relaxed"),
        ("kernels", OURS),
        ("cuStreamEndCapture", OURS),
        ("cuGraphInstantiate", "recorded", 0),
        ("cuGraphDestroy", "recorded"),
        ("cuThreadExchangeStreamCaptureMode", "strict"),
    ]
    for stream in (USERS, OTHERS, USERS):
        assert given.said(stream) == [("cuGraphLaunch", "graph", stream)]


def test_inside_a_capture_of_the_caller_kernels_are_launched_and_nothing_is_recorded() -> None:
    given = Run()
    given.is_captured = True
    for _ in range(3):
        assert given.said() == [("kernels", USERS)]
    given.is_captured = False
    assert given.said() == [("kernels", USERS)]
    given.said()
    assert given.said() == [("cuGraphLaunch", "graph", USERS)]
    given.is_captured = True
    assert given.said() == [("kernels", USERS)]


def test_one_stream_records_for_all() -> None:
    given = Run()
    given.said()
    given.said()
    other = Run()
    other.said()
    assert ("cuStreamCreate", 1) not in other.said()


@pytest.mark.parametrize("refused", [f"cu{name}" for name in REFUSED])
def test_what_cannot_be_recorded_is_launched_as_before_and_said_once(refused: str) -> None:
    given = Run(refused)
    given.said()
    with pytest.warns(DeviceWarning, match=r"cuda:0: .*CAPTURE_REFUSED; its kernels are launched"):
        given.said()
    modes = [call[1] for call in given.driver.said if call[0].endswith("CaptureMode")]
    assert modes == ["relaxed", "strict"]
    for _ in range(3):
        assert given.said() == [("kernels", USERS)]


def test_a_capture_is_ended_where_a_kernel_fails() -> None:
    given = Run()

    def failing(stream: int) -> None:
        given.enqueue(stream)
        if stream == OURS:
            raise DeviceError("launch: INVALID")

    given.run = replay.replayed(failing, 0, given.driver, lambda: False)
    given.said()
    with pytest.warns(DeviceWarning, match="launch: INVALID"):
        assert ("cuStreamEndCapture", OURS) in given.said()
    assert given.said() == [("kernels", USERS)]


def test_a_replay_that_fails_is_an_error() -> None:
    given = Run("cuGraphLaunch")
    given.said()
    given.said()
    with pytest.raises(DeviceError, match="launch of a graph of kernels: CAPTURE_REFUSED"):
        given.said()


def test_a_graph_goes_with_its_launch_and_hurts_no_capture() -> None:
    given = Run()
    given.said()
    given.said()
    said = given.driver.said
    del given
    gc.collect()
    assert said[-3:] == [
        ("cuThreadExchangeStreamCaptureMode", "relaxed"),
        ("cuGraphExecDestroy", "graph"),
        ("cuThreadExchangeStreamCaptureMode", "strict"),
    ]


def test_a_stream_at_the_side_goes_without_hurting_a_capture(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    driver = Driver()
    torch = SimpleNamespace(
        cuda=SimpleNamespace(ExternalStream=lambda handle, device: (handle, device))
    )
    monkeypatch.setattr(nvrtc, "is_cuda", lambda ordinal: True)
    bindings = ModuleType("cuda.bindings")
    bindings.driver = driver  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "cuda.bindings", bindings)
    side = streams._Side(torch, 1)
    assert side.stream == (OURS, 1)
    driver.said.clear()
    del side
    gc.collect()
    assert driver.said == [
        ("cuThreadExchangeStreamCaptureMode", "relaxed"),
        ("cuStreamDestroy", OURS),
        ("cuThreadExchangeStreamCaptureMode", "strict"),
    ]


def test_nothing_is_launched_by_another_thread_while_kernels_are_recorded() -> None:
    given = Run()
    recording, ended = threading.Event(), threading.Event()
    recorded: list[int] = []
    found: list[tuple[int, bool]] = []

    def enqueue(stream: int) -> None:
        if stream == OURS:
            recording.set()
            threading.Event().wait(0.05)  # another thread may come, and must not get through
            ended.set()
            recorded.append(stream)
        else:
            found.append((stream, recording.is_set() and not ended.is_set()))

    given.run = replay.replayed(enqueue, 0, given.driver, lambda: given.is_captured)
    given.run(USERS)
    thread = threading.Thread(target=given.run, args=(USERS,))
    thread.start()
    assert recording.wait(600)
    given.is_captured = True  # the kernels themselves, as inside the caller's capture
    given.run(OTHERS)
    thread.join()
    assert recorded == [OURS]
    assert {stream for stream, _ in found} == {USERS, OTHERS}
    assert not any(was_recorded for _, was_recorded in found)


def test_no_two_threads_launch_a_graph_at_once() -> None:
    given = Run()
    given.said()
    given.said()
    inside, most = [0], [0]

    def launch(graph: str, stream: int) -> Any:
        inside[0] += 1
        most[0] = max(most[0], inside[0])
        threading.Event().wait(0.002)
        inside[0] -= 1
        return (Status(0),)

    given.driver.__dict__["cuGraphLaunch"] = launch
    given.run = replay.replayed(given.enqueue, 0, given.driver, lambda: False)
    given.said()
    given.said()
    threads = [threading.Thread(target=given.run, args=(USERS,)) for _ in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == [1]
