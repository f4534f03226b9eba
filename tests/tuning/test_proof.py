"""The proof: who is adopted, and who is not, whatever happens in the duels."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest

from tests.support import planted
from tests.support.planted import Planted
from tilewright.facts.kernel import Config
from tilewright.tuning import store, worker
from tilewright.tuning.proof import Proved, keep, prove
from tilewright.tuning.tasks import Task
from tilewright.tuning.trial import Shape, Trial
from tilewright.tuning.tuned import config_from_json

DEFAULT, FAST, FASTER = (Config(micro_m=size) for size in (8, 6, 4))
SHAPES = (Shape(512, 512, 512), Shape(500, 500, 500), Shape(768, 768, 768))


class Duels:
    """A workshop in which `fails(config, m)` says who dies, is late or wrong on a shape."""

    timeout = 1.0

    def __init__(self, fails: Any = lambda config, m: False) -> None:
        self.fails = fails
        self.asked: list[tuple[int, int]] = []

    def ask(self, request: Mapping[str, Any]) -> dict[str, Any]:
        (shape,) = request["shapes"]
        configs = [config_from_json(one) for one in request["configs"]]
        self.asked.append((shape["m"], len(configs)))
        assert request["timeout"] == len(configs) * self.timeout + request["seconds"]
        if any(self.fails(config, shape["m"]) for config in configs):
            return {"failure": "the worker died of SIGSEGV"}
        return {"seconds": [1e-3 * config.micro_m for config in configs]}


def proved(duels: Any, kernel: Planted | None = None) -> Proved | None:
    task = Task(kernel or Planted(), "large", SHAPES)
    configs = (DEFAULT, FAST, FASTER)
    return prove(task, configs, planted.DEVICE, duels, {"seconds": 2.0})


def test_the_fastest_wins_with_its_ratio_on_every_shape() -> None:
    found = proved(Duels())
    assert found is not None
    assert found.config == FASTER
    assert found.ratios == (0.5, 0.5, 0.5)
    assert found.ratio == pytest.approx(0.5)
    assert (found.seconds, found.default_seconds) == (4e-3, 8e-3)
    assert found.dueled == (DEFAULT, FAST, FASTER)


@pytest.mark.parametrize("shape", [shape.m for shape in SHAPES])
def test_who_fails_on_one_shape_is_out_and_the_next_best_is_proved_on_all(shape: int) -> None:
    """A finalist that dies on two of three shapes was adopted on the third."""
    found = proved(Duels(lambda config, m: config == FASTER and m == shape))
    assert found is not None
    assert found.config == FAST
    assert found.ratios == (0.75, 0.75, 0.75)


def test_where_all_finalists_fail_the_default_stays() -> None:
    found = proved(Duels(lambda config, m: config != DEFAULT and m == SHAPES[-1].m))
    assert found is not None
    assert (found.config, found.ratio, found.ratios) == (DEFAULT, 1.0, (1.0, 1.0, 1.0))


@pytest.mark.parametrize("shape", [shape.m for shape in SHAPES])
def test_where_the_default_cannot_be_timed_nothing_is_adopted(shape: int) -> None:
    assert proved(Duels(lambda config, m: config == DEFAULT and m == shape)) is None


def test_who_fails_only_in_company_does_not_stop_the_proof() -> None:
    """All three at once are too much; two at a time are not."""

    class Crowded(Duels):
        def ask(self, request: Mapping[str, Any]) -> dict[str, Any]:
            crowd = len(request["configs"]) > 2
            return {"failure": "out of memory"} if crowd else super().ask(request)

    found = proved(Crowded())
    assert found is not None
    assert found.config == DEFAULT  # nobody lost, and nobody was timed beside all others


def test_what_is_not_legal_on_a_shape_leaves_that_shape_to_the_default() -> None:
    class OnlyLarge(Planted):
        def resources(self, config: Config, problem: Any) -> Any:
            return super().resources(
                Config(micro_m=2) if config == FASTER and problem.m == 500 else config, problem
            )

    duels = Duels()
    found = proved(duels, OnlyLarge())
    assert found is not None
    assert duels.asked == [(512, 3), (500, 2), (768, 3)]
    assert found.config == FASTER
    assert found.ratios == (0.5, 1.0, 0.5)


def test_a_duel_checks_the_numbers_of_everybody_on_its_shape() -> None:
    """A candidate that was given up on its first shape was never checked on the others."""

    class Checked(Trial):
        def __init__(self) -> None:
            self.problem, self.device = SHAPES[0].problem(), planted.DEVICE

        def wrong(self, plan: Any) -> str:
            return "wrong numbers: error 1" if plan.step.config == FASTER else ""

        def seconds(self, plan: Any) -> float:
            return float(plan.step.config.micro_m)

    kernel, trial = Planted(), Checked()
    right = worker.dueled([{"micro_m": 8}, {"micro_m": 6}], kernel, trial, 3, 1.0)
    assert right == {"seconds": [8.0, 6.0]}
    wrong = worker.dueled([{"micro_m": 8}, {"micro_m": 4}], kernel, trial, 3, 1.0)
    assert wrong == {"failure": "wrong numbers: error 1"}


class Shaped(Trial):
    """A trial that takes a second, whose numbers are as they are said to be."""

    def __init__(self, wrong: bool) -> None:
        self.problem, self.device = SHAPES[0].problem(), planted.DEVICE
        self._wrong = wrong
        self.timed = 0

    def wrong(self, plan: Any) -> str:
        return "wrong numbers: error 1" if self._wrong else ""

    def seconds(self, plan: Any) -> float:
        self.timed += 1
        return 1.0


@pytest.mark.parametrize("bad", [None, 0, 1, 2], ids=["none", "ragged", "first", "second"])
def test_a_candidate_is_right_on_ragged_edges_and_on_every_shape_or_has_no_time(
    bad: int | None,
) -> None:
    """A result that is wrong on one of them alone is found, before it is timed there."""
    ragged, *trials = (Shaped(place == bad) for place in range(3))
    found = worker.measured({"micro_m": 4}, Planted(), trials, ragged, [])
    if bad is None:
        assert found == {"seconds": [1.0, 1.0]}
    else:
        assert found == {"failure": "wrong numbers: error 1"}
        assert [trial.timed > 0 for trial in trials] == [bad == 2, False]


@pytest.mark.parametrize(
    ("dueled", "ratio", "stays"),
    [
        ((DEFAULT, FAST), 0.4, True),
        ((DEFAULT, FASTER), 0.4, False),
        ((DEFAULT, FAST), 0.6, False),
        ((DEFAULT, FAST), 0.5, False),
    ],
    ids=["better and absent", "beaten in turns", "worse", "as good and older"],
)
def test_a_better_record_that_took_no_part_outlives_the_winner(
    dueled: tuple[Config, ...], ratio: float, stays: bool
) -> None:
    name = f"planted-outlives-{len(dueled)}-{ratio}-{stays}"
    task = Task(Planted(), "large", SHAPES)
    stored = Proved(FASTER, ratio, 1.0, 2.0, (DEFAULT, FASTER), (ratio,) * 3)
    keep(stored, task, name, {})
    keep(Proved(FAST, 0.5, 1.0, 2.0, dueled, (0.5,) * 3), task, name, {})
    record = store.read(store.TUNED, name)["records"][task.record]
    assert config_from_json(record["config"]) == (FASTER if stays else FAST)
    assert record["ratio"] == (ratio if stays else 0.5)


class Clocked:
    """A trial whose plans take the seconds that they are named by, and what was run."""

    def __init__(self) -> None:
        self.ran: list[float] = []
        self.now = 0.0

    def seconds(self, plan: float) -> float:
        self.ran.append(plan)
        self.now += plan
        return plan


@pytest.fixture
def clocked(monkeypatch: pytest.MonkeyPatch) -> Any:
    trial = Clocked()
    monkeypatch.setattr(worker.time, "perf_counter", lambda: trial.now)
    return trial


class Slowing(Clocked):
    """One whose machine slows down steadily, and interrupts two runs of three."""

    def seconds(self, plan: float) -> float:
        taken = super().seconds(plan) * (1 + 0.01 * len(self.ran))
        return taken if len(self.ran) % 3 == 2 else 50 * taken


@pytest.mark.parametrize("ratio", [0.5, 1.0, 2.0])
def test_a_machine_that_slows_down_and_interrupts_favours_no_plan(ratio: float) -> None:
    plans: Any = [1e-4, ratio * 1e-4]
    first, second = worker._duel(plans, Slowing(), 4, 10.0)  # type: ignore[arg-type]
    assert second / first == pytest.approx(ratio)


@pytest.mark.parametrize(("limit", "rounds"), [(0.0, 3), (8.9, 3), (9.1, 4), (11.9, 4), (100.0, 6)])
def test_a_duel_ends_after_three_rounds_that_take_too_long(
    clocked: Any, limit: float, rounds: int
) -> None:
    """Long plans run once a turn: three seconds a round here."""
    plans: Any = [1.0, 2.0]
    assert worker._duel(plans, clocked, 6, limit) == plans
    assert len(clocked.ran) == 2 + 2 * rounds


def test_the_median_of_all_turns_counts_in_a_duel() -> None:
    taken = {"a": iter([9.0, 5.0, 1.0, 2.0]), "b": iter([9.0, 4.0, 4.0, 8.0])}
    trial: Any = SimpleNamespace(seconds=lambda plan: next(taken[plan]))
    assert worker._duel(["a", "b"], trial, 3, 1e9) == [2.0, 4.0]  # type: ignore[list-item]


def test_a_candidate_past_the_cutoff_runs_once_and_others_for_a_while(clocked: Any) -> None:
    fewest, most = worker._REPEATS
    for seconds, cutoff, runs in (
        (1.0, 0.9, 1),
        (1.0, 1.0, 1 + fewest),
        (worker._BLOCK_SECONDS / 7.5, 9.0, 1 + 7),
        (1e-9, 9.0, 1 + most),
    ):
        clocked.ran.clear()
        assert worker._least(seconds, clocked, cutoff) == seconds  # type: ignore[arg-type]
        assert len(clocked.ran) == runs
    falling = iter([5.0, 4.0, 3.0, 2.0, 1.0] + [6.0] * 100)
    trial: Any = SimpleNamespace(seconds=lambda plan: next(falling))
    assert worker._least(None, trial, 9.0) == min([5.0, 4.0, 3.0, 2.0, 1.0][: 1 + fewest])  # type: ignore[arg-type]


def test_the_seconds_of_a_proof_are_those_of_its_first_shape() -> None:
    class Longer(Duels):
        def ask(self, request: Mapping[str, Any]) -> dict[str, Any]:
            (shape,) = request["shapes"]
            found = super().ask(request)["seconds"]
            return {"seconds": [seconds * shape["m"] for seconds in found]}

    found = proved(Longer())
    assert found is not None
    assert (found.seconds, found.default_seconds) == (4e-3 * 512, 8e-3 * 512)
