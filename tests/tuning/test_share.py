"""How long measuring may take after a product: real campaigns by a made-up clock and back end."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import pytest

from tests.support import made_up
from tilewright.backends import backends
from tilewright.engines.dense import plan_kernel
from tilewright.facts.device import Device
from tilewright.facts.kernel import Plan
from tilewright.tuning import crossover, probe
from tilewright.tuning.share import RARELY, SHARE, SLICE, VISIBLE, Share
from tilewright.tuning.trial import Shape

OPENCL = backends()["opencl"]
BUILD = 0.4  # seconds that the made-up driver takes to build a program


class World:
    """A clock that only work moves on, and what of it were builds."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, rate: float, launch: float) -> None:
        self.now, self.built, self.rate, self.launch = 0.0, 0.0, rate, launch
        monkeypatch.setenv("TILEWRIGHT_CACHE", "off")
        self.programs: set[object] = set()
        self.share = Share(clock=lambda: self.now)
        monkeypatch.setattr(crossover, "_share", self.share)
        monkeypatch.setattr(crossover, "bandwidth", lambda: self.work(0.03, 1e10))
        monkeypatch.setattr(probe, "Trial", lambda *given: MadeUpTrial(self, *given))
        monkeypatch.setattr(probe.time, "sleep", self.work)

    def work(self, seconds: float, result: float = 0.0) -> float:
        self.now += seconds
        return result

    def run(self, flops: float, plan: Plan | None = None) -> float:
        """A product by NumPy at 3e11, by a kernel at the device's rate, its programs built."""
        rate, least = (3e11, 1e-6) if plan is None else (self.rate, self.launch)
        for launch in plan.step.launches if plan else ():
            program = launch.program, launch.entry, launch.defines
            if program not in self.programs:
                self.programs.add(program)
                self.built += self.work(BUILD, BUILD)
        seconds = least + flops / rate
        return self.work(seconds, seconds)


class Opens:
    """OpenCL's planning, for a device that is not there."""

    def __getattr__(self, name: str) -> Any:
        return getattr(OPENCL, name)

    def allocate(self, *given: object) -> None:
        """Nothing: it opens."""


class MadeUpTrial:
    """What `Trial` is to a probe: operands take the time that they take here."""

    def __init__(self, world: World, shape: Shape, device: Device, backend: object) -> None:
        self.world, self.problem, self.flops = world, shape.problem(), shape.flops
        world.work(0.001 + 4e-9 * shape.m * shape.n)

    def host_seconds(self) -> float:
        return self.world.run(self.flops)

    def seconds(self, plan: Plan) -> float:
        return self.world.run(plan.step.computed_flops, plan)

    def copied_seconds(self, plan: Plan) -> float:
        return self.world.work(0.01) + self.seconds(plan)


@dataclass
class Slice:
    """What one product was followed by; `saved` and `pause` are what it might spend."""

    seconds: float
    built: float
    saved: float
    pause: float


def slices(world: World, product: float, device: Device) -> list[Slice]:
    """What follows each of a thousand products of so many seconds."""
    problem = Shape(3072, 3072, 3072).problem()
    plan = plan_kernel(problem, device, OPENCL.kernels(device)[0])
    found, ended, spent = [], world.now + product, 0.0
    backend = Opens()
    for _ in range(1000):
        before, built = world.work(product) + world.now, world.built
        crossover.after(plan, backend, product, host_operands=True)  # type: ignore[arg-type]
        one = Slice(world.now - before, world.built - built, SHARE * before - spent, before - ended)
        if one.seconds:
            ended = world.now
            spent += one.seconds
        found.append(one)
    assert sum(one.seconds > 0 for one in found) > 10
    return found


def device_of(kind: str, name: str) -> Device:
    return replace(made_up.TWO_CORES, kind=kind, driver=f"made up for {name}")


@pytest.mark.parametrize(("kind", "rate", "launch"), [("gpu", 1e12, 1e-5), ("cpu", 2e9, 5e-3)])
def test_a_short_product_is_followed_by_a_slice_a_build_or_what_was_saved_for(
    kind: str, rate: float, launch: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """But for the first products of a kernel, of which nobody can know what they take."""
    world = World(monkeypatch, rate, launch)
    found = slices(world, 0.04, device_of(kind, f"{rate}"))
    for one in found:
        assert one.seconds - one.built <= max(SLICE, min(one.saved, 0.5)) + 0.003 + 2 * launch
        assert one.built in (0, pytest.approx(BUILD))
    assert sum(one.seconds for one in found) <= SHARE * world.now + BUILD + SLICE


@pytest.mark.parametrize(("kind", "rate", "launch"), [("gpu", 2e9, 5e-3), ("cpu", 5e10, 1e-4)])
@pytest.mark.parametrize("product", [0.2, 2.0])
def test_a_long_product_is_followed_by_nothing_that_is_seen_but_after_a_long_pause(
    kind: str, rate: float, launch: float, product: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two hundredths of it, or a four hundredth of the time since the slice before."""
    world = World(monkeypatch, rate, launch)
    found = slices(world, product, device_of(kind, f"{rate} {product}"))
    for one in found:
        may = max(VISIBLE * product, RARELY * one.pause)
        assert one.seconds - one.built <= may + 0.003 + 2 * launch
        assert not one.built or RARELY * one.pause >= 0.2
    assert not any(one.seconds for one in found[: int(20 / product)])
