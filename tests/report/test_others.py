"""A ladder beside a busy process says so, as `peak` does: in the table, picture and JSON."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.support import made_up
from tilewright.report import others, plots, tables
from tilewright.report.document import document
from tilewright.report.records import KERNEL, Ladder, Rung
from tilewright.report.sampling import Samples


@pytest.mark.parametrize(
    ("machine", "own", "disturbed"),
    [(2.0, 2.0, False), (2.1, 2.0, False), (2.5, 2.0, True), (1.0, 0.0, True), (0.0, 0.0, False)],
)
def test_what_others_work_is_what_the_machine_works_beyond_ourselves(
    machine: float, own: float, disturbed: bool
) -> None:
    """During one second."""
    times = {"machine": 10.0, "own": 3.0, "clock": 100.0}
    watched = others.watch(lambda: times["machine"], lambda: times["own"], lambda: times["clock"])
    times.update(machine=10.0 + machine, own=3.0 + own, clock=101.0)
    assert watched() is disturbed


def test_where_nothing_is_known_nothing_is_said() -> None:
    assert others.watch(lambda: None)() is False
    times = [1.0]
    watched = others.watch(lambda: times.pop() if times else None)
    assert watched() is False


@pytest.fixture
def ladder() -> Ladder:
    samples = Samples(1, (1e-3,) * 3, (1e-3,) * 3)
    rung = Rung("panel", KERNEL, 256, samples, "wall", 0.0)
    return Ladder(made_up.TWO_CORES, 256, "float32", (rung,), busy=("panel",))


def test_table_picture_and_json_say_what_was_disturbed(ladder: Ladder) -> None:
    assert document([ladder])["ladders"][0]["busy"] == ["panel"]
    assert document([replace(ladder, busy=())])["ladders"][0]["busy"] == []
    notes = " ".join(tables.notes(ladder))
    assert "! something else had a part of the processor during panel" in notes
    assert "part of the processor" not in " ".join(tables.notes(replace(ladder, busy=())))
    for one, there in ((ladder, True), (replace(ladder, busy=()), False)):
        (axes,) = plots._bars(one).axes
        assert ("beside other work" in axes.get_title(loc="left")) is there


@pytest.mark.parametrize("disturbed", [(), (64,), (256,), (64, 256)])
def test_a_picture_of_many_sizes_says_so_whichever_of_them_was_disturbed(
    ladder: Ladder, disturbed: tuple[int, ...]
) -> None:
    ladders = [replace(ladder, size=n, busy=("panel",) * (n in disturbed)) for n in (64, 128, 256)]
    (axes,) = plots._lines(ladders).axes
    assert ("beside other work" in axes.get_title(loc="left")) is bool(disturbed)
