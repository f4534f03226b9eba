"""What a tuner remembers of candidates: scores worked out by hand, who goes on to the proof."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.support import planted
from tests.support.planted import Planted
from tilewright.facts.kernel import Config
from tilewright.tuning.known import Known
from tilewright.tuning.search import Space
from tilewright.tuning.tasks import Task
from tilewright.tuning.trial import Shape

pytestmark = pytest.mark.usefixtures("own_store")
SHAPES = (Shape(512, 512, 512), Shape(500, 500, 500), Shape(768, 768, 768))
DEFAULT = Config(micro_m=8)


def candidate(micro_m: int, unroll: int = 1) -> Config:
    return Config(micro_m=micro_m, unroll=unroll)


def known(*, fresh: bool = False, shapes: tuple[Shape, ...] = SHAPES) -> Known:
    task = Task(Planted(), "large", shapes)
    space = Space.of(task.kernel, shapes[0].problem(), planted.DEVICE)
    assert space is not None
    return Known("planted-known", task, space, fresh=fresh)


def scored(seconds: Sequence[float], default: Sequence[float] | None = (2.0, 4.0, 8.0)) -> float:
    found = known()
    if default is not None:
        found.add(DEFAULT, list(default))
    found.add(candidate(6), list(seconds))
    score = found.score(candidate(6))
    assert isinstance(score, float)
    return score


def test_a_score_is_the_geometric_mean_of_times_over_the_defaults() -> None:
    assert scored([1.0, 1.0, 8.0]) == pytest.approx((0.5 * 0.25 * 1.0) ** (1 / 3))
    assert scored([2.0, 4.0, 8.0]) == pytest.approx(1.0)


def test_who_loses_on_one_shape_stands_behind() -> None:
    """Two per cent are noise; more counts squared, as the proof would refuse it."""
    assert scored([1.0, 2.0, 8.0 * 1.02]) == pytest.approx((0.25 * 1.02) ** (1 / 3))
    assert scored([1.0, 2.0, 12.0]) == pytest.approx((0.25 * 1.5) ** (1 / 3) * 1.5**2)


def test_what_was_given_up_stands_behind_all_that_was_not() -> None:
    assert scored([1.0, 2.0]) == pytest.approx(4 * (0.5 * 0.5) ** (1 / 2))
    assert scored([3.0]) == pytest.approx(4 * 1.5)


def test_where_the_default_has_no_time_seconds_are_compared() -> None:
    assert scored([1.0, 8.0], default=None) == pytest.approx(4 * 8.0 ** (1 / 2))
    # A default that was measured on fewer shapes is none to compare with.
    assert scored([1.0, 1.0, 1.0], default=(2.0, 4.0)) == pytest.approx(1.0)


def test_a_failure_is_its_own_score() -> None:
    found = known()
    found.add(DEFAULT, "wrong numbers: error 1")
    assert found.score(DEFAULT) == "wrong numbers: error 1"
    assert found.answer(DEFAULT) == "wrong numbers: error 1"
    assert (found.count, found.timed, found.failed) == (1, 0, 1)
    assert found.finalists() == []
    assert found.best_seconds == []
    assert found.ratio == 1.0


def test_the_default_and_the_four_fastest_go_on_best_first() -> None:
    found = known()
    found.add(DEFAULT, [1.0, 1.0, 1.0])
    shares = {candidate(6): 0.9, candidate(5): 0.5, candidate(4): 0.7, candidate(3): 0.6}
    shares |= {candidate(6, 2): 0.8, candidate(5, 2): 0.95}
    for config, share in shares.items():
        found.add(config, [share] * 3)
    found.add(candidate(3, 2), "out of memory")
    best = [candidate(5), candidate(3), candidate(4), candidate(6, 2)]
    assert found.finalists() == [DEFAULT, *best]
    assert found.best_seconds == [0.5] * 3
    assert found.ratio == pytest.approx(0.5)
    assert (found.count, found.timed, found.failed) == (8, 7, 1)
    assert known().seeds == best


def test_a_tuner_that_resumes_knows_times_and_a_fresh_one_only_failures() -> None:
    first = known()
    first.add(DEFAULT, [1.0, 1.0, 1.0])
    first.add(candidate(6), "wrong numbers: error 1")
    first.finish(2.5)
    again = known()
    assert again.answer(DEFAULT) == [1.0, 1.0, 1.0]
    assert again.spent == 2.5
    fresh = known(fresh=True)
    assert fresh.answer(DEFAULT) is None
    assert fresh.answer(candidate(6)) == "wrong numbers: error 1"
    assert fresh.seeds == [DEFAULT], "told where to look first"


def test_times_of_other_shapes_are_no_times_of_these() -> None:
    first = known()
    first.add(DEFAULT, [1.0, 1.0, 1.0])
    first.add(candidate(6), "wrong numbers: error 1")
    first.finish(2.5)
    other = known(shapes=SHAPES[:2])
    assert other.answer(DEFAULT) is None
    assert other.answer(candidate(6)) == "wrong numbers: error 1"
    assert other.spent == 0.0


def test_seconds_of_several_tuners_add_up() -> None:
    for seconds in (2.5, 1.5):
        found = known()
        found.add(DEFAULT, [1.0, 1.0, 1.0])
        found.finish(seconds)
    assert known().spent == 4.0


def test_nothing_is_known_of_an_empty_store(own_store: Path) -> None:
    found = known()
    assert (found.count, found.spent, found.seeds, found.finalists()) == (0, 0.0, [], [])


class Recorder:
    """A workshop that answers at once and keeps what it was asked."""

    timeout = 1.0

    def __init__(self) -> None:
        self.cutoffs: list[list[float]] = []
        self.best: list[float] = []

    def greet(self, hello: Mapping[str, Any]) -> dict[str, Any]:
        return {}

    def ask(self, request: Mapping[str, Any]) -> dict[str, Any]:
        if request["do"] == "duel":
            return {"seconds": [planted.seconds(config) for config in request["configs"]]}
        assert request["cutoffs"] == [pytest.approx(1.5 * best) for best in self.best]
        self.cutoffs.append(request["cutoffs"])
        seconds = [planted.seconds(request["config"]) * (1 + at) for at in range(2)]
        if not self.best or seconds[0] < self.best[0]:
            self.best = seconds
        return {"seconds": seconds}


def test_who_is_half_as_slow_again_as_the_best_so_far_is_given_up() -> None:
    """On each shape by the best one's time there; the first candidate runs on all."""
    recorder: Any = Recorder()
    planted.tuner(recorder, 5.0).run([planted.task(Planted())])
    assert recorder.cutoffs[0] == []
    assert len(recorder.cutoffs) > 5
    assert all(len(cutoffs) == 2 for cutoffs in recorder.cutoffs[1:])


def test_what_is_legal_nowhere_and_what_is_no_answer_is_left_out() -> None:
    first = known()
    first.add(DEFAULT, [1.0, 1.0, 1.0])
    for micro_m, answer in ((2, [0.1] * 3), (6, [0.0] * 3), (5, []), (4, [math.inf]), (3, [1])):
        first.add(candidate(micro_m), answer)  # type: ignore[arg-type]
    first.add(Config(micro_m=2, unroll=2), "wrong numbers: error 1")
    again = known()
    assert again.count == 1
    assert again.answer(DEFAULT) == [1.0, 1.0, 1.0]
