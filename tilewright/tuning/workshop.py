"""Starts the tuner's worker process and asks it; the worker may crash, hang or be killed any time.

A request gets an answer or the reason why there is none; the next request finds a fresh worker.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from typing import IO, Any

from tilewright import settings

COMMAND = (sys.executable, "-m", "tilewright.tuning.worker")
# Loading drivers takes seconds on some machines: a worker is greeted before it is asked anything.
START_SECONDS = 60.0
DYING_SECONDS = 10.0
# How the reason begins where a worker did not answer in time: it hangs, or the machine was busy.
LATE = "no answer within"


class Workshop:
    """One worker at a time, started when needed. Ctrl-C does not reach it: the tuner decides."""

    def __init__(self, command: Sequence[str] = COMMAND, timeout: float = 20.0) -> None:
        self.command, self.timeout = tuple(command), timeout
        self._process: subprocess.Popen[str] | None = None
        self._hello: dict[str, Any] = {"do": "hello"}
        self._lines: queue.Queue[str] = queue.Queue()

    def __enter__(self) -> Workshop:
        return self

    def __exit__(self, *_: object) -> None:
        self._end()

    def greet(self, hello: Mapping[str, Any]) -> dict[str, Any]:
        """Start a worker with this request, as every later one will be; its answer."""
        self._end()
        self._hello = dict(hello)
        return self._exchange(self._start(), self._hello, START_SECONDS)

    def ask(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """The worker's answer, or {"failure": why} where it died or did not answer in time.

        A request may bring a `timeout` of its own.
        """
        if self._process is None:
            greeting = self._exchange(self._start(), self._hello, START_SECONDS)
            if self._process is None:
                return greeting
        return self._exchange(self._process, request, request.get("timeout", self.timeout))

    def _exchange(
        self, worker: subprocess.Popen[str], request: Mapping[str, Any], wait: float
    ) -> dict[str, Any]:
        try:
            assert worker.stdin is not None
            worker.stdin.write(json.dumps({**request, "timeout": wait}) + "\n")
            worker.stdin.flush()
            line = self._lines.get(timeout=wait)
        except queue.Empty:
            self._end()
            return {"failure": f"{LATE} {wait:g} s"}
        except BrokenPipeError:
            line = ""
        except BaseException:  # Ctrl-C: what is under way would answer the next request
            self._end()
            raise
        if not line.endswith("\n"):  # nothing, or cut off where it died
            return {"failure": self._epitaph()}
        answer: dict[str, Any] = json.loads(line)
        return answer

    def _start(self) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            self.command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            start_new_session=True,
            env=settings.for_children(),
        )
        assert process.stdout is not None
        self._process, self._lines = process, queue.Queue()
        lines = (process.stdout, self._lines)
        threading.Thread(target=_read_lines, args=lines, daemon=True).start()
        return process

    def _epitaph(self) -> str:
        """Why the worker is no more."""
        assert self._process is not None
        try:
            code = self._process.wait(timeout=DYING_SECONDS)
        except subprocess.TimeoutExpired:
            self._end()
            return f"the worker hung up and was alive {DYING_SECONDS:g} s later"
        self._end()
        if code >= 0:
            return f"the worker ended with status {code}"
        try:
            name = signal.Signals(-code).name
        except ValueError:
            name = f"signal {-code}"
        return f"the worker died of {name}"

    def _end(self) -> None:
        """Kill the worker with whatever it started."""
        process, self._process = self._process, None
        if process is None:
            return
        with contextlib.suppress(ProcessLookupError, PermissionError):
            if hasattr(os, "killpg"):
                os.killpg(process.pid, signal.SIGKILL)
            else:
                process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()


def _read_lines(pipe: IO[str], lines: queue.Queue[str]) -> None:
    """Every line, and an empty one at the end."""
    with contextlib.suppress(ValueError, OSError):  # closed under our feet: the worker was killed
        for line in pipe:
            lines.put(line)
    lines.put("")
