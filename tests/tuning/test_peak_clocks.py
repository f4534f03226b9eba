"""Whom a measured ceiling believes: two clocks, and repeats on a machine that others use too."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from tests.support.made_up import TWO_CORES
from tests.support.peak_probes import MIB, clocked, offered, printed
from tilewright.engines.backend import Timing
from tilewright.engines.probes import Effort, Probe
from tilewright.errors import DeviceError
from tilewright.facts.ceilings import READ, Bandwidth, Latency, Rate, Row
from tilewright.report import peaks
from tilewright.tuning import peak
from tilewright.tuning.timer import LONG_ENOUGH

TINY = Effort(seconds=2e-4, repeats=2)


@pytest.fixture
def back_end(monkeypatch: pytest.MonkeyPatch, own_store: Path) -> list[Probe]:
    return offered(monkeypatch)


@pytest.mark.parametrize(
    ("kind", "wall", "events", "clock", "lies", "value"),
    [
        ("gpu", 1e-6, 0.98e-6, "events", False, 1000 / 0.98e-6),
        ("gpu", 1e-6, 0.1e-6, "wall", True, 1000 / 1e-6),
        ("gpu", 1e-6, 2e-6, "wall", True, 1000 / 1e-6),
        ("gpu", 1e-6, None, "wall", False, 1000 / 1e-6),
        ("cpu", 1e-6, 0.98e-6, "wall", False, 1000 / 1e-6),
        ("cpu", 1e-6, 0.1e-6, "wall", True, 1000 / 1e-6),
    ],
)
def test_the_wall_clock_guards_the_devices_timer(
    kind: str, wall: float, events: float | None, clock: str, lies: bool, value: float
) -> None:
    found = peak.run(clocked(wall, events), Effort(seconds=5e-3, repeats=3), kind)
    assert (found.row.clock, found.lied) == (clock, lies)
    assert found.row.value == pytest.approx(value)


@pytest.mark.parametrize("longer", [False, True])
def test_runs_of_a_millisecond_prove_nothing_about_events_and_longer_ones_do(longer: bool) -> None:
    wall = float(np.nextafter(LONG_ENOUGH, 1)) if longer else LONG_ENOUGH

    def run(events: float) -> peak.Found:
        probe = replace(clocked(1.0, None), run=lambda rounds: Timing(events * wall, wall, 0.0))
        return peak.run(probe, Effort(seconds=1e-3, repeats=3), "gpu")

    honest, lying = run(0.9), run(0.1)
    assert (honest.row.clock, honest.lied) == ("events" if longer else "wall", False)
    assert (lying.row.clock, lying.lied) == ("wall", longer)


def test_a_latency_is_seconds_and_not_a_rate() -> None:
    probe = replace(clocked(3e-6, None, Latency("launch")), work=1.0)
    assert peak.run(probe, TINY, "cpu").row.value == pytest.approx(3e-6)


def test_a_probe_that_shares_its_cores_is_repeated_and_then_said_to_have_been_disturbed(
    back_end: list[Probe],
) -> None:
    shares = [0.5] * 12 + [1.0] * 1000

    def run(rounds: int) -> Timing:
        share = shares.pop(0)
        return Timing(None, rounds * 1e-5 / share, rounds * 2e-5)

    probe = Probe(Rate("float32", "fma", 4, 8), 1000.0, run, cores=2)
    found = peak.run(probe, TINY, "cpu")
    assert found.row.value == pytest.approx(1e8)
    assert not found.shared
    shares[:] = [0.5] * 1000
    back_end.append(probe)
    measured = peak.measure(TWO_CORES, effort=TINY)
    assert measured.busy == (str(found.row),)
    assert "something else had a part of the processor" in " ".join(
        printed(TWO_CORES, measured).split()
    )


def waiting(waits: list[float], row: Row | None = None) -> Probe:
    """A microsecond a round and 1000 operations, after so many seconds of waiting for others."""

    def run(rounds: int) -> Timing:
        return Timing(None, rounds * 1e-6 + (waits.pop(0) if waits else 0.0), 0.0)

    return Probe(row or Rate("float32", "fma", 1, 8), 1000.0, run)


@pytest.mark.parametrize("runs", [1, 2, 4])
def test_a_run_that_waited_for_others_is_not_taken_for_a_long_one(runs: int) -> None:
    """Its rounds are too few: a launch was measured, 150 times less than the chip could."""
    found = peak.run(waiting([0.03] * runs), Effort(seconds=5e-3, repeats=3), "gpu")
    assert found.row.value == pytest.approx(1e9)


@pytest.mark.parametrize("row", [Rate("float32", "fma", 1, 8), Latency("launch")])
def test_a_row_measured_beside_others_is_visited_again_when_they_have_gone(
    row: Row, back_end: list[Probe]
) -> None:
    """All of the first visit waits; the second is alone, and a third confirms it."""
    back_end.append(waiting([0.03] * 3, row))
    found = peak.measure(TWO_CORES, effort=TINY)
    (only,) = (*found.rates, *found.latencies)
    assert only.value == pytest.approx(1e9 if isinstance(row, Rate) else 1e-9)
    assert found.busy == ()


def visited(rates: list[float], row: Row) -> Probe:
    """Every visit, of a first run, one that is long enough and a repeat, finds the next rate."""
    runs = [rate for rate in rates for _ in range(3)]

    def run(rounds: int) -> Timing:
        return Timing(None, rounds * 1000.0 / (runs.pop(0) if runs else rates[-1]), 0.0)

    return Probe(row, 1000.0, run)


@pytest.mark.parametrize(
    ("rates", "value", "busy"),
    [
        ([339e3, 339e3], 339e3, False),
        ([1076e3, 339e3, 338e3, 200e3, 100e3], 339e3, True),  # a clock jumped
        ([339e3, 339e3, 1076e3, 1], 339e3, False),
        ([200e3, 339e3, 335e3], 339e3, False),  # others had the processor at first
        ([400e3, 300e3, 200e3, 150e3, 100e3], 300e3, True),  # nothing is confirmed
    ],
)
def test_the_best_visit_that_another_confirms_is_a_rows_value(
    rates: list[float], value: float, busy: bool, back_end: list[Probe]
) -> None:
    back_end.append(visited(rates, Bandwidth(READ, MIB)))
    found = peak.measure(TWO_CORES, effort=Effort(seconds=1e-4, repeats=1))
    assert [row.value for row in found.bandwidths] == [pytest.approx(value)]
    assert bool(found.busy) == busy


def test_a_picture_says_that_something_else_had_the_processor(
    tmp_path: Path, back_end: list[Probe]
) -> None:
    back_end.append(visited([4e5, 3e5, 2e5, 1.5e5, 1e5, 5e4, 2e4], Rate("float32", "fma", 1, 8)))
    back_end.append(clocked(1e-6, None, Bandwidth(READ, MIB)))
    found = peak.measure(TWO_CORES, effort=Effort(seconds=1e-4, repeats=1))
    for ceilings, said in ((found, True), (replace(found, busy=()), False)):
        peaks.draw(TWO_CORES, ceilings, tmp_path / "peak.svg", "--plot")
        assert ("beside other work" in (tmp_path / "peak.svg").read_text(encoding="utf-8")) == said


def test_a_row_whose_visits_never_agree_is_said_to_be_busy(back_end: list[Probe]) -> None:
    back_end.append(waiting([10 * 0.8**turn for turn in range(60)]))
    back_end.append(clocked(1e-6, None, Bandwidth(READ, MIB)))
    found = peak.measure(TWO_CORES, effort=TINY)
    assert found.busy == ("float32 fma, vector 1 × 8 chains",)


def test_a_row_that_fails_at_a_later_visit_keeps_what_was_found(back_end: list[Probe]) -> None:
    left = [clocked(1e-6, None).run] * 8

    def run(rounds: int) -> Timing:
        if not left:
            raise DeviceError("no room: others took it")
        return left.pop()(rounds)

    back_end.append(Probe(Bandwidth(READ, MIB), 1000.0, run))
    found = peak.measure(TWO_CORES, effort=TINY)
    assert [row.value for row in found.bandwidths] == [pytest.approx(1e9)]
    assert found.busy == ("read, 1 MiB",)
    assert found.skipped == ()


def test_a_timer_that_lies_is_named_in_the_table(back_end: list[Probe]) -> None:
    back_end.append(clocked(1e-6, 1e-8))
    gpu = replace(TWO_CORES, kind="gpu")
    found = peak.measure(gpu, effort=Effort(seconds=5e-3))
    assert found.lies == ("float32 fma, vector 4 × 8 chains",)
    assert found.rates[0].value == pytest.approx(1e9)
    text = printed(gpu, found)
    assert "timer lies" in text
    assert "float32 fma, vector 4 × 8 chains" in " ".join(text.split())


@pytest.mark.parametrize("each", [1e-9, 1e-6, 3e-4, 1.0])
def test_rounds_are_found_in_few_runs_that_last_about_as_long_as_is_wanted(each: float) -> None:
    """A launch takes a millisecond, whatever it does: the step from there is bounded."""
    asked: list[int] = []

    def run(rounds: int) -> Timing:
        asked.append(rounds)
        return Timing(None, 1e-3 + rounds * each, 0.0)

    row = Rate("float32", "fma")
    rounds = peak._rounds(Probe(row, 1.0, run), 0.05)
    assert rounds == asked[-1] or each == 1e-9
    assert len(asked) <= 9
    assert all(more <= 16 * less for less, more in pairwise(asked)), "the step is bounded"
    if each < 0.035:
        assert 0.035 <= 1e-3 + rounds * each <= 0.06
    else:
        assert rounds == 1


def test_the_best_row_of_every_type_is_measured_once_more_four_times_as_often(
    back_end: list[Probe],
) -> None:
    """A run to begin with, one to find the rounds, and the repeats: half of them at each visit."""
    runs: Counter[str] = Counter()

    def counted(dtype: str, chains: int, work: float) -> Probe:
        def run(rounds: int) -> Timing:
            runs[f"{dtype} {chains}"] += 1
            return Timing(None, rounds * 1e-3, 0.0)

        return Probe(Rate(dtype, "fma", 1, chains), work, run)

    back_end += [counted("float32", 1, 1e3), counted("float32", 8, 8e3), counted("float64", 1, 1e3)]
    back_end.append(clocked(1e-3, None, Bandwidth(READ, MIB)))
    peak.measure(TWO_CORES, effort=Effort(seconds=2e-4, repeats=6))
    visit, at_length = 1 + 1 + 6 // 2, 1 + 1 + 4 * 6
    assert runs["float32 1"] == 2 * visit
    assert runs["float32 8"] == runs["float64 1"] == 2 * visit + at_length


def test_rounds_fit_the_32_bits_of_a_kernels_counter() -> None:
    """Whatever a clock says that does not move."""
    asked: list[int] = []

    def run(rounds: int) -> Timing:
        asked.append(rounds)
        return Timing(None, 0.0, 0.0)

    probe = Probe(Rate("float32", "fma"), 1.0, run)
    assert peak._rounds(probe, 0.05) == 1 << 30
    assert peak.run(probe, TINY, "gpu").row.value > 0
    assert max(asked) == 1 << 30


@pytest.mark.parametrize(("other", "agree"), [(1.15, True), (1.1501, False), (1.0, True)])
def test_visits_agree_up_to_fifteen_percent_either_way(other: float, agree: bool) -> None:
    one, two = (
        peak.Found(replace(Bandwidth(READ, MIB), value=value), False, False)
        for value in (1.0, other)
    )
    assert peak._agree(one, two) == peak._agree(two, one) == agree
