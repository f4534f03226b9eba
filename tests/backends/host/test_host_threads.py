"""The threads of one-bit products: every task runs once; errors wait until all are done."""

from __future__ import annotations

import signal
import sys
import threading
import time
from functools import partial
from types import FrameType

import pytest

from tilewright.backends.host import threads
from tilewright.backends.host.threads import in_parallel

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


def test_tasks_go_on_after_one_that_failed() -> None:
    ran: list[int] = []

    def fail() -> None:
        raise ValueError("each")

    tasks = [fail, *[partial(ran.append, number) for number in range(20)], fail]
    with pytest.raises(ValueError, match="each"):
        in_parallel(tasks, 3)
    assert sorted(ran) == list(range(20))


class Interrupt:
    """Raises KeyboardInterrupt in this thread before instruction `after` of `in_parallel`."""

    def __init__(self, after: int) -> None:
        self.left, self.raised = after, False
        # Python 3.12 tells of instructions only where a frame asked before tracing begins.
        sys._getframe().f_trace_opcodes = True

    def __call__(self, frame: FrameType, event: str, argument: object) -> Interrupt | None:
        if frame.f_code.co_filename != threads.__file__:
            return None
        frame.f_trace_opcodes = True
        if event == "opcode":
            self.left -= 1
            if self.left < 0:
                self.raised = True
                raise KeyboardInterrupt
        return self


def interrupted(after: int) -> bool:
    """One interrupt at an instruction; False where there are fewer. No task runs on after it."""
    begun = threading.Event()
    running: list[int] = []
    left_running: list[int] = []

    def task() -> None:
        if threading.current_thread() is MAIN:
            begun.wait(1)  # until a helper is in the middle of its task, if it takes one
            return
        running.append(1)
        begun.set()
        time.sleep(0.002)
        running.pop()

    interrupt = Interrupt(after)
    sys.settrace(interrupt)
    try:
        in_parallel([task, task], 2)
    except KeyboardInterrupt:
        pass
    finally:
        left_running += running
        sys.settrace(None)
    assert not left_running
    return interrupt.raised


def test_an_interrupt_waits_for_the_threads_that_still_write_wherever_it_comes() -> None:
    """Before every instruction in turn: none lets the caller go while a helper writes."""
    in_parallel([lambda: None] * 4, 2)  # the helpers are there
    after = 0
    while interrupted(after):
        after += 1
    assert after > 100


def test_an_interrupt_from_elsewhere_is_raised_in_the_end() -> None:
    """As a terminal sends it: while the main thread waits."""
    done = threading.Event()

    def task() -> None:
        if threading.current_thread() is not MAIN:
            signal.raise_signal(signal.SIGINT)
            done.set()
        else:
            done.wait(600)

    def multiply_until_interrupted() -> None:
        in_parallel([task, task], 2)
        time.sleep(600)  # the interrupt is on its way

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            multiply_until_interrupted()
    finally:
        signal.signal(signal.SIGINT, before)
    assert done.is_set()
