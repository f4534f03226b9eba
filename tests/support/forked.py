"""A process that has imported what many proofs need, and is forked for each of them.

    Server("tests.support.interpreter", {"TRITON_INTERPRET": "1"}).run("ragged_proof")

Half of what a proof in a process of its own takes is to import PyTorch, or the tests. The module,
run without arguments, calls `serve` when it is ready; each worker of pytest-xdist has its server,
which ends with it.
"""

from __future__ import annotations

import atexit
import json
import os
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path

from tests.support import paths

ROOT = Path(__file__).parents[2]


class Server:
    """The process, started by the first proof with these variables set beside those of today."""

    def __init__(self, module: str, environment: Mapping[str, str]) -> None:
        self._module, self._environment = module, environment
        self._process: subprocess.Popen[str] | None = None

    def run(self, what: str, environment: Mapping[str, str] | None = None) -> tuple[int, str]:
        """Status and output, errors too, of `what` with these variables set in its own process."""
        process = self._process = self._process or self._started()
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps([what, dict(environment or {})]) + "\n")
        process.stdin.flush()
        status, said = json.loads(process.stdout.readline() or '[-1, "the server ended"]')
        return status, said

    def _started(self) -> subprocess.Popen[str]:
        made = {**os.environ, **self._environment, "PYTHONPATH": paths.first(ROOT)}
        command = [sys.executable, "-m", self._module]
        pipe = subprocess.PIPE
        process = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, env=made, cwd=ROOT)
        atexit.register(_end, process, os.getpid())
        return process


def _end(process: subprocess.Popen[str], starter: int) -> None:
    """Nothing is left to ask; what was forked from a worker of pytest's leaves it alone."""
    if os.getpid() == starter and process.stdin is not None:
        process.stdin.close()
        process.wait()


def serve(work: Callable[[str], None]) -> None:
    """Does what each line of the input asks for in a process of its own, and answers."""
    for line in sys.stdin:
        what, environment = json.loads(line)
        with tempfile.TemporaryFile("w+", encoding="utf-8") as said:
            child = os.fork()
            if child == 0:
                os.environ.update(environment)
                sys.exit(_done(work, what, said.fileno()))  # as any other process ends
            status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
            said.seek(0)
            print(json.dumps([status, said.read()]), flush=True)


def _done(work: Callable[[str], None], what: str, said: int) -> int:
    """The status of a forked process, whose output and errors go to a file."""
    os.dup2(said, 1)
    os.dup2(said, 2)
    try:
        work(what)
    except BaseException:
        traceback.print_exc()
        return 1
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
    return 0
