"""The suite itself: nothing hangs on the clock of a busy machine, nor on draws without a seed."""

from __future__ import annotations

import ast
import os
import random
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from tests.conftest import APART, TOGETHER, group_of, pytest_xdist_make_scheduler
from tests.support import gpu_lock

TESTS = Path(__file__).parent
# They run on while others have the processor. Who waits for another process may read one, to give
# up after minutes; and what is run by hand may time what it prints.
CLOCKS = {"time.perf_counter", "time.perf_counter_ns", "time.time", "time.monotonic"}
WAITING = {"test_tuner.py", "architectures_on.py"}
# Its last alarm may ring in whatever runs after the test; pytest-timeout's own would be lost.
TIMER = "signal.setitimer"


def calls(path: Path) -> Iterator[tuple[str, ast.Call]]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call):
            yield ast.unparse(node.func), node


@pytest.mark.parametrize(
    "path",
    sorted(path for path in TESTS.rglob("*.py") if path.name != "__init__.py"),
    ids=lambda path: path.stem,
)
def test_no_test_reads_a_clock_or_draws_without_a_seed(path: Path) -> None:
    for name, call in calls(path):
        where = f"{path.name}:{call.lineno}: {name}"
        assert name not in CLOCKS or path.name in WAITING, where
        assert name != TIMER, where
        if name.endswith(("random.default_rng", "random.Random")):
            assert call.args, f"{where} without a seed"


@pytest.mark.parametrize("turn", [0, 1])
def test_every_test_begins_with_the_same_draws(turn: int) -> None:
    assert np.random.random() == np.random.RandomState(0).random_sample()
    assert random.random() == random.Random(0).random()
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    drawn = torch.rand(3) if turn else None
    if drawn is not None:
        assert torch.equal(drawn, torch.rand(3, generator=torch.Generator().manual_seed(0)))


@pytest.mark.parametrize(
    ("nodeid", "group"),
    [
        ("tests/test_kernels.py::test_x[intel-3x5x7-local]", "tests/test_kernels.py-intel-local"),
        ("tests/test_kernels.py::test_x[pocl-3x5x7-panel]", "tests/test_kernels.py-panel-pocl"),
        ("tests/test_grouped.py::test_x[pocl-float64]", "tests/test_grouped.py-pocl"),
        ("tests/test_grouped.py::test_y", "tests/test_grouped.py"),
        ("tests/nn/test_values.py::test_y[x]", "tests/nn/operators/test_standard.py"),
    ],
)
def test_tests_of_a_driver_and_kernel_share_a_process(nodeid: str, group: str) -> None:
    assert {"intel", "pocl", "local"} <= APART
    assert group_of(nodeid, gpu=False) == group


def test_files_that_share_what_is_dear_are_there() -> None:
    root = Path(__file__).parent.parent
    assert all((root / file).is_file() for pair in TOGETHER.items() for file in pair)


def test_tests_of_a_gpu_share_a_process_where_there_is_one() -> None:
    """And whole files with them."""
    for name in ("backends/cuda/test_cuda", "backends/cuda/test_cuda_peak", "pytorch/test_pytorch"):
        assert group_of(f"tests/{name}.py::test_x[cuda]", gpu=True) == "gpu"
    assert group_of("tests/arrays/test_columns.py::x", gpu=True) == "tests/arrays/test_columns.py"


def test_many_processes_take_tests_from_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few keep what shares a program together."""
    scheduling = pytest.importorskip("xdist.scheduler")
    monkeypatch.setattr("xdist.workermanage.parse_tx_spec_config", lambda config: config.tx)
    log = SimpleNamespace(loadscopesched=None, workstealsched=None)
    for count, kind in (
        (2, scheduling.LoadScopeScheduling),
        (12, scheduling.WorkStealingScheduling),
    ):
        for module in ("loadscope", "worksteal"):
            path = f"xdist.scheduler.{module}.parse_tx_spec_config"
            monkeypatch.setattr(path, lambda config, count=count: config.tx)
        config = SimpleNamespace(tx=["popen"] * count, option=SimpleNamespace())
        assert isinstance(pytest_xdist_make_scheduler(config, log), kind)  # type: ignore[arg-type]


def test_who_measures_the_gpu_has_it_alone_and_others_share_it(tmp_path: Path) -> None:
    """Whoever waits to be alone is not overtaken by those that come later."""
    order: list[str] = []
    inside, leave = threading.Barrier(3), threading.Event()

    def use(name: str, *, alone: bool, wait: bool) -> None:
        with gpu_lock.held(alone=alone, folder=tmp_path):
            if wait:
                inside.wait(600)
                leave.wait(600)
            order.append(name)

    first = [
        threading.Thread(target=use, args=(f"beside {i}",), kwargs={"alone": False, "wait": True})
        for i in range(2)
    ]
    for thread in first:
        thread.start()
    inside.wait(600)  # both are in at the same time
    alone = threading.Thread(target=use, args=("alone",), kwargs={"alone": True, "wait": False})
    alone.start()
    while _free(tmp_path / f"tilewright-{os.getuid()}-gate.lock"):
        pass
    later = threading.Thread(target=use, args=("later",), kwargs={"alone": False, "wait": False})
    later.start()
    leave.set()
    for thread in (*first, alone, later):
        thread.join(60)
    assert sorted(order[:2]) == ["beside 0", "beside 1"]
    assert order[2:] == ["alone", "later"]


def _free(path: Path) -> bool:
    fcntl = pytest.importorskip("fcntl")
    with path.open("a", encoding="utf-8") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
    return True
