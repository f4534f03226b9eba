"""What a launch is timed by, with a queue and events that are made up."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pytest

from tilewright.backends.opencl.launch import clocked, other_queues

pytest.importorskip("pyopencl", reason="PyOpenCL is not installed")


def event(start: int, end: int) -> Any:
    return SimpleNamespace(profile=SimpleNamespace(start=start, end=end))


@pytest.mark.parametrize(
    ("spans", "seconds"),
    [
        ([], None),
        ([(10, 10)], 0.0),
        ([(1000, 3500)], 2.5e-6),
        ([(5, 10), (10**9, 2 * 10**9)], 1.000000005),
    ],
)
def test_events_count_their_nanoseconds_and_nothing_between_them(
    spans: list[tuple[int, int]], seconds: float | None
) -> None:
    ended: list[int] = []
    queue = SimpleNamespace(finish=lambda: ended.append(len(ended)))
    session: Any = SimpleNamespace(lock=threading.RLock(), queue=queue)
    found = clocked(session, lambda: [event(*span) for span in spans])
    assert found.events == (None if seconds is None else pytest.approx(seconds, rel=1e-12))
    assert 0 <= found.wall < 60
    assert len(ended) == 2, "the queue is empty before, and all is done after"


def test_queues_of_others_are_each_named_once() -> None:
    own, one, two = (SimpleNamespace(int_ptr=number) for number in (1, 2, 3))
    queues = {"a": one, "b": SimpleNamespace(int_ptr=2), "c": own, "bias": None, "d": two}
    views: Any = {name: SimpleNamespace(queue=queue) for name, queue in queues.items()}
    session: Any = SimpleNamespace(queue=own)
    assert [queue.int_ptr for queue in other_queues(session, views)] == [2, 3]
