"""A machine's own proof: what devices answer is told, whatever their drivers do to the process."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.cli.test_cli import invoke
from tests.support import made_up
from tilewright.inputs.devices import host
from tilewright.report import doctor, doctored
from tilewright.report.doctor import Examined, Package, Timing

WHOLE = '{"kernel": "panel", "right": 12, "wrong": [], "refused": []}'
TIMED = '{"timings": [{"name": "one", "ours_ms": 2.0, "peer": "NumPy", "peer_ms": 3.0}]}'


def _worker(monkeypatch: pytest.MonkeyPatch, code: str) -> None:
    monkeypatch.setattr(doctor, "_WORKER", ("-c", code))


def test_a_host_is_asked_in_a_process_of_its_own_and_is_right(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(doctor, "_LEAST", 1.0)
    for seconds in (1.0, 8.0, 32.0):  # what time there is is spent: more only on a busy machine
        (found,) = doctor.examine([host()], seconds)
        assert found.failure == ""
        if found.right >= 10:
            break
    assert found.wrong == ()
    assert found.right >= 10
    assert found.is_well


@pytest.mark.parametrize(
    ("end", "said"),
    [
        ("import os; os.abort()", "its process ended with status -6"),
        ("import sys; sys.exit('no such driver')", "status 1: no such driver"),
        ("raise ValueError('of a driver')", "status 1: ValueError: of a driver"),
    ],
)
def test_what_came_before_a_driver_ended_the_process_stays_known(
    end: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = f"print({WHOLE!r}, flush=True); print('a driver says hello'); print('[1]')\n"
    _worker(monkeypatch, f"{before}print('{{\"right\": 5', end='', flush=True)\n{end}")
    ill, well = doctor.examine([made_up.TWO_CORES, made_up.TWO_CORES], 1.0)
    assert said in ill.failure
    assert (ill.right, ill.kernels) == (12, 1)
    assert not ill.is_well
    assert well.right == 12  # the next is asked all the same
    (line,) = doctor.advice((), [ill])[-1:]
    assert line.startswith(made_up.TWO_CORES.id)
    assert said in line


@pytest.mark.timeout(300)  # neither it nor its child is waited for
def test_one_that_never_answers_is_told_of_whoever_holds_its_output(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A child of it does, as a daemon that a driver starts."""
    child = "subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(400)'])"
    before = f"import subprocess, sys, time; print({WHOLE!r}, flush=True)\n"
    _worker(monkeypatch, f"{before}{child}\ntime.sleep(400)")
    for seconds in (0.7, 7.0, 30.0):  # more only where it takes longer to begin
        for name in ("_LEAST", "_MORE", "_GRACE"):
            monkeypatch.setattr(doctor, name, seconds)
        (found,) = doctor.examine([made_up.TWO_CORES], seconds)
        assert f"no answer within {3 * seconds:.0f} s" in found.failure
        if found.right:
            break
    assert found.right == 12


def test_times_are_told_beside_whom(monkeypatch: pytest.MonkeyPatch) -> None:
    _worker(monkeypatch, f"print({WHOLE!r}); print({TIMED!r})")
    (found,) = doctor.examine([made_up.TWO_CORES], 1.0)
    assert found.timings == (Timing("one", 2.0, "NumPy", 3.0),)
    assert found.timings[0].ratio == pytest.approx(1.5)
    assert found.is_well


@pytest.mark.parametrize("wrong", ["nan", "off", "stale"])
def test_a_wrong_result_is_seen(wrong: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that was not written, one that is off by a thousandth, one of another call."""

    def matmul(a: Any, b: Any, *, out: Any, transpose_a: bool, **_: Any) -> None:
        right = (a.T if transpose_a else a) @ b
        out[...] = {"nan": out, "off": right * 1.001, "stale": np.ones_like(out)}[wrong]

    monkeypatch.setattr(doctored.tw, "matmul", matmul)
    case = doctored.Case(37, 45, 101)
    assert not doctored.is_right(case, doctored.Home(host()), None)


@pytest.mark.parametrize("case", list(doctored.cases(("float16", "float32", "float64"))), ids=str)
def test_every_case_is_right_on_the_host(case: doctored.Case) -> None:
    assert doctored.is_right(case, doctored.Home(host()), None)


def test_a_device_none_of_whose_kernels_ran_is_not_well() -> None:
    """Another device answered for it."""
    refused = ("panel, 11 of them: no", "chosen, 1 of them: fp16")
    idle = Examined(made_up.TWO_CORES, 12, 0, (), refused)
    assert not idle.is_well
    assert any("no kernel of its own ran: panel, 11" in line for line in doctor.advice((), [idle]))
    assert replace(idle, kernels=1).is_well
    assert replace(idle, refused=refused[1:]).is_well


def test_what_is_missing_comes_with_the_line_that_brings_it() -> None:
    there = Package("numba", "bits", "0.6", "")
    absent = [Package(name, "films", "", "pip install 'tilewright[video]'") for name in ("av", "p")]
    lines = doctor.advice([there, *absent], [Examined(host(), 1)])
    assert "no device but the host" in lines[0]
    assert lines[1:] == ("av (films), p (films): pip install 'tilewright[video]'",)
    names = {package.name: package for package in doctor.packages()}
    assert names["onnx"].version
    assert all(bool(one.version) != bool(one.mend) for one in names.values())


def test_the_file_is_as_its_schema_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    jsonschema: Any = pytest.importorskip("jsonschema", reason="jsonschema is not installed")
    _worker(monkeypatch, f"print({WHOLE!r}); print({TIMED!r})")
    path = tmp_path / "me.json"
    done = invoke("doctor", "--json", str(path), "--seconds", "2")
    assert done.exit_code == 0, done.output
    assert "1.50" in done.output
    schema = json.loads(invoke("doctor", "--schema").output)
    jsonschema.Draft202012Validator.check_schema(schema)
    found = json.loads(path.read_text(encoding="utf-8"))
    jsonschema.validate(found, schema)
    del found["devices"][0]["right"]
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(found, schema)


def test_a_wrong_result_ends_with_one(monkeypatch: pytest.MonkeyPatch) -> None:
    _worker(monkeypatch, 'print(\'{"right": 1, "wrong": ["panel: 1x1x1"]}\')')
    done = invoke("doctor", "--seconds", "1")
    assert done.exit_code == 1
    assert "wrong results, first panel: 1x1x1" in " ".join(done.output.split())


@pytest.mark.parametrize("seconds", ["0", "-3", "1e9", "nan"])
def test_no_time_and_too_much_are_refused(seconds: str) -> None:
    done = invoke("doctor", "--seconds", seconds)
    assert done.exit_code == 2
    assert "accepted are 1 to 3600" in " ".join(done.output.split())


def test_the_worker_runs_as_the_doctor_calls_it() -> None:
    assert doctor._WORKER[0] == "-m"
    assert doctor._WORKER[1] == doctored.__name__
    assert sys.executable
