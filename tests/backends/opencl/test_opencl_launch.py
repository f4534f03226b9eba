"""What a launch is timed by, with a queue and events that are made up."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pytest

from tests.support import made_up
from tilewright import remember
from tilewright.backends import backends
from tilewright.backends.opencl import grouped_launch, runtime
from tilewright.backends.opencl.executable import Executable
from tilewright.backends.opencl.launch import clocked, other_queues
from tilewright.engines.dense import plan_kernel
from tilewright.tuning.trial import Shape

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


def test_nine_hundred_plans_and_kernels_of_batches_stay_ready_to_launch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """By what a shelf counts for each; half as many would be made anew in a loop over shapes."""
    device = made_up.TWO_CORES
    kernel = next(k for k in backends()["opencl"].kernels(device) if k.name == "naive")
    plan = plan_kernel(Shape(64, 64, 64).problem(), device, kernel)
    made: Any = SimpleNamespace(set_arg=lambda index, value: None)
    monkeypatch.setattr("tilewright.backends.opencl.executable.kernel_of", lambda *given: made)
    found = Executable(SimpleNamespace(device=device), plan)  # type: ignore[arg-type]
    for shelf, size in (
        (runtime.executables, found.bytes),
        (runtime.kernels, grouped_launch._KERNEL_BYTES),
    ):
        assert size > 1 << 10
        assert 900 < shelf.most // (size + remember._ENTRY) < 1100
