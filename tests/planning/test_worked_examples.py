"""Pieces of the planner beside plain twins, and what reports say at the edges of their units."""

from __future__ import annotations

import heapq

import numpy as np
import pytest

from tests.support import made_up
from tilewright.engines.dense import HOST_STEP
from tilewright.facts.kernel import Config, Plan, Step
from tilewright.facts.problem import Problem
from tilewright.planning import makespan
from tilewright.planning.buckets import Tile
from tilewright.planning.classes import UNMEASURED, Boundaries
from tilewright.planning.cost import Curve, roof_seconds
from tilewright.planning.deal import turns
from tilewright.planning.explain import explain
from tilewright.planning.grouped import lay_out
from tilewright.planning.makespan import Runs, Slots, lower_bound, predict, simulate
from tilewright.planning.quick import HOST_ALONE
from tilewright.tuning import narrow


def queues() -> list[tuple[Runs, int]]:
    """Seeded queues: even, uneven, sorted, long runs, runs of nothing; on one slot to three
    hundred."""
    found = []
    for seed in range(40):
        draw = np.random.default_rng(seed)
        length = int(draw.integers(1, 60))
        seconds = (draw.uniform(1, 9, length), draw.zipf(1.7, length) / 4.0)[seed % 2]
        if seed % 3 == 0:
            seconds = np.sort(seconds)[::-1]
        counts = draw.choice([0, 1, 2, 40, 200], length)
        counts[0] += 1
        found.append((Runs(counts, seconds), (1, 2, 7, 128, 300)[seed % 5]))
    return found


def twin(free: list[float], runs: Runs) -> list[float]:
    """When slots are free after these tiles, each taken by the slot that is free first."""
    heap = list(free)
    heapq.heapify(heap)
    for count, seconds in zip(runs.counts.tolist(), runs.seconds.tolist(), strict=True):
        for _ in range(count):
            heapq.heapreplace(heap, heap[0] + seconds)
    return sorted(heap)


def test_tiles_are_taken_as_one_by_one_from_wherever_the_slots_stand() -> None:
    for runs, slots in queues():
        free = np.random.default_rng(slots).uniform(0, 5, slots)
        found = makespan._advance(free.copy(), runs)
        np.testing.assert_allclose(np.sort(found), twin(free.tolist(), runs), rtol=1e-9)


def test_a_run_of_equal_tiles_is_dealt_as_one_by_one() -> None:
    for seed in range(30):
        draw = np.random.default_rng(seed)
        free, count = draw.uniform(0, 20, int(draw.integers(1, 9))), int(draw.integers(1, 40))
        found = makespan._deal(free, count, 1.5)
        runs = Runs.of([count], [1.5])
        np.testing.assert_allclose(np.sort(found), twin(free.tolist(), runs), rtol=1e-9)


def test_an_estimated_state_holds_all_work_and_no_slot_is_free_before_the_start() -> None:
    for runs, slots in queues():
        merged = runs.merged()
        assert merged.work == pytest.approx(runs.work)
        assert not np.any((merged.counts == 0) | (merged.seconds[1:] == merged.seconds[:-1]).any())
        state = makespan._state(merged, slots)
        assert len(state) == slots
        assert state.min() >= 0
        if merged.counts.sum() > 4 * slots:
            assert state.sum() == pytest.approx(runs.work, rel=0.02)


def test_a_long_tile_holds_one_slot_and_short_ones_flow_around_it() -> None:
    """20 s of short work, a tile of 30, 20 s more: the level is 10, then 30 less on one slot."""
    runs = Runs.of([20, 1, 20], [1.0, 30.0, 1.0])
    level, held = makespan._fill(runs, np.array([False, True, False]), 2)
    assert (level, held) == (30.0, [40.0])
    level, held = makespan._fill(Runs.of([20, 1, 60], [1.0, 30.0, 1.0]), np.array([0, 1, 0]) > 0, 2)
    assert (level, held) == (55.0, [])  # 30 more fill the other slot's hole, 30 lie on both


def test_a_prediction_of_a_long_queue_keeps_its_bounds() -> None:
    for seed in range(12):
        draw = np.random.default_rng(seed)
        seconds = np.concatenate((draw.uniform(0.1, 1, 9000), [200.0 if seed % 2 else 1.0]))
        runs, slots = Runs(np.ones(9001, np.int64), seconds), Slots((4, 200)[seed % 2 == 0])
        found, truth = predict(runs, slots), simulate(runs, slots).makespan
        before = np.cumsum(seconds) - seconds
        least = max(seconds.max(), seconds.sum() / slots.count)
        assert least <= found <= np.max(before / slots.count + seconds)
        assert found == pytest.approx(truth, rel=0.03)
        order = np.argsort(-seconds)
        assert lower_bound(Runs(runs.counts, seconds[order]), slots) <= truth


@pytest.mark.parametrize("many", [False, True])
def test_few_tiles_and_very_many_are_taken_in_turns(many: bool) -> None:
    few, busiest = turns(np.array([3.0, 1.0]), 4)
    assert (few.tolist(), busiest) == ([[0, 1, -1, -1]], 3.0)
    full, busiest = turns(np.array([3.0, 1.0, 2.0, 9.0]), 4)
    assert (full.tolist(), busiest) == ([[0, 1, 2, 3]], 9.0)
    if many:
        seconds = np.ones(60_001)
        rounds, busiest = turns(seconds, 7)
        assert rounds.shape == (8572, 7)
        assert rounds.ravel()[:60_001].tolist() == list(range(60_001))
        assert busiest == 8572.0


def test_empty_products_have_no_sums_whatever_their_depth() -> None:
    tiles = (Tile(64, 64, 1e9, 1e-6),)
    layout = lay_out([0, 64, 64], [64, 64, 64], [90_000, 90_000, 8], tiles, Slots(8, merge=1e-12))
    assert layout.sums.problem.tolist() == [1]
    assert layout.sums.elements == int(layout.parts[1]) * 64 * 64
    assert layout.sums.offset.tolist() == [0]


def test_caps_halve_down_to_an_eighth_of_the_ideal() -> None:
    """A product that is all the work is cut so finely that eight parts follow one another."""
    tiles = (Tile(64, 64, 1e9),)
    parts = [
        int(lay_out([64], [64], [64_000], tiles, Slots(units)).parts[0]) for units in (1, 2, 4)
    ]
    assert parts[0] == 1
    assert all(2 <= count <= 8 * units for count, units in zip(parts[1:], (2, 4), strict=True))


# What reports say.


def plain(m: int, n: int, k: int) -> Problem:
    return Problem(m, n, k, k, 1, n, 1, n, 1)


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (1e-4, "0.100 ms, "),
        (0.99e-4, "99.0 µs, "),
        (2e9 / 1e13, "0.200 ms, 10.0 TFLOP/s"),
        (2e9 / 9.99e12, "0.200 ms, 9990 GFLOP/s"),
        (None, "unknown: no measurement was asked, or none covers it"),
    ],
)
def test_times_and_rates_are_told_in_the_unit_that_fits(seconds: float | None, words: str) -> None:
    made = Plan(
        made_up.TWO_CORES, plain(1000, 1000, 1000), Step("panel", Config(), ()), seconds, ""
    )
    assert f"predicted  {words}" in explain(made)


def test_a_forced_kernel_without_a_measurement_says_that() -> None:
    step = Step("panel", Config(), ())
    made = Plan(made_up.TWO_CORES, plain(8, 8, 8), step, None, "", forced=True)
    assert "predicted  unknown: this kernel was not measured on this device" in explain(made)


def test_a_report_of_many_products_says_how_they_are_launched() -> None:
    made = Plan(made_up.TWO_CORES, plain(8, 8, 8), HOST_STEP, 1e-3, "so")
    assert "products   2 of these; the prediction is of one" in explain(made, products=2)
    assert "products" not in explain(made)


def test_nothing_is_possible_faster_than_at_once_where_no_roof_was_measured() -> None:
    assert made_up.TWO_CORES.ceilings is None
    assert roof_seconds(plain(999, 999, 999), made_up.TWO_CORES) == 0.0
    assert HOST_ALONE.is_host(9999, 9999, 9999)


def test_boundaries_are_assumed_until_both_sides_of_width_one_were_measured() -> None:
    curve = Curve(((2.0 * 1024**3, 1.0),))
    best = {("m", 1): 0.1, ("n", 1): 0.1}
    assert narrow.boundaries({}, best) == UNMEASURED
    assert narrow.boundaries({"k": curve}, {("m", 1): 0.1}) == UNMEASURED
    assert narrow.boundaries({"k": curve}, best) == Boundaries(1, 1, 0, measured=True)
