"""Threads that run programs together: awake for a while, asleep afterwards, never left behind."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from types import FrameType

import numpy as np
import pytest

from tests.backends.host.test_conv_single import WINDOWS, bound, work
from tilewright.backends.host import crew as module
from tilewright.backends.host.conv_direct import SINGLE_ENGINES
from tilewright.backends.host.crew import crew_of
from tilewright.backends.host.program import Program

pytest.importorskip("numba")
pytest.importorskip("torch")

DIRECT = SINGLE_ENGINES[2]


def made(cores: int = 2) -> tuple[Program, np.ndarray, np.ndarray]:
    """A program for so many threads, where it writes, and what is right."""
    program, out, right = bound(WINDOWS["3x3"], DIRECT)
    return Program(program.steps, program.scratch, cores, 1.0, [program]), out, right


def check(out: np.ndarray, right: np.ndarray) -> None:
    np.testing.assert_allclose(out, right, rtol=0, atol=3e-6 * np.abs(right).max())


@pytest.mark.parametrize("cores", [1, 2, 3, 5])
def test_any_number_of_threads_gives_what_one_gives(cores: int) -> None:
    program, out, right = made(cores)
    for _ in range(20):
        out[...] = np.nan
        program()
        check(out, right)


def test_helpers_sleep_once_nobody_calls_for_a_while() -> None:
    program, _, _ = made()
    program()
    crew = crew_of(1)
    for _ in range(60_000):  # ten minutes at most
        if crew.is_asleep():
            break
        time.sleep(0.01)
    assert crew.is_asleep()


def test_a_program_that_went_is_not_touched_by_helpers_that_come_late() -> None:
    for _ in range(30):
        program, out, right = made()
        program()
        check(out, right)
        del program


def test_two_threads_run_two_programs_at_once() -> None:
    wrong: list[int] = []

    def runs() -> None:
        program, out, right = made()
        for _ in range(30):
            out[...] = np.nan
            program()
            if not np.allclose(out, right, rtol=0, atol=1e-5):
                wrong.append(1)

    threads = [threading.Thread(target=runs) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


class Interrupt:
    """Raises KeyboardInterrupt before instruction `after` of `Crew`."""

    def __init__(self, after: int) -> None:
        self.left, self.raised = after, False
        # Python 3.12 tells of instructions only where a frame asked before tracing begins.
        sys._getframe().f_trace_opcodes = True

    def __call__(self, frame: FrameType, event: str, argument: object) -> Interrupt | None:
        if frame.f_code.co_filename != module.__file__:
            return None
        frame.f_trace_opcodes = True
        if event == "opcode" and not self.raised:
            self.left -= 1
            if self.left < 0:
                self.raised = True
                raise KeyboardInterrupt
        return self


def test_an_interrupt_wherever_it_comes_leaves_a_crew_that_works() -> None:
    program, out, right = made()
    program()
    after = 0
    while True:
        interrupt = Interrupt(after)
        sys.settrace(interrupt)
        try:
            program()
        except KeyboardInterrupt:
            pass
        finally:
            sys.settrace(None)
        crew = crew_of(1)
        assert not crew.is_taken()
        if not interrupt.raised:
            break
        after += 1
    assert after > 30
    out[...] = np.nan
    program()
    check(out, right)


def test_a_handler_that_comes_while_a_crew_is_made_gets_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A signal's, or a finalizer, in the thread that makes it."""
    made: list[object] = []

    class Made:
        def __init__(self, helpers: int) -> None:
            made.append(self)
            if len(made) == 1:
                found.append(module.crew_of(helpers))

    found: list[object] = []
    monkeypatch.setattr(module, "Crew", Made)
    monkeypatch.setattr(module, "_crews", {})
    thread = threading.Thread(target=lambda: found.append(module.crew_of(3)), daemon=True)
    thread.start()
    thread.join(60)
    assert not thread.is_alive()
    assert found == [module.crew_of(3)] * 2


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")
def test_a_forked_child_makes_threads_of_its_own() -> None:
    program, out, right = made()
    program()
    child = os.fork()
    if not child:
        try:
            out[...] = np.nan
            program()
            os._exit(0 if np.allclose(out, right, rtol=0, atol=1e-5) else 1)
        finally:
            os._exit(2)
    assert os.waitpid(child, 0)[1] == 0
    program()
    check(out, right)


def test_a_process_ends_while_helpers_still_look() -> None:
    script = (
        "from tests.backends.host.test_crew import made, check\n"
        "program, out, right = made()\n"
        "program(); program(); check(out, right)\n"
    )
    found = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False
    )
    assert (found.returncode, found.stderr) == (0, "")


def test_short_programs_wake_nobody() -> None:
    program, out, right = bound(work(8, 5, (1, 1, 20)), DIRECT)
    Program(program.steps, program.scratch, 2, 1e-6, [program])()
    check(out, right)
