"""The threads of one-bit products: every task runs once; errors wait until all are done."""

from __future__ import annotations

import _thread
import threading
import time

import pytest

from tilewright.backends.host.native import in_parallel

MAIN = threading.main_thread()


@pytest.mark.parametrize("cores", [1, 2, 5])
@pytest.mark.parametrize("count", [0, 1, 2, 40])
def test_every_task_runs_once(count: int, cores: int) -> None:
    ran: list[int] = []
    in_parallel([lambda number=number: ran.append(number) for number in range(count)], cores)
    assert sorted(ran) == list(range(count))


def test_an_error_is_raised_after_the_others_are_done() -> None:
    ran: list[int] = []

    def fail() -> None:
        raise ValueError("this one")

    def slow() -> None:
        time.sleep(0.02)
        ran.append(1)

    with pytest.raises(ValueError, match="this one"):
        in_parallel([fail, *[slow] * 6], 2)
    assert len(ran) == 6


def test_an_interrupt_waits_for_the_threads_that_still_write() -> None:
    started, written = threading.Event(), threading.Event()

    def task() -> None:
        if threading.current_thread() is MAIN:
            started.wait(5)
            return
        started.set()
        time.sleep(0.05)  # by then the main thread has nothing left but to wait
        _thread.interrupt_main()
        time.sleep(0.1)
        written.set()

    with pytest.raises(KeyboardInterrupt):
        in_parallel([task, task], 2)
    assert written.is_set()
