"""A driver that computes a kernel wrongly: the kernel is not chosen there, and explain says why."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.tuning.test_share import OPENCL, Opens, World, device_of
from tilewright import Device
from tilewright.backends import backends
from tilewright.engines import dense
from tilewright.planning.explain import explain
from tilewright.tuning import crossover
from tilewright.tuning.curves import from_json, to_json
from tilewright.tuning.probe import Probe, WrongResultError
from tilewright.tuning.share import Room
from tilewright.tuning.trial import Shape
from tilewright.tuning.visits import Visits, visits_of


@pytest.mark.parametrize("lies", [(), ("panel",), ("naive", "panel"), "all"])
def test_what_a_driver_computes_wrongly_is_refused_with_the_reason(
    lies: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(monkeypatch, 1e12, 1e-5)
    device = device_of("cpu", f"lies {lies}")
    priors, kernels = OPENCL.priors(device), OPENCL.kernels(device)
    world.lies = tuple(kernel.name for kernel in kernels) if lies == "all" else lies
    measured = crossover.measured(device, Opens(), "float32", priors)  # type: ignore[arg-type]
    assert set(measured.wrong) <= set(world.lies)
    assert not {name for name, _ in measured.curves} & set(world.lies)
    problem = Shape(2048, 2048, 2048).problem()
    plan = dense.plan(problem, device, kernels, priors=priors, measured=measured)
    assert plan.step.kernel not in world.lies
    for name in measured.wrong:
        assert f"{name}: this driver computes it wrongly" in " ".join(explain(plan).split())
    assert from_json(json.loads(json.dumps(to_json(measured)))) == measured


class Lying:
    """OpenCL's back end, but that a product's last element is a little off."""

    def __getattr__(self, name: str) -> Any:
        return getattr(OPENCL, name)

    def time(self, plan: Any, views: Any, scalars: Any) -> Any:
        found = OPENCL.time(plan, views, scalars)
        memory = views["c"].memory
        if isinstance(memory, np.ndarray):
            memory.flat[-1] += 1e-2
        return found


def test_a_visit_of_a_small_product_compares_it_with_float64(intel: Device) -> None:
    point, priors = ("panel", (32, 32, 32)), OPENCL.priors(intel)
    probe = Probe(intel, Lying(), "float32", priors)  # type: ignore[arg-type]
    with probe, pytest.raises(WrongResultError, match="wrong numbers"):
        probe.visit(point, 0.0, Room())
    with Probe(intel, backends()["opencl"], "float32", priors) as probe:
        assert probe.visit(point, 0.0, Room()) is not None


def test_what_is_wrong_is_stored_and_joined(tmp_path: Path) -> None:
    one, other = Visits(), Visits()
    one.fail("panel")
    one.wrong.add("panel")
    other.merge(visits_of(json.loads(json.dumps(one.as_dict()))))
    assert (other.failed, other.wrong) == ({"panel"}, {"panel"})
    older = one.as_dict()
    del older["wrong"]
    assert visits_of(older).wrong == set()
