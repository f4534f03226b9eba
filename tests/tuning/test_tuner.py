"""Tuning survives what candidates do to it: each planted fault costs that candidate and no more."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.support import planted
from tests.support.planted import DEVICE, FAULTS, HANGS, PRIORS, Near, Patient, Planted
from tilewright import Device
from tilewright.errors import CacheError, CacheWarning, DeviceError
from tilewright.facts.kernel import Config, Step
from tilewright.facts.problem import Problem
from tilewright.inputs.devices import backend_of
from tilewright.planning.classes import UNMEASURED
from tilewright.tuning import store, tuned, worker
from tilewright.tuning import tuner as tuner_module
from tilewright.tuning.known import Known
from tilewright.tuning.search import Space
from tilewright.tuning.trial import Shape, Trial
from tilewright.tuning.tuner import Result, Tuner
from tilewright.tuning.workshop import LATE, Workshop

BEST = Config(micro_m=3)


@pytest.fixture(autouse=True)
def own_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    folder = tmp_path / "cache"
    monkeypatch.setenv("TILEWRIGHT_CACHE", str(folder))
    tuned.forget()
    yield folder
    tuned.forget()


def tune(
    kernel: Planted,
    log: Path,
    *,
    resume: bool = False,
    budget: float = 600.0,
    workshop: Workshop | None = None,
) -> list[Result]:
    """With time to spare for a busy machine: a search ends where nothing is left to try.

    In this process, unless a workshop is given.
    """
    with workshop or Near(log) as given:
        return planted.tuner(given, budget, resume=resume).run([planted.task(kernel)])


def asked(log: Path) -> list[dict[str, int]]:
    return (
        [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()]
        if log.exists()
        else []
    )


def tried(name: str) -> dict[str, Any]:
    (document,) = store.names(store.TRIED, f"{name}-")
    (record,) = store.read(store.TRIED, document)["records"].values()
    found: dict[str, Any] = record["tried"]
    return found


def chosen(kernel: Planted) -> Config | None:
    problem = planted.SHAPES[0].problem()
    found = tuned.lookup(problem, DEVICE, (kernel,), PRIORS, UNMEASURED)
    return found[kernel.name].config if kernel.name in found else None


@pytest.mark.parametrize("fault", [fault for fault in FAULTS if fault > 1], ids=FAULTS.get)
def test_a_faulty_candidate_costs_itself_is_remembered_and_unless_late_never_tried_again(
    fault: int, tmp_path: Path
) -> None:
    hangs = fault == HANGS
    ends = hangs or "died" in FAULTS[fault]  # each costs a process
    kernel = Planted(faults=(1, fault), unrolls=(1,) if ends else (1, 2, 4))
    log = tmp_path / "log"
    (result,) = tune(kernel, log, workshop=Patient(planted.command(log), 0.2))
    assert result.config == BEST
    assert chosen(kernel) == BEST
    failures = {text: why for text, why in tried("planted").items() if isinstance(why, str)}
    assert failures
    assert result.failed == len(failures)
    for text, why in failures.items():
        assert json.loads(text)["vector"] == fault
        assert FAULTS[fault] in why
    before = len(asked(log))
    (again,) = tune(kernel, log, workshop=Patient(planted.command(log), 0.2))
    assert again.config == BEST
    retried = {config.get("vector", 1) for config in asked(log)[before:]}
    assert retried <= ({1, fault} if hangs else {1})


def test_a_candidate_is_late_in_three_tuners_before_it_counts_as_one_that_hangs() -> None:
    """Whatever shapes they tune for; one that answers in a later tuner has a time as any other."""
    kernel = Planted()
    task = planted.task(kernel)
    others = (task, replace(task, shapes=(Shape(600, 600, 600),)), task, task)
    space = Space.of(kernel, task.shapes[0].problem(), DEVICE)
    assert space is not None
    late, slow, wrong = space.default, BEST, replace(BEST, unroll=2)
    asked_again = []
    for count, other in enumerate(others):
        known = Known("planted-late", other, space, fresh=count % 2 == 0)
        asked_again.append([known.answer(config) is None for config in (late, slow, wrong)])
        if asked_again[-1][0]:
            known.add(late, f"{LATE} 20 s")
        known.add(slow, [7.0] if count else f"{LATE} 20 s")
        known.add(wrong, "wrong numbers")
    assert [again for again, _, _ in asked_again] == [True, True, True, False]
    assert [again for _, _, again in asked_again] == [True, False, False, False]
    assert Known("planted-late", task, space, fresh=False).answer(slow) == [7.0]


def test_who_loses_on_one_shape_stands_behind_who_gains_less_on_all() -> None:
    """The proof would refuse the first; one that was given up on its way stands last of all."""
    kernel = Planted()
    task = planted.task(kernel)
    space = Space.of(kernel, task.shapes[0].problem(), DEVICE)
    assert space is not None
    known = Known("planted-loses", task, space, fresh=True)
    known.add(space.default, [1.0, 1.0])
    loses, gains, hopeless = (replace(BEST, unroll=unroll) for unroll in (1, 2, 4))
    known.add(loses, [0.5, 1.21])
    known.add(gains, [0.9, 0.81])
    known.add(hopeless, [0.9])
    assert known.score(gains) == pytest.approx((0.9 * 0.81) ** 0.5)
    assert known.score(loses) == pytest.approx((0.5 * 1.21) ** 0.5 * 1.21**2)
    assert known.finalists()[:3] == [space.default, gains, loses]
    assert known.ratio == known.score(gains)
    assert known.best_seconds == [0.9, 0.81]
    assert float(known.score(hopeless)) > float(known.score(loses))


def test_illegal_candidates_are_pruned_before_they_cost_anything(tmp_path: Path) -> None:
    tune(Planted(), tmp_path / "log")
    assert asked(tmp_path / "log")
    assert all(config["micro_m"] != 2 for config in asked(tmp_path / "log"))


def test_no_candidate_is_measured_twice(tmp_path: Path) -> None:
    tune(Planted(), tmp_path / "log")
    lines = [json.dumps(config) for config in asked(tmp_path / "log")]
    assert len(lines) == len(set(lines)) == 15  # 5 legal sizes, 3 times unrolled


class WrongAtTheEdge:
    """A real kernel that leaves out the last step of k where its configuration says so."""

    def __init__(self, real: Any) -> None:
        self._real = real

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)

    def lower(self, problem: Problem, device: Device, config: Config) -> Step:
        cut = problem.k - (config.unroll == 2)
        step: Step = self._real.lower(replace(problem, k=cut), device, config)
        return step


def test_wrong_numbers_of_a_real_kernel_are_found_before_its_speed(opencl_device: Device) -> None:
    backend = backend_of(opencl_device)
    naive = next(k for k in backend.kernels(opencl_device) if k.name == "naive")
    trial, ragged = (
        Trial(Shape(*sides), opencl_device, backend) for sides in ((64,) * 3, (67, 31, 53))
    )
    kernel: Any = WrongAtTheEdge(naive)
    right = worker.measured({}, kernel, [trial, ragged], ragged, [])
    assert [seconds > 0 for seconds in right["seconds"]] == [True, True]
    assert len(worker.measured({}, kernel, [trial, ragged], ragged, [1e-9, 1.0])["seconds"]) == 1
    wrong = worker.measured({"unroll": 2}, kernel, [trial], ragged, [])
    assert wrong["failure"].startswith("wrong numbers: error ")


def test_the_memory_that_a_device_lacks_is_a_failure_and_no_end(opencl_device: Device) -> None:
    def too_much(request: Any) -> dict[str, Any]:
        backend_of(opencl_device).allocate(1 << 56, opencl_device, "allocate")
        return {}

    assert worker._guarded(too_much, {})["failure"].startswith("out of memory: ")


def in_process(
    *arguments: str, shell: tuple[str, ...] = (), **environment: str
) -> subprocess.Popen[bytes]:
    command = [*shell, sys.executable, "-m", planted.__name__, *arguments]
    root = Path(__file__).parents[2]
    return subprocess.Popen(command, env={**os.environ, **environment}, cwd=root)


def test_a_killed_tuner_is_resumed_where_it_was(tmp_path: Path) -> None:
    process = in_process("tune", "planted", "600", PLANTED_HOLDS="6")
    wait_until(lambda: bool(store.names(store.TRIED)) and len(tried("planted")) == 5)
    process.kill()
    process.wait()
    (tmp_path / "cache" / "go").touch()
    before = set(tried("planted"))
    assert chosen(Planted()) is None
    tuned.forget()
    (result,) = tune(Planted(), tmp_path / "log", resume=True)
    assert result.config == BEST
    assert chosen(Planted()) == BEST
    again = {json.dumps(config, sort_keys=True) for config in asked(tmp_path / "log")}
    assert again & before == set()
    assert again | before == set(tried("planted"))


def test_a_finished_task_is_passed_over_on_resume(tmp_path: Path) -> None:
    tune(Planted(), tmp_path / "log")
    before = len(asked(tmp_path / "log"))
    assert tune(Planted(), tmp_path / "log", resume=True) == []
    assert len(asked(tmp_path / "log")) == before


def test_a_larger_budget_goes_on_where_a_smaller_one_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a clock that only candidates move on, a quarter of a second each."""
    log = tmp_path / "log"
    clock = SimpleNamespace(monotonic=lambda: 0.25 * len(asked(log)))
    monkeypatch.setattr(tuner_module, "time", clock)

    def tuned_for(budget: float) -> list[Result]:
        made = planted.tuner(Near(log), budget, resume=True)
        made._began = clock.monotonic()
        return made.run([planted.task(Planted())])

    tuned_for(4.0)
    before = len(asked(log))
    assert before == 12  # seven tenths of the budget are the search's
    assert tuned_for(0.5) == []
    assert len(asked(log)) == before
    (result,) = tuned_for(600.0)
    assert result.config == BEST
    assert len(asked(log)) == 15


def test_a_worker_left_behind_ends(tmp_path: Path) -> None:
    process = in_process("tune", "planted", "600", PLANTED_HOLDS="1")
    wait_until(lambda: bool(list((tmp_path / "cache").glob("planted-*.log"))))
    process.kill()
    process.wait()
    assert _workers_of(tmp_path)
    (tmp_path / "cache" / "go").touch()
    wait_until(lambda: not _workers_of(tmp_path))


def wait_until(reached: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 600
    while not reached():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def _workers_of(folder: Path) -> list[str]:
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            text = path.read_bytes().decode(errors="replace")
        except OSError:
            continue
        found += [text] if "worker" in text and str(folder) in text else []
    return found


def test_two_tuners_at_once_both_keep_what_they_found(tmp_path: Path) -> None:
    names = ("first", "second", "first")  # two of them on the same kernel
    running = [in_process("tune", name, "600", PLANTED_HOLDS="1") for name in names]
    wait_until(lambda: len(list((tmp_path / "cache").glob("*.log"))) == 3)
    (tmp_path / "cache" / "go").touch()
    assert [process.wait(timeout=600) for process in running] == [0, 0, 0]
    for name in ("first", "second"):
        assert chosen(Planted(name)) == BEST
        assert len(tried(name)) == 15
    logs = list((tmp_path / "cache").glob("first-*.log"))
    assert len(logs) == 2
    for log in logs:
        assert {json.dumps(c, sort_keys=True) for c in asked(log)} <= set(tried("first"))


@pytest.mark.parametrize("folder", [store.TUNED, store.TRIED])
def test_a_store_cut_in_half_is_set_aside_and_tuned_anew(
    folder: str, own_store: Path, tmp_path: Path
) -> None:
    tune(Planted(), tmp_path / "log")
    (path,) = (own_store / folder).glob("*.json")
    path.write_text(path.read_text(encoding="utf-8")[: path.stat().st_size // 2])
    tuned.forget()
    with pytest.warns(CacheWarning, match=f"{path.name}.*set aside"):
        (result,) = tune(Planted(), tmp_path / "log")
    assert path.with_suffix(".damaged").exists()
    assert result.config == BEST
    assert chosen(Planted()) == BEST


# What `nohup` and a shell's `&` make of a command, a suite too: Ctrl-C is not heard.
IGNORING = ("sh", "-c", "trap '' INT; exec \"$@\"", "sh")


@pytest.mark.parametrize("shell", [(), IGNORING], ids=["as it is", "a shell that ignores it"])
def test_ctrl_c_keeps_what_was_found(shell: tuple[str, ...], own_store: Path) -> None:
    process = in_process("tune", "planted", "600", shell=shell, PLANTED_HOLDS="5")
    wait_until(lambda: bool(store.names(store.TRIED)) and len(tried("planted")) == 4)
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=600) == 0
    assert len(tried("planted")) == 4  # the fifth has no time, and did not fail either
    best = min(value[0] for value in tried("planted").values())
    found = chosen(Planted())
    assert found is not None
    assert planted.seconds(found.changed) == best


def test_ctrl_c_during_a_proof_keeps_what_was_proved_before(tmp_path: Path) -> None:
    class Interrupted(Near):
        def ask(self, request: Any) -> dict[str, Any]:
            if request["do"] == "duel" and request["kernel"] == "second":
                raise KeyboardInterrupt
            return super().ask(request)

    first, second, third = (Planted(name) for name in ("first", "second", "third"))
    with Interrupted(tmp_path / "log") as workshop:
        tuner = planted.tuner(workshop, 600.0)
        results = tuner.run([planted.task(kernel) for kernel in (first, second, third)])
    assert tuner.interrupted
    assert [result.task.kernel for result in results] == [first]
    assert (chosen(first), chosen(second), chosen(third)) == (BEST, None, None)
    assert len(tried("second")) == 15


def test_a_proof_may_take_as_long_as_its_candidates_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PLANTED_DUEL_SECONDS", "0.5")
    log = tmp_path / "log"
    (result,) = tune(Planted(), log, workshop=Patient(planted.command(log), 0.3))
    assert result.config == BEST
    assert chosen(Planted()) == BEST


def test_times_of_other_shapes_are_none_of_these_and_failures_stay(tmp_path: Path) -> None:
    """Not even for a tuner that resumes where one of other shapes was killed or had ended."""
    kernel = Planted(faults=(1, 4))
    tune(kernel, tmp_path / "log")
    before = len(asked(tmp_path / "log"))
    other = replace(planted.task(kernel), shapes=(Shape(600, 600, 600),))
    problem = other.shapes[0].problem()
    space = Space.of(kernel, problem, DEVICE)
    assert space is not None
    name = tuned.document_name(kernel, problem, DEVICE, PRIORS)
    Known(name, other, space, fresh=True).add(space.default, [7.0])
    resumed = Known(name, other, space, fresh=False)
    assert resumed.timed == 1
    assert resumed.failed == 15
    assert resumed.spent == 0.0
    assert before == 30


def test_a_configuration_that_loses_on_one_shape_is_not_adopted(tmp_path: Path) -> None:
    class OneSided(Near):
        def ask(self, request: Any) -> dict[str, Any]:
            if request["do"] == "duel" and request["shapes"][0]["m"] == planted.SHAPES[1].m:
                return {"seconds": [1.0, *(1.1 for _ in request["configs"][1:])]}
            return super().ask(request)

    with OneSided(tmp_path / "log") as workshop:
        (result,) = planted.tuner(workshop, 600.0).run([planted.task(Planted())])
    assert (result.config, result.ratio) == (Config(micro_m=8), 1.0)
    assert chosen(Planted()) == Config(micro_m=8)


@pytest.mark.parametrize(
    ("does", "dying", "why"),
    [
        ("print('{', end='', flush=True); os._exit(3)", 600.0, "the worker ended with status 3"),
        ("os.close(1); time.sleep(600)", 0.1, "the worker hung up and was alive 0.1 s later"),
    ],
    ids=["half an answer", "a closed pipe"],
)
def test_a_worker_that_ends_in_the_middle_is_a_failure_and_is_replaced(
    does: str, dying: float, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tilewright.tuning.workshop.DYING_SECONDS", dying)
    script = f"import os, time; input(); print('{{}}', flush=True); input(); {does}"
    with Workshop((sys.executable, "-c", script)) as workshop:
        assert workshop.greet({"do": "hello"}) == {}
        assert workshop.ask({"do": "measure"}) == {"failure": why}
        assert workshop.ask({"do": "measure"}) == {"failure": why}


def test_a_worker_that_never_starts_is_one_error_and_no_failure_of_candidates() -> None:
    with (
        Workshop((sys.executable, "-c", "raise SystemExit(3)")) as workshop,
        pytest.raises(DeviceError, match="no worker: the worker ended with status 3"),
    ):
        planted.tuner(workshop, 600.0).run([planted.task(Planted())])
    assert store.names(store.TRIED) == ()


def test_tuning_without_a_cache_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILEWRIGHT_CACHE", "off")
    with pytest.raises(CacheError, match="TILEWRIGHT_CACHE='off'"):
        Tuner(DEVICE, PRIORS, Workshop(), 1.0).run([planted.task(Planted())])


@pytest.mark.parametrize(("share", "again"), [(0.0, True), (0.899, True), (0.9, False)])
def test_what_was_searched_for_nine_tenths_of_its_time_is_not_searched_again(
    share: float, again: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its time is seven tenths of its share; the rest is the proof's."""
    searched: list[float] = []
    wanted = 100.0 * 0.7
    known: Any = SimpleNamespace(spent=share * wanted, finish=lambda seconds: None)
    monkeypatch.setattr(tuner_module, "Known", lambda *given, **more: known)
    monkeypatch.setattr(Tuner, "_search", lambda self, *given: searched.append(given[-1]))
    monkeypatch.setattr(Tuner, "_prove", lambda self, *given: searched.append(given[-1]))
    made = planted.tuner(Workshop(), 1e6, resume=True)
    made._run_task(planted.task(Planted()), 100.0)
    assert searched == ([wanted, 100.0 - wanted] if again else [])
