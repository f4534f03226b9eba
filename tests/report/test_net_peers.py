"""Whole runs beside each other's: what threads that spin on take is nobody's time."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from tilewright.report.net_peers import in_turns

SLOW = 0.02


@pytest.mark.parametrize("repeats", [1, 3, 9])
def test_a_run_behind_another_library_s_is_nobody_s_time(without_rest: None, repeats: int) -> None:
    before: list[str] = []

    def disturbed(name: str) -> Callable[[], None]:
        def call() -> None:
            if before[-1:] != [name]:
                time.sleep(SLOW)
            before.append(name)

        return call

    found = in_turns({name: disturbed(name) for name in ("ours", "theirs", "others")}, repeats)
    assert list(found) == ["ours", "theirs", "others"]
    assert max(found.values()) < SLOW


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
