"""Campaigns at their limits: checks after years, what was given up, slices that find nothing."""

from __future__ import annotations

import numpy as np
import pytest

from tests.tuning.test_crossover import (
    OPENCL,
    MadeUpProbe,
    campaign,
    endless,
    one_step,
    unmeasured,
)
from tilewright import Device
from tilewright.calls.dense_run_host import prepare
from tilewright.errors import DeviceError
from tilewright.tuning import crossover, store
from tilewright.tuning.share import Room, Share
from tilewright.tuning.visits import HOST, Point, Visits

__all__ = ["unmeasured"]  # a fixture
pytestmark = pytest.mark.usefixtures("own_store")


def test_curves_that_have_held_for_years_are_still_checked_every_month(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now, day = [1e9], 86400.0
    monkeypatch.setattr(crossover.time, "time", lambda: now[0])
    one = campaign(MadeUpProbe(), monkeypatch)
    one.advance(endless())
    now[0] += 1000 * day
    one.advance(endless())
    now[0] += 29 * day
    assert one.settled
    now[0] += 2 * day
    assert not one.settled


def test_what_was_given_up_is_tried_again_after_a_month(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = [1e9]
    monkeypatch.setattr(crossover.time, "time", lambda: now[0])
    one = campaign(MadeUpProbe(), monkeypatch)
    one.give_up()
    now[0] += 20 * 86400.0
    assert one.settled
    now[0] += 20 * 86400.0
    assert not one.settled


def test_a_slice_in_which_nothing_fits_stores_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    one = campaign(MadeUpProbe(), monkeypatch)
    one.advance(one_step())
    monkeypatch.setattr(store, "update", lambda *given: pytest.fail("nothing was found"))
    assert not one.advance(Room(-1.0, -1.0))


def test_a_device_that_does_not_open_costs_the_share_what_it_took(
    unmeasured: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [0.0]
    share = Share(clock=lambda: now[0])
    share.left()
    now[0] = 10.0

    def closed(*given: object) -> MadeUpProbe:
        now[0] += 3.0
        raise DeviceError("it is gone")

    monkeypatch.setattr(crossover, "Probe", closed)
    monkeypatch.setattr(crossover, "_share", share)
    plan = prepare(*(np.ones((300, 300), np.float32),) * 2, device=unmeasured).plan
    crossover.after(plan, OPENCL, 0.001, host_operands=True)
    now[0] += 20.0  # half a second was saved of the ten, and two of these twenty
    assert not share.left()


def test_what_is_measured_anew_is_visited_twice_though_it_agreed_with_itself_before() -> None:
    """And what is far behind once: another visit would change nothing."""
    visits, names = Visits(), ("best", "slow")
    seconds = {HOST: 3e-11, "best": 2e-11, "slow": 3e-11}

    def visited() -> dict[Point, int]:
        found: dict[Point, int] = {}
        while due := visits.due(names, lambda name, sides: 2.0 * sides[0] * sides[1] * sides[2]):
            point = due[0]
            found[point] = found.get(point, 0) + 1
            visits.add(point, seconds[point[0]] * 2.0 * point[1][0] * point[1][1] * point[1][2])
        return found

    first = visited()
    visits.again()
    for found in (first, visited()):
        times = {
            name: {many for (one, _), many in found.items() if one == name} for name in seconds
        }
        assert times == {HOST: {2}, "best": {2}, "slow": {1}}
    assert visited() == {}
