"""Visits of the real probe, and the transfer that is counted beside the curves."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.support.made_up import ADRENO_650
from tilewright import Device
from tilewright.backends import backends
from tilewright.engines.dense import plan_kernel
from tilewright.inputs.devices import host
from tilewright.planning.cost import Curve, Measured
from tilewright.tuning import crossover
from tilewright.tuning import probe as probe_module
from tilewright.tuning.probe import Probe
from tilewright.tuning.share import Room
from tilewright.tuning.trial import Shape, Trial
from tilewright.tuning.visits import HOST

OPENCL = backends()["opencl"]


def test_a_visit_multiplies_and_builds_a_program_at_a_time(intel: Device) -> None:
    """Of a kernel of three programs, a visit that has no time builds one."""
    ran: list[int] = []

    class Counting:
        def __getattr__(self, name: str) -> Any:
            return getattr(OPENCL, name)

        def time(self, plan: Any, views: Any, scalars: Any) -> Any:
            ran.append(len(plan.step.launches))
            return OPENCL.time(plan, views, scalars)

    with Probe(intel, Counting(), "float32", OPENCL.priors(intel)) as probe:  # type: ignore[arg-type]
        assert probe.kernels[0] == "panel"
        assert "local" not in probe.kernels  # its local memory would be a copy in the same memory
        point = ("panel", (64, 64, 64))
        assert probe.visit(point, 0.0, Room(0.0)) is None
        assert ran == [1]
        seconds = probe.visit(point, 0.0, Room())
        assert seconds is not None
        assert 0 < seconds < 10
        assert ran[:3] == [1, 2, 3]
        host = probe.visit((HOST, (64, 64, 64)), 0.0, Room())
        assert host is not None
        assert 0 < host < 10
        assert probe.computed("panel", (64, 64, 64)) >= 2 * 64**3
        assert probe.transfer({}) is None


@pytest.mark.parametrize("itemsize", [2, 4, 8])
def test_the_transfer_that_is_counted_is_of_the_elements_own_size(itemsize: int) -> None:
    """At 1024 the kernel is 2 ms faster, and 3 x 1024^2 elements move in 0.5 ms a byte."""
    host, kernel = (Curve(((2.0 * 1024**3, s),)) for s in (10e-3, 8e-3))
    measured = Measured(host, (("kernel", kernel),), 1e10, 3 * 1024**2 / 0.5e-3)
    assert measured.wins(itemsize) == ((1024, itemsize < 4),)


def test_bandwidth_counts_both_ways_of_the_fastest_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first copies find pages that nobody touched, others a core that is busy."""
    ends = iter([0.0, 9.0, 10.0, 12.0, 20.0, 20.5, 30.0, 31.0])
    copied: list[int] = []
    monkeypatch.setattr(probe_module.time, "perf_counter", lambda: next(ends))
    monkeypatch.setattr(
        probe_module.np, "copyto", lambda target, source: copied.append(target.nbytes)
    )
    assert probe_module.bandwidth() == pytest.approx(2 * (1 << 25) / 0.5)
    assert copied == [1 << 25] * 4


@pytest.mark.parametrize(("first", "runs"), [(1.0, 2), (0.004, 6), (1e-9, 26), (0.0, 26)])
def test_a_visit_repeats_a_product_for_a_while_and_takes_the_least(first: float, runs: int) -> None:
    """Twenty milliseconds of it: once at least, 25 times at most."""
    times = iter([first, *(first + step for step in range(1, 40))])
    taken: list[float] = []

    def run() -> float:
        taken.append(next(times))
        return taken[-1]

    assert probe_module._least(run, Room()) == first
    assert len(taken) == runs
    slow_start = iter([1.0, 0.5])
    assert probe_module._least(lambda: next(slow_start), Room()) == 0.5


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_the_transfer_is_what_a_product_takes_longer_from_the_hosts_memory(
    dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three matrices of 2048 a side in 9 ms, of which the product is 5; the first copy may wait."""
    taken = iter([0.5, 0.011, 0.009, 0.010])
    asked: list[Any] = []
    trial = SimpleNamespace(problem="problem", copied_seconds=lambda plan: next(taken))

    def own_trial(sides: Any) -> Any:
        asked.append(sides)
        return trial

    probe: Any = SimpleNamespace(
        device=replace(ADRENO_650, features=frozenset()),
        dtype=dtype,
        _by_name={"coalesced": "the kernel"},
        _trial=own_trial,
    )
    monkeypatch.setattr(probe_module, "plan_kernel", lambda *given: given)
    curve = Curve(((2.0 * 1024**3, 0.005 / 8), (2.0 * 2048**3, 0.005)))
    found = Probe.transfer(probe, {"coalesced": curve})
    assert found == pytest.approx(3 * 2048**2 * np.dtype(dtype).itemsize / 0.004)
    assert asked == [(2048, 2048, 2048)]
    assert Probe.transfer(probe, {}) is None
    probe.device = replace(ADRENO_650, features=frozenset({"unified_memory"}))
    assert Probe.transfer(probe, {"coalesced": curve}) is None


@pytest.mark.parametrize("layout", ["rows-rows", "columns-rows"])
def test_a_trial_says_what_it_holds(layout: str) -> None:
    """Three matrices here and three on the device, and the truth in doubles."""
    trial = Trial(Shape(3, 5, 7, layout=layout), host(), backends()["host"])
    assert trial.bytes == 2 * 4 * (3 * 7 + 7 * 5 + 3 * 5) + 8 * 3 * 5


@pytest.mark.parametrize("shared", [True, False])
def test_what_a_kernel_leaves_of_the_run_before_is_no_right_result(
    shared: bool, intel: Device
) -> None:
    """In the host's memory and in a device's own: a run that writes nothing is a wrong one."""
    runs = [True, False, True]

    class WritesAtTimes:
        def __getattr__(self, name: str) -> Any:
            return getattr(OPENCL, name)

        def time(self, plan: Any, views: Any, scalars: Any) -> Any:
            return OPENCL.time(plan, views, scalars) if runs.pop(0) else None

    features = intel.features | {"svm_system"} if shared else intel.features - {"svm_system"}
    device = replace(intel, features=features)
    trial = Trial(Shape(33, 20, 17), device, WritesAtTimes())  # type: ignore[arg-type]
    kernel = next(one for one in OPENCL.kernels(device) if one.name == "naive")
    plan = plan_kernel(trial.problem, device, kernel)
    assert trial.wrong(plan) == ""
    assert trial.wrong(plan).startswith("wrong numbers: error ")
    assert trial.wrong(plan) == ""


@pytest.mark.parametrize(
    ("seconds", "predicted", "seen"),
    [(0.5, 0.25, [2.0]), (0.1, 0.4, [0.25]), (0.5, None, []), (0.5, 0.0, [])],
)
def test_a_product_is_compared_with_what_its_plan_predicts(
    seconds: float, predicted: float | None, seen: list[float], monkeypatch: Any
) -> None:
    found: list[float] = []
    campaign = SimpleNamespace(saw=found.append, settled=True)
    monkeypatch.setattr(crossover, "_campaign", lambda *given: campaign)
    plan: Any = SimpleNamespace(
        device=ADRENO_650, problem=SimpleNamespace(dtype="float32"), seconds=predicted
    )
    backend: Any = SimpleNamespace(priors=lambda device: None)
    crossover.after(plan, backend, seconds, host_operands=False)
    assert found == []  # on a device it may still be at work
    crossover.after(plan, backend, seconds, host_operands=True)
    assert found == seen


@pytest.mark.parametrize(("kind", "rests"), [("cpu", [0.05]), ("gpu", [])])
def test_a_kernel_of_a_processor_waits_once_until_the_threads_of_the_blas_rest(
    kind: str, rests: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    """They spin for a while after a product; after a kernel's visit nobody does."""
    slept: list[float] = []
    monkeypatch.setattr(probe_module.time, "sleep", lambda s: slept.append(s) if s else None)
    monkeypatch.setattr(
        probe_module,
        "plan_kernel",
        lambda *given: SimpleNamespace(step=SimpleNamespace(launches=())),
    )
    trial = SimpleNamespace(
        problem="problem",
        host_seconds=lambda: 1.0,
        seconds=lambda plan: 2.0,
        wrong=lambda plan: "",
    )
    probe: Any = SimpleNamespace(
        device=replace(ADRENO_650, kind=kind),
        _by_name={"panel": "the kernel"},
        _built=set(),
        _rested=False,
        _trial=lambda sides: trial,
    )
    probe._rest = lambda name: Probe._rest(probe, name)
    visit = lambda name: Probe.visit(probe, (name, (64, 64, 64)), 0.0, Room())  # noqa: E731
    assert visit("panel") == 2.0
    assert slept == rests
    assert visit("panel") == 2.0
    assert slept == rests
    assert visit(HOST) == 1.0
    assert slept == rests
    assert visit("panel") == 2.0
    assert slept == 2 * rests


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("held", [False, True])
def test_a_visit_costs_two_runs_and_before_them_operands_that_are_drawn_and_laid_out(
    dtype: str, held: bool
) -> None:
    """At a nanosecond a byte, and 2 ms for what is drawn; nothing where they are there already."""
    sides = (1000, 500, 250)
    probe: Any = SimpleNamespace(
        dtype=dtype,
        _trials={sides: None} if held else {},
        _rest=lambda name: 0.0 if name == HOST else 0.05,
    )
    elements = 1000 * 250 + 250 * 500 + 1000 * 500
    placed = 0.0 if held else 0.002 + elements * np.dtype(dtype).itemsize * 1e-9
    for name, rest in ((HOST, 0.0), ("panel", 0.05)):
        assert Probe.cost(probe, (name, sides), 0.25) == pytest.approx(placed + rest + 0.5)


def test_the_rules_kernels_are_visited_first_and_then_what_moves_nothing_each_once() -> None:
    probe: Any = SimpleNamespace(
        _by_name=dict.fromkeys(("naive", "panel", "local", "image", "dot4"), object()),
        _moves_nothing=lambda kernel: True,
    )
    priors: Any = SimpleNamespace(kernels=("local", "of another device", "panel"))
    assert Probe._worth_it(probe, priors) == ["local", "panel", "naive", "image", "dot4"]
    probe._moves_nothing = lambda kernel: False
    assert Probe._worth_it(probe, priors) == ["local", "panel"]


@pytest.mark.parametrize(("kind", "rest"), [("cpu", 0.05), ("gpu", 0.0)])
def test_a_probe_rests_before_its_first_kernel_and_after_every_block(
    kind: str, rest: float
) -> None:
    """Whoever asked for it has just multiplied, by the same threads."""
    backend: Any = SimpleNamespace(kernels=lambda device: (), allocate=lambda *given: None)
    device: Any = SimpleNamespace(kind=kind)
    made = Probe(device, backend, "float32", SimpleNamespace(kernels=()))  # type: ignore[arg-type]
    assert (made._rest("panel"), made._rest(HOST)) == (rest, 0.0)
    with made:
        made._rested = True
        assert made._rest("panel") == 0.0
    assert made._rest("panel") == rest
