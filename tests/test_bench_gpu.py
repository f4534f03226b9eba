"""What bench/gpu.py runs before it measures anything: every test that needs a GPU, counted."""

from __future__ import annotations

import subprocess
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from bench import gpu


def ran(line: str, status: int, monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """Pretend that pytest ended with this line; the commands that were run."""
    commands: list[list[str]] = []

    def run(command: list[str], **options: Any) -> subprocess.CompletedProcess[str]:
        commands.append(command)
        return subprocess.CompletedProcess(command, status, f"....\n{line}\n", "")

    monkeypatch.setattr(subprocess, "run", run)
    return commands


def test_every_test_marked_gpu_runs_and_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    line = "498 passed, 3 skipped, 4938 deselected, 2 warnings in 75.20s (0:01:15)"
    commands = ran(line, 0, monkeypatch)
    counts = {"passed": 498, "skipped": 3, "failed": 0, "deselected": 4938}
    assert gpu._tests() == {"line": line, **counts}
    assert commands[0][-3:] == ["-m", "gpu", "tests"]
    assert "-q" not in commands[0]  # the project's own is one; two leave no counts


@pytest.mark.parametrize(
    ("line", "status"), [("1 failed, 9 passed in 1s", 1), ("501 skipped, 9 deselected in 1s", 0)]
)
def test_a_red_test_or_none_that_ran_ends_the_run(
    line: str, status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran(line, status, monkeypatch)
    with pytest.raises(SystemExit, match=line):
        gpu._tests()


@pytest.mark.parametrize("written", [(0, 1, 2), (0, 2), (0, 1)])
def test_a_result_that_was_not_written_shows_as_an_error(written: tuple[int, ...]) -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    a, b, c = ([torch.randn(3, 3) for _ in range(3)] for _ in "abc")
    given: Any = SimpleNamespace(a=a, b=b, c=c)

    def way() -> None:
        for i in written:
            torch.mm(a[i], b[i], out=c[i])

    error = gpu._error(given, way)
    assert error is not None
    assert np.isnan(error) if len(written) < 3 else error < 1e-5
