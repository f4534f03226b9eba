"""When a bound batch waits, what it flushes and what it keeps: with a queue that only counts."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pytest

from tilewright.backends.opencl.grouped_launch import Bound

pytest.importorskip("pyopencl", reason="PyOpenCL is not installed")


class Queue:
    """A session and its queue; what was asked of them, in order."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.held: list[tuple[Any, Any]] = []
        self.lock, self.begun, self.queue = threading.RLock(), set[Any](), self

    def turn(self) -> Any:
        return self.lock

    def flush(self) -> None:
        self.asked.append("flush")

    def finish(self) -> None:
        self.asked.append("finish")

    def hold(self, event: Any, what: Any) -> None:
        self.held.append((event, what))


def bound(monkeypatch: pytest.MonkeyPatch, sizes: list[int], *, wait: bool) -> tuple[Bound, Queue]:
    """A batch of launches of these sizes, whose events are their sizes."""
    monkeypatch.setattr(Bound, "_enqueue", lambda self, launch, arguments: launch.global_size[0])
    launches: Any = [(SimpleNamespace(global_size=(size, 1)), []) for size in sizes]
    session: Any = Queue()
    return Bound(session, launches, "tables", wait=wait), session


@pytest.mark.parametrize("wait", [True, False])
@pytest.mark.parametrize("sizes", [[], [0], [3], [3, 0, 5]])
def test_whoever_writes_the_hosts_memory_waits_and_others_keep_what_kernels_read(
    sizes: list[int], wait: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Launches of nothing are left out, and where none is left there is nothing to wait for."""
    run, session = bound(monkeypatch, sizes, wait=wait)
    real = [size for size in sizes if size]
    run()
    assert session.asked == ["flush", *(["finish"] if wait and real else [])]
    if wait or not real:
        assert session.held == []
    else:
        ((event, (held, launches)),) = session.held
        assert (event, held, len(launches)) == (real[-1], "tables", len(real))
    assert session.begun == set()


@pytest.mark.parametrize("wait", [True, False])
def test_a_batch_that_fails_ends_what_it_began(wait: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    run, session = bound(monkeypatch, [3, 5], wait=wait)

    def fails(launch: Any, arguments: Any) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(run, "_enqueue", fails)
    with pytest.raises(KeyboardInterrupt):
        run()
    assert session.asked == ["finish", *(["finish"] if wait else [])]
    assert (session.held, session.begun) == ([], set())
