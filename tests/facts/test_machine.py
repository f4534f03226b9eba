"""What the machine has is what psutil says, and something modest where a system does not tell."""

from __future__ import annotations

import os
from collections import namedtuple

import psutil
import pytest

from tilewright.facts import machine

MADE_UP = namedtuple("MADE_UP", "user nice system idle iowait irq softirq steal guest guest_nice")


def _raises(error: Exception) -> object:
    def raising(*_: object, **__: object) -> None:
        raise error

    return raising


def test_memory_is_all_that_is_built_in() -> None:
    assert machine.memory() == psutil.virtual_memory().total


@pytest.mark.parametrize("error", [OSError(2, "no /proc"), RuntimeError(), ValueError("meminfo")])
def test_where_memory_is_not_told_four_gibibytes_are_assumed(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(psutil, "virtual_memory", _raises(error))
    assert machine.memory() == 4 << 30


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="nobody is kept from a core here")
def test_cores_that_this_process_is_kept_from_do_not_count() -> None:
    before = os.sched_getaffinity(0)
    assert machine.cores() == len(before)
    try:
        os.sched_setaffinity(0, {min(before)})
        assert machine.cores() == 1
    finally:
        os.sched_setaffinity(0, before)


def test_where_no_process_is_kept_from_a_core_all_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on macOS, whose psutil has no such method; and one core where nobody knows at all."""
    monkeypatch.delattr(psutil.Process, "cpu_affinity")
    assert machine.cores() == os.cpu_count()
    monkeypatch.setattr(os, "cpu_count", lambda: None)
    assert machine.cores() == 1


def test_busy_time_is_everything_but_idling_waiting_and_what_counts_twice(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    times = MADE_UP(100.0, 20.0, 30.0, 9999.0, 50.0, 5.0, 6.0, 7.0, 1.0, 1.0)
    monkeypatch.setattr(psutil, "cpu_times", lambda: times)
    assert machine.busy_seconds() == pytest.approx(100 + 20 + 30 + 5 + 6 + 7)
    mac = namedtuple("mac", "user nice system idle")(10.0, 1.0, 5.0, 700.0)
    monkeypatch.setattr(psutil, "cpu_times", lambda: mac)
    assert machine.busy_seconds() == pytest.approx(16.0)


def test_where_nobody_counts_busy_time_none_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(psutil, "cpu_times", _raises(OSError(13, "not allowed")))
    assert machine.busy_seconds() is None


def test_the_most_memory_never_falls_and_is_not_less_than_what_is_held() -> None:
    before = machine.most_memory()
    held = bytearray(b"x") * (64 << 20)
    after = machine.most_memory()
    assert after >= max(before, 64 << 20)
    del held
    assert machine.most_memory() >= after
