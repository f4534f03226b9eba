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
from tilewright.tuning.share import RARELY, SHARE, SLICE, VISIBLE, Room, Share
from tilewright.tuning.trial import Shape

OPENCL = backends()["opencl"]
BUILD = 0.4  # seconds that the made-up driver takes to build a program


class World:
    """A clock that only work moves on, and what of it were builds."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, rate: float, launch: float) -> None:
        self.now, self.built, self.rate, self.launch = 0.0, 0.0, rate, launch
        monkeypatch.setenv("TILEWRIGHT_CACHE", "off")
        self.programs: set[object] = set()
        self.lies: tuple[str, ...] = ()  # kernels that the driver computes wrongly
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

    def wrong(self, plan: Plan) -> str:
        return "wrong numbers" if plan.step.kernel in self.world.lies else ""

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
        assert not one.built or RARELY * one.pause >= 0.4
    assert not any(one.seconds for one in found[: int(20 / product)])


# Worked examples, by a clock that stands unless it is moved.


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_a_room_holds_what_its_seconds_hold_and_first_of_all_one_step_that_was_saved_for() -> None:
    clock = Clock()
    room = Room(0.5, 2.0, clock=clock)
    assert [room.fits(seconds) for seconds in (2.0, 2.0001)] == [True, False]
    room.used()
    assert [room.fits(seconds) for seconds in (0.5, 0.5001)] == [True, False]
    clock.now += 0.5
    assert (room.left(), room.fits(0.0), room.may_build()) == (0.0, True, True)
    clock.now += 0.25
    assert (room.left(), room.fits(0.0), room.may_build()) == (-0.25, False, False)
    assert not Room(0.5, builds=False, clock=clock).may_build()
    endless = Room()
    endless.used()
    assert endless.fits(1e9)


def test_a_twentieth_of_the_time_is_saved_up_to_half_a_second_and_may_be_owed() -> None:
    clock = Clock()
    share = Share(clock)

    def once(product: float = 0.001) -> float | None:
        """The longest step that may follow, to a thousandth."""
        room = share.room(product)
        if room is None:
            return None
        return max(number for number in range(1001) if room.fits(number / 1000)) / 1000

    assert once() is None
    clock.now += 0.1
    assert once() == pytest.approx(0.005, abs=0.0011)
    clock.now += 1.9
    assert once() == pytest.approx(0.1, abs=0.0011)
    clock.now += 100.0
    assert once() == pytest.approx(0.5, abs=0.0011)
    share.spend(0.75)
    clock.now += 4.5
    assert once() is None  # a quarter of a second is owed, less than that was saved
    clock.now += 1.5
    assert once() == pytest.approx(0.05, abs=0.0011)


def test_neither_pauses_nor_the_load_of_others_pay_for_measuring() -> None:
    clock, worked = Clock(), Clock()
    share = Share(clock, worked)
    share.left()
    clock.now += 1000.0  # the user thinks, or others have the processor
    assert not share.left()
    clock.now += 1.0
    worked.now += 60.0  # many cores worked, for a second
    room = share.room(0.001)
    assert room is not None
    assert [room.fits(seconds) for seconds in (0.0499, 0.0501)] == [True, False]


def test_nothing_is_built_before_what_builds_take_was_saved() -> None:
    clock = Clock()
    share = Share(clock)
    share.left()
    for seconds, may_build in ((7.9, False), (0.2, True)):
        clock.now += seconds
        room = share.room(0.001)
        assert room is not None
        assert room.may_build() is may_build


def test_after_a_product_of_more_than_a_slice_its_fiftieth_fits_or_a_400th_of_the_pause() -> None:
    clock = Clock()
    share = Share(clock)
    share.left()
    clock.now += 10.0
    short, long = share.room(0.05), share.room(0.0500001)
    assert short is not None
    assert long is not None
    assert short.fits(0.5)
    assert [long.fits(seconds) for seconds in (0.025, 0.0251)] == [True, False]
    assert (short.may_build(), long.may_build()) == (True, False)
    share.spend(0.01)
    longest = share.room(4.0)
    assert longest is not None
    assert [longest.fits(seconds) for seconds in (0.08, 0.0801)] == [True, False]
    clock.now += 160.0
    late = share.room(0.1)
    assert late is not None
    assert late.may_build()
    assert [late.fits(seconds) for seconds in (0.4, 0.401)] == [True, False]
    assert late.left() == pytest.approx(0.002)


def test_where_no_step_fits_a_slice_is_tried_again_a_little_later() -> None:
    clock = Clock()
    share = Share(clock)
    share.left()
    clock.now += 1.0
    assert share.left()
    share.spend(0.0)
    clock.now += 0.09
    assert not share.left()
    clock.now += 0.02
    assert share.left()
    clock.now += 100.0  # where nothing fitted for long, it is asked more rarely
    share.spend(0.0)
    clock.now += 10.0
    assert not share.left()
    clock.now += 0.3
    assert share.left()


def test_who_owes_is_not_looked_at_again_before_that_could_be_paid() -> None:
    """Of a quarter of a second a twentieth of five."""
    clock, asked = Clock(), list[float]()

    def worked() -> float:
        asked.append(clock.now)
        return clock.now

    share = Share(clock, worked)
    share.left()
    clock.now += 10.0
    assert share.left()
    share.spend(0.75)
    assert not share.left()
    looked = len(asked)
    for later, again in ((0.0, 0), (4.9, 0), (0.2, 1)):
        clock.now += later
        assert share.left() is bool(again)
        assert len(asked) == looked + again
