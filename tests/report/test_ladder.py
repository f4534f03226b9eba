"""A ladder measured on real devices at small sizes, and the clocks it believes."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import tilewright
from tilewright import Device
from tilewright.cli import app
from tilewright.engines.backend import Timing
from tilewright.errors import BuildError, DeviceWarning
from tilewright.inputs.devices import backend_of, host
from tilewright.report import ladder as ladder_module
from tilewright.report import peers
from tilewright.report.ladder import Operands, measure
from tilewright.report.memory import measure_memory
from tilewright.report.records import Ladder
from tilewright.report.sampling import Effort, Samples, sample

QUICK = Effort(warmups=2, repeats=3, budget=1.0)


def run_ladder(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tilewright", "ladder", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


class Tampered:
    """The real back end, except that one kernel's `time` is another."""

    def __init__(self, device: Device, kernel: str, time: Any) -> None:
        self._real = backend_of(device)
        self._kernel, self._time = kernel, time

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)

    def time(self, plan: Any, views: Any, scalars: Any) -> Timing:
        if plan.kernel == self._kernel:
            result: Timing = self._time(lambda: self._real.time(plan, views, scalars))
            return result
        return self._real.time(plan, views, scalars)


@pytest.fixture
def tamper(monkeypatch: pytest.MonkeyPatch, opencl_device: Device) -> Any:
    def put(kernel: str, time: Any) -> None:
        backend = Tampered(opencl_device, kernel, time)
        monkeypatch.setattr(ladder_module, "backend_of", lambda device: backend)

    return put


def test_every_kernel_and_peer_is_timed_checked_and_written_down(
    opencl_device: Device, tmp_path: Path
) -> None:
    path = tmp_path / "ladder.json"
    done = run_ladder("--size", "48", "--device", opencl_device.id, "--json", str(path))
    assert done.returncode == 0, done.stderr
    read = json.loads(path.read_text(encoding="utf-8"))
    (ladder,) = read["ladders"]
    rungs = {rung["name"]: rung for rung in ladder["rungs"]}
    kernels = tilewright.kernels(opencl_device)
    assert set(kernels) <= set(rungs)
    assert {"serial", "NumPy"} <= set(rungs)
    assert read["device"] == json.loads(json.dumps(opencl_device.as_dict()))
    for name, rung in rungs.items():
        assert name in done.stdout
        assert rung["right"]
        assert rung["error"] < 1e-5
        assert len(rung["samples"]["wall_ms"]) == rung["repeats"]
        assert rung["speedup_over_numpy"] == pytest.approx(
            rung["gflops"] / rungs["NumPy"]["gflops"]
        )
        timed = rung["event_ms"] if rung["clock"] == "events" else rung["wall_ms"]
        assert rung["gflops"] == pytest.approx(2 * 48**3 / timed / 1e6)
    assert all(rungs[name]["event_ms"] is not None for name in kernels)
    assert (rungs["NumPy"]["warmups"], rungs["NumPy"]["repeats"]) == (10, 20)
    rates = [rung["gflops"] for rung in ladder["rungs"]]
    assert rates == sorted(rates)


def test_several_sizes_give_several_ladders_and_one_picture_and_no_progress_in_pipes(
    tmp_path: Path,
) -> None:
    plot, path = tmp_path / "lines.svg", tmp_path / "lines.json"
    arguments = ("--sizes", "32,16", "--device", "host", "--plot", str(plot), "--json", str(path))
    done = run_ladder(*arguments)
    assert (done.returncode, done.stderr) == (0, "")
    assert [one["size"] for one in json.loads(path.read_text(encoding="utf-8"))["ladders"]] == [
        16,
        32,
    ]
    assert "<svg" in plot.read_text(encoding="utf-8")


def test_progress_names_each_step_on_a_terminal() -> None:
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "tilewright", "ladder", "--size", "8", "--device", "host"]
    done = subprocess.run(
        command,
        stdout=subprocess.PIPE,
        stderr=theirs,
        text=True,
        env={**os.environ, "TERM": "xterm"},
    )
    os.close(theirs)
    shown = os.read(ours, 1 << 16).decode()
    os.close(ours)
    assert done.returncode == 0
    assert "measuring serial at 8" in shown
    assert "measuring NumPy at 8" in shown
    assert "measuring" not in done.stdout


def test_a_dtype_that_the_device_lacks_is_a_reason_and_the_peers_remain(pocl: Device) -> None:
    if pocl.has("fp16"):
        pytest.skip("this PoCL has float16")
    done = run_ladder("--size", "16", "--dtype", "float16", "--device", pocl.id)
    assert done.returncode == 0, done.stderr
    for name in tilewright.kernels(pocl):
        assert any(
            line.startswith(name) and "not run:" in line for line in done.stdout.splitlines()
        )
    assert "NumPy" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--size", "0"), "--size=0"),
        (("--size", "10000000"), "--size=10000000"),
        (("--sizes", "4,x"), "--sizes='4,x'"),
        (("--sizes", ""), "--sizes=''"),
        (("--size", "4", "--sizes", "4"), "not both"),
        (("--dtype", "int8"), "--dtype='int8'"),
        (("--plot", "ladder.pdf"), "--plot='ladder.pdf'"),
        (("--device", "opencl:77"), "device='opencl:77'"),
        (("--size", "4", "--device", "host", "--json", "absent/x.json"), "absent/x.json"),
    ],
)
def test_a_wrong_argument_is_one_line_that_names_it(
    arguments: tuple[str, ...], said: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(app, ["ladder", *arguments])
    assert done.exit_code == 2
    assert done.stderr.startswith("error: ")
    assert len(done.stderr.splitlines()) == 1
    assert said in done.stderr
    assert "accepted" in done.stderr


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (BuildError("kernel='naive':\n the compiler   gave up"), "kernel='naive': the compiler"),
        (RuntimeError("clFinish failed"), "RuntimeError: clFinish failed"),
        (BuildError("log " * 5000), "log log"),
    ],
)
def test_a_kernel_that_the_driver_refuses_is_a_row_and_the_rest_is_measured(
    tamper: Any, opencl_device: Device, error: Exception, said: str
) -> None:
    def refuse(_: Any) -> Timing:
        raise error

    tamper("naive", refuse)
    ladder = measure(opencl_device, 16, effort=QUICK)
    assert ladder.rung("naive") is None
    (reason,) = (item.reason for item in ladder.skipped if item.name == "naive")
    assert reason.startswith(said)
    assert len(reason) <= 300
    assert ladder.winner is not None


def test_a_kernel_that_forgets_to_write_is_wrong_and_the_exit_status_says_so(
    tamper: Any, opencl_device: Device
) -> None:
    tamper("naive", lambda run: Timing(1e-4, 1e-4, 1e-4))
    done = CliRunner().invoke(app, ["ladder", "--size", "16", "--device", opencl_device.id])
    assert done.exit_code == 1
    assert "NaN wrong" in done.stdout


def test_a_driver_whose_events_lie_is_caught_and_its_rate_is_by_the_wall_clock(
    tamper: Any, opencl_device: Device
) -> None:
    def lie(run: Any) -> Timing:
        run()
        return Timing(1e-5, 2e-3, 2e-3)

    tamper("naive", lie)
    with pytest.warns(DeviceWarning, match="naive"):
        ladder = measure(replace(opencl_device, kind="gpu"), 16, effort=QUICK)
    naive = ladder.rung("naive")
    assert naive is not None
    assert naive.samples.events_lie
    assert naive.clock == "wall"
    assert naive.gflops == pytest.approx(2 * 16**3 / 2e-3 / 1e9)


def test_the_warning_of_lying_events_is_one_line_on_stderr(
    tamper: Any, opencl_device: Device
) -> None:
    def lie(run: Any) -> Timing:
        run()
        return Timing(1.0, 2e-3, 2e-3)

    tamper("naive", lie)
    done = CliRunner().invoke(app, ["ladder", "--size", "16", "--device", opencl_device.id])
    assert [line for line in done.stderr.splitlines() if line.startswith("warning: device=")]
    assert "events lie" in done.stdout


@pytest.mark.parametrize(
    ("event", "wall", "lies", "clock"),
    [
        (0.0098, 0.010, False, "events"),
        (0.0051, 0.010, False, "events"),
        (0.0049, 0.010, True, "wall"),
        (0.0104, 0.010, False, "events"),
        (0.0106, 0.010, True, "wall"),
        (0.00001, 0.0009, False, "wall"),
        (0.0008, 0.0009, False, "events"),
    ],
)
def test_events_are_believed_between_half_and_a_twentieth_more_of_the_wall_clock(
    event: float, wall: float, lies: bool, clock: str
) -> None:
    taken = Samples(1, (wall,) * 3, (wall,) * 3, (event,) * 3)
    assert taken.events_lie is lies
    assert taken.clock("gpu") == clock
    assert taken.clock("cpu") == "wall"


def test_ten_warm_ups_and_the_median_of_twenty() -> None:
    walls = iter([9.0] * 10 + [1e-3] * 11 + [5e-3] * 9)
    calls: list[float] = []

    def run() -> Timing:
        # The runs before the count is decided must look quick.
        wall = next(walls) if len(calls) != 1 else (next(walls), 1e-3)[1]
        calls.append(wall)
        return Timing(None, wall, 2 * wall)

    taken = sample(run, Effort())
    assert len(calls) == 30
    assert (taken.warmups, taken.repeats) == (10, 20)
    assert taken.wall == 1e-3
    assert taken.event is None
    assert taken.cpu_use == pytest.approx(2.0)


@pytest.mark.parametrize(
    ("seconds", "counts"),
    [(0.1, (10, 20)), (0.2, (10, 20)), (0.5, (4, 8)), (3.0, (1, 3)), (60.0, (1, 3))],
)
def test_slow_runs_are_fewer_but_never_fewer_than_three(
    seconds: float, counts: tuple[int, int]
) -> None:
    taken = sample(lambda: Timing(None, seconds, seconds), Effort())
    assert (taken.warmups, taken.repeats) == counts


def test_the_serial_loop_is_measured_small_and_scaled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peers, "SCALED_FROM", 32)
    ladder = measure(host(), 64, effort=QUICK)
    serial, numpy = ladder.rung("serial"), ladder.rung("NumPy")
    assert serial is not None
    assert numpy is not None
    assert (serial.size, numpy.size) == (32, 64)
    assert ladder.seconds(serial, 1.0) == 8.0
    assert serial.error < 1e-6


def test_every_step_is_reported_before_it_is_measured() -> None:
    heard: list[str] = []
    measure(host(), 8, effort=QUICK, report=heard.append)
    assert heard[:2] == ["serial", "NumPy"]
    assert len(heard) == ladder_module.steps(host(), "float32")


def test_operands_are_the_same_in_every_run_and_of_the_right_dtype() -> None:
    first, second = Operands.random(16, "float16"), Operands.random(16, "float16")
    assert first.a.dtype == np.float16
    assert np.array_equal(first.a, second.a)
    assert not np.array_equal(first.a, first.b)
    assert first.error(first.truth) == 0
    assert first.error(first.truth + np.abs(first.truth).max()) == pytest.approx(1)


def test_a_device_with_memory_of_its_own_is_timed_with_and_without_transfers(
    opencl_device: Device,
) -> None:
    apart = {"unified_memory", "svm_system", "svm_fine", "svm_coarse"}
    device = replace(opencl_device, features=opencl_device.features - apart)
    ladder = measure(device, 32, effort=QUICK)
    kernels = [rung for rung in ladder.rungs if rung.kind == "kernel"]
    assert kernels
    assert not ladder.wrong
    assert all(rung.end_to_end is not None and rung.end_to_end > 0 for rung in kernels)
    assert all(rung.end_to_end is None for rung in ladder.rungs if rung.kind == "peer")


def test_three_host_pointer_ways_are_measured_and_right(device: Device) -> None:
    ladder = measure(device, 32, effort=QUICK)
    ways = {way.way: way for way in measure_memory(ladder)}
    assert list(ways) == ["allocate", "copy", "use"]
    for way in ways.values():
        assert min(way.create, way.run, way.map_back) > 0
        assert way.error < 1e-5
    if device.has("unified_memory"):
        assert ways["use"].create_bytes == 0
        assert ways["allocate"].create_bytes == 2 * 32 * 32 * 4


def test_a_device_on_which_no_kernel_ran_has_no_memory_ways(opencl_device: Device) -> None:
    assert measure_memory(Ladder(opencl_device, 32, "float32", ())) == ()


def test_memory_ways_are_shown_and_written(tmp_path: Path) -> None:
    path = tmp_path / "memory.json"
    arguments = ["ladder", "--size", "16", "--device", "host", "--memory", "--json", str(path)]
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 0
    assert "host-pointer ways" in done.stdout
    (ladder,) = json.loads(path.read_text(encoding="utf-8"))["ladders"]
    assert [way["way"] for way in ladder["memory"]] == ["allocate", "copy", "use"]


@pytest.fixture
def stand_in_for_torch(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """A module that does what a ladder asks of PyTorch, where the real one is not installed."""
    module = ModuleType("torch")
    module.from_numpy = lambda array: array  # type: ignore[attr-defined]
    module.matmul = np.matmul  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "torch", module)
    monkeypatch.setattr(peers, "find_spec", lambda name: object())
    return module


def test_pytorch_stands_beside_the_kernels_where_it_is_installed(
    stand_in_for_torch: ModuleType,
) -> None:
    ladder = measure(host(), 16, effort=QUICK)
    rung = ladder.rung("PyTorch")
    assert rung is not None
    assert rung.kind == "peer"
    assert rung.error < 1e-6
    assert not [item for item in ladder.skipped if item.name == "PyTorch"]


def test_pytorch_is_named_where_it_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peers, "find_spec", lambda name: None)
    ladder = measure(host(), 8, effort=QUICK)
    assert ("PyTorch", "not installed") in [(item.name, item.reason) for item in ladder.skipped]
