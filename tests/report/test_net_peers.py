"""Whole runs beside each other's: what threads that spin on take is nobody's time."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace

import pytest

from tilewright.report.net_peers import in_turns

SLOW, QUICK = 0.02, 0.001


@pytest.mark.parametrize("repeats", [1, 3, 9])
def test_a_run_behind_another_library_s_is_nobody_s_time(
    without_rest: None, monkeypatch: pytest.MonkeyPatch, repeats: int
) -> None:
    """By a clock that only such runs move on."""
    now, before = [0.0], list[str]()
    clock = SimpleNamespace(perf_counter=lambda: now[0], process_time=lambda: now[0])
    monkeypatch.setattr("tilewright.engines.backend.time", clock)

    def disturbed(name: str) -> Callable[[], None]:
        def call() -> None:
            if before[-1:] != [name]:
                now[0] += SLOW
            now[0] += QUICK
            before.append(name)

        return call

    found = in_turns({name: disturbed(name) for name in ("ours", "theirs", "others")}, repeats)
    assert list(found) == ["ours", "theirs", "others"]
    assert list(found.values()) == pytest.approx([QUICK] * 3)


def test_a_call_by_itself_is_timed_without_a_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tilewright.report.net_peers.REST", 1e9)  # would raise OverflowError
    assert in_turns({"ours": lambda: None}, 2)["ours"] >= 0.0


def test_slow_runs_are_few_and_three_at_least(
    without_rest: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tilewright.report.net_peers._BUDGET", 0.0)
    runs: list[str] = []
    in_turns({"ours": lambda: runs.append("ours"), "theirs": lambda: None}, 1000)
    assert len(runs) == 1 + 3 * (1 + 1)  # once to know how long, then each block's first and one
