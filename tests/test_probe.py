"""Visits of the real probe, and the transfer that is counted beside the curves."""

from __future__ import annotations

from typing import Any

import pytest

from tilewright import Device
from tilewright.backends import backends
from tilewright.planning.cost import Curve, Measured
from tilewright.tuning.probe import Probe
from tilewright.tuning.visits import HOST

OPENCL = backends()["opencl"]


def never() -> bool:
    return False


def always() -> bool:
    return True


def test_a_visit_multiplies_and_builds_a_program_at_a_time(intel: Device) -> None:
    """Of a kernel of three programs, a visit that has no time builds one."""
    ran: list[int] = []

    class Counting:
        def __getattr__(self, name: str) -> Any:
            return getattr(OPENCL, name)

        def time(self, plan: Any, views: Any, scalars: Any) -> Any:
            ran.append(len(plan.step.launches))
            return OPENCL.time(plan, views, scalars)

    with Probe(intel, Counting(), "float32", OPENCL.priors(intel)) as probe:  # type: ignore[arg-type]
        assert probe.kernels[0] == "panel"
        assert "local" not in probe.kernels  # its local memory would be a copy in the same memory
        point = ("panel", (64, 64, 64))
        assert probe.visit(point, always) is None
        assert ran == [1]
        seconds = probe.visit(point, never)
        assert seconds is not None
        assert 0 < seconds < 10
        assert ran[1:4] == [1, 2, 3]
        host = probe.visit((HOST, (64, 64, 64)), never)
        assert host is not None
        assert 0 < host < 10
        assert probe.computed("panel", (64, 64, 64)) >= 2 * 64**3
        assert probe.transfer({}) is None


@pytest.mark.parametrize("itemsize", [2, 4, 8])
def test_the_transfer_that_is_counted_is_of_the_elements_own_size(itemsize: int) -> None:
    """At 1024 the kernel is 2 ms faster, and 3 x 1024^2 elements move in 0.5 ms a byte."""
    host, kernel = (Curve(((2.0 * 1024**3, s),)) for s in (10e-3, 8e-3))
    measured = Measured(host, (("kernel", kernel),), 1e10, 3 * 1024**2 / 0.5e-3)
    assert measured.wins(itemsize) == ((1024, itemsize < 4),)
