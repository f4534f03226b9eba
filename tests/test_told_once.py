"""What a worker leaves out of its news is what changes nothing that is shown."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from tests.support import told_once


class WorkerInteractor:
    """As pytest-xdist's: what it was to send."""

    def __init__(self) -> None:
        self.sent: list[tuple[str, Any]] = []

    def sendevent(self, name: str, **what: Any) -> None:
        self.sent.append((name, what))


def worker(**asked: Any) -> WorkerInteractor:
    made = WorkerInteractor()
    option = SimpleNamespace(**({"verbose": -1, "durations": None, "xmlpath": None} | asked))
    plugins = SimpleNamespace(get_plugins=lambda: [object(), made])
    told_once.tell_less(SimpleNamespace(option=option, pluginmanager=plugins))  # type: ignore[arg-type]
    return made


def news(when: str, outcome: str) -> tuple[str, dict[str, Any]]:
    return "testreport", {"data": {"when": when, "outcome": outcome}}


OBVIOUS = (("logstart", {}), news("setup", "passed"), news("teardown", "passed"), ("logfinish", {}))
NEWS = (
    *(news("call", outcome) for outcome in ("passed", "failed", "skipped")),
    *(news(when, "failed") for when in ("setup", "teardown")),
    news("setup", "skipped"),
    ("runtest_protocol_complete", {"item_index": 3}),
    ("warning_recorded", {"when": "runtest"}),
    ("collectionfinish", {"ids": []}),
)


def test_a_test_that_passes_is_told_once() -> None:
    one = worker()
    for name, what in OBVIOUS:
        one.sendevent(name, **what)
    assert one.sent == []


@pytest.mark.parametrize(("name", "what"), NEWS)
def test_whatever_fails_or_is_skipped_is_told_wherever_it_does(name: str, what: Any) -> None:
    one = worker()
    one.sendevent(name, **what)
    assert one.sent == [(name, what)]


@pytest.mark.parametrize("asked", [{"verbose": 1}, {"durations": 5}, {"xmlpath": "report.xml"}])
def test_who_asks_for_times_or_for_every_step_is_told_all(asked: dict[str, Any]) -> None:
    one = worker(**asked)
    for name, what in (*OBVIOUS, *NEWS):
        one.sendevent(name, **what)
    assert one.sent == [*OBVIOUS, *NEWS]
