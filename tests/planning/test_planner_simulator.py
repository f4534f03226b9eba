"""The model of the scheduler: exact simulation, fast prediction, and orders held to both."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.planning.test_planner import CPU, GPU, GRID, TILES
from tilewright import suites
from tilewright.planning import grouped
from tilewright.planning.grouped import GroupedLayout, lay_out
from tilewright.planning.makespan import (
    EXACT_TILES,
    LONG_RUN,
    Runs,
    Slots,
    lower_bound,
    predict,
    simulate,
)
from tilewright.planning.order import ORDERS
from tilewright.suites import zipf

queues = st.lists(
    st.tuples(
        st.one_of(st.integers(0, 5), st.integers(LONG_RUN - 2, 5 * LONG_RUN)),
        st.one_of(st.sampled_from([0.0, 1.0, 2.0, 100.0]), st.floats(1e-3, 50.0)),
    ),
    max_size=12,
)
slot_counts = st.sampled_from([(1, 1), (2, 1), (3, 2), (64, 1), (64, 4), (100, 50)])


def runs_of(queue: list[tuple[int, float]]) -> Runs:
    return Runs.of([count for count, _ in queue], [seconds for _, seconds in queue])


def plainly(runs: Runs, slots: Slots) -> tuple[float, np.ndarray]:
    """List scheduling as one would write it down: every tile to the slot that is free first."""
    free = np.zeros(slots.count)
    busy = np.zeros(slots.compute_units)
    for seconds in np.repeat(runs.seconds, runs.counts):
        slot = int(np.argmin(free))
        free[slot] += seconds
        busy[slot % slots.compute_units] += seconds
    return free.max(), busy


@given(queues, slot_counts)
def test_simulation_is_list_scheduling(
    queue: list[tuple[int, float]], size: tuple[int, int]
) -> None:
    runs, slots = runs_of(queue[:4]), Slots(*size)
    result = simulate(runs, slots)
    makespan, busy = plainly(runs, slots)
    assert result.makespan == makespan
    assert np.allclose(result.unit_seconds, busy, rtol=1e-12)


def test_first_tiles_go_round_the_units() -> None:
    result = simulate(Runs.of([1] * 5, [1.0, 2.0, 3.0, 4.0, 5.0]), Slots(4, 2))
    assert result.unit_seconds.tolist() == [6.0, 2.0, 3.0, 4.0]


@given(queues, slot_counts)
def test_prediction_is_exact_for_short_queues(
    queue: list[tuple[int, float]], size: tuple[int, int]
) -> None:
    # Twelve runs, each counting as LONG_RUN at most, are within what is simulated exactly.
    assert 12 * LONG_RUN <= EXACT_TILES
    runs, slots = runs_of(queue), Slots(*size)
    assert predict(runs, slots) == pytest.approx(simulate(runs, slots).makespan, rel=1e-9)


@given(st.integers(0, 2**32 - 1), slot_counts)
def test_prediction_is_exact_for_many_unlike_tiles(seed: int, size: tuple[int, int]) -> None:
    random = np.random.default_rng(seed)
    # Lengths over four decades: short tiles queue up behind one another beside long ones.
    runs = Runs(random.integers(0, 4, 1000), 10.0 ** random.uniform(-3, 1, 1000))
    slots = Slots(*size)
    assert predict(runs, slots) == pytest.approx(simulate(runs, slots).makespan, rel=1e-9)


@given(queues, slot_counts)
def test_no_order_is_below_the_bound(queue: list[tuple[int, float]], size: tuple[int, int]) -> None:
    slots = Slots(*size)
    queue = sorted(queue, key=lambda run: -run[1])
    bound = lower_bound(runs_of(queue), slots) * (1 - 1e-9)
    for order in (queue, queue[::-1], queue[::2] + queue[1::2]):
        assert simulate(runs_of(order), slots).makespan >= bound


def test_bound_is_reached_by_equal_tiles() -> None:
    for count in (1, 255, 256, 257, 1000):
        runs = Runs.of([count], [3.0])
        assert lower_bound(runs, GPU) == simulate(runs, GPU).makespan == 3.0 * -(-count // 256)


@pytest.mark.parametrize("units", [2, 64, 256])
@pytest.mark.parametrize("order", ["given", "descending", "ascending"])
def test_prediction_of_long_queues(units: int, order: str) -> None:
    slots = Slots(units)
    for seed in range(8):
        random = np.random.default_rng(seed)
        counts, seconds = random.integers(1, 60, 600), random.integers(1, 257, 600) + 8.0
        if order != "given":
            sort = np.argsort(-seconds if order == "descending" else seconds)
            counts, seconds = counts[sort], seconds[sort]
        runs = Runs(counts, seconds)
        assert counts.sum() > EXACT_TILES
        exact, found = simulate(runs, slots).makespan, predict(runs, slots)
        assert found == pytest.approx(exact, rel=0.002)
        assert found >= max(runs.work / slots.count, seconds.max())


def test_one_slot_takes_no_less_than_all_work_not_even_by_rounding() -> None:
    for seed in range(20):
        random = np.random.default_rng(seed)
        runs = Runs(random.integers(1, 60, 600), random.uniform(0.1, 1, 600)).merged()
        assert predict(runs, Slots(1)) >= runs.work


def test_prediction_of_skewed_long_queues() -> None:
    """The hard case: a few tiles as long as the ideal makespan among 20,000 short ones."""
    for seed in range(10):
        m, n, k = zipf.up_to(4096, 1.5, 10_000, seed)
        auto = lay_out(m, n, k, TILES, GRID)
        best = auto.simulated()
        for order in ORDERS:
            layout = lay_out(m, n, k, TILES, GRID, order)
            exact = layout.simulated()
            assert layout.seconds == pytest.approx(exact, rel=0.1)
            assert best <= exact * 1.01


def test_more_slots_than_are_simulated_exactly() -> None:
    slots = Slots(1000, 8)
    random = np.random.default_rng(0)
    for count in (5000, 8000, 9000, 30_000):
        runs = Runs(np.ones(count, np.int64), random.uniform(1, 2, count))
        assert predict(runs, slots) == pytest.approx(simulate(runs, slots).makespan, rel=0.05)


def test_a_tile_longer_than_everything_else() -> None:
    lengths = np.ones(20_000)
    lengths += np.arange(20_000) * 1e-6
    for at in (0, 10_000, 19_999):
        lengths[at] = 500.0
        runs = Runs(np.ones(20_000, np.int64), lengths)
        assert predict(runs, GPU) == pytest.approx(simulate(runs, GPU).makespan, rel=0.01)
        lengths[at] = 1.0


@pytest.mark.parametrize("seeds", [range(60), range(60, 120)], ids=["first", "second"])
@pytest.mark.parametrize("family", suites.families())
def test_auto_is_never_worse_than_any_order(
    family: str, seeds: range, monkeypatch: pytest.MonkeyPatch
) -> None:
    """120 random batches of every suite, on 64 units of four groups each, simulated exactly.

    Orders that lay a batch out alike are simulated once, and so are batches that are drawn again.
    All orders are compared whichever is asked for, which is planned once for a batch and a device.
    """
    choose, compare = grouped.choices, grouped.compare
    known: dict[object, Any] = {}
    monkeypatch.setattr(
        grouped,
        "choices",
        lambda table, slots: known.get(slots) or known.setdefault(slots, choose(table, slots)),
    )

    def compared(*given: Any, only_given: bool) -> Any:
        key = given[-1], only_given
        return known.get(key) or known.setdefault(key, compare(*given, only_given=only_given))

    monkeypatch.setattr(grouped, "compare", compared)
    names = suites.families()[family]
    seen = set()
    for seed in seeds:
        batch = suites.load(names[seed % len(names)], seed)
        drawn = tuple(column.tobytes() for column in (batch.m, batch.n, batch.k))
        if drawn in seen:
            continue
        seen.add(drawn)
        known.clear()
        for slots in (GPU, GRID):
            sizes = batch.m, batch.n, batch.k, TILES, slots
            auto = lay_out(*sizes)
            asked = [lay_out(*sizes, order) for order in ORDERS]
            assert auto.seconds == min(layout.seconds for layout in asked)
            unlike: dict[tuple[bytes, bytes, float], GroupedLayout] = {}
            for layout in (auto, *asked):
                runs = layout._taken.runs
                alike = runs.counts.tobytes(), runs.seconds.tobytes(), layout._taken.fixed
                unlike.setdefault(alike, layout)
            found, *others = [layout.simulated() for layout in unlike.values()]
            best = min([found, *others])
            assert found <= best * (1 + 1e-9), (batch.name, seed, slots)


@pytest.mark.parametrize("name", ["uniform-1-64", "uniform-64-512", "zipf-512"])
def test_auto_is_never_worse_on_a_cpu(name: str) -> None:
    for seed in range(20):
        batch = suites.load(name, seed)
        times = [
            lay_out(batch.m, batch.n, batch.k, TILES, CPU, order).simulated()
            for order in ("auto", *ORDERS)
        ]
        assert times[0] <= min(times) * (1 + 1e-3)


@pytest.mark.parametrize("joined", [1, LONG_RUN, 2 * LONG_RUN])
def test_the_longest_queue_that_is_simulated_is_simulated_exactly(joined: int) -> None:
    """4096 tiles, a run of equal ones counting as 128 at most; of one more the end alone is."""
    slots, draw = Slots(300), np.random.default_rng(7)
    runs = 4096 // min(joined, LONG_RUN)
    exact = []
    for count in (runs, runs + 1):
        seconds = np.append(draw.uniform(1, 2, count - 1), 90.0)
        queue = Runs(np.full(count, joined), seconds)
        exact.append(predict(queue, slots) == pytest.approx(simulate(queue, slots).makespan, 1e-12))
    assert exact == [True, False]
