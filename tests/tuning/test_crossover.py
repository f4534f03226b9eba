"""Which products are a device's: measured in slices, what is believed of it, and what is not."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import pytest

import tilewright
from tests.support import made_up
from tilewright import Device
from tilewright.backends import backends
from tilewright.calls.dense_plan_host import plan_problem
from tilewright.calls.dense_run_host import prepare
from tilewright.errors import KernelError
from tilewright.planning.cost import Curve, Measured
from tilewright.tuning import crossover, store
from tilewright.tuning import share as share_module
from tilewright.tuning.crossover import Campaign
from tilewright.tuning.probe import Probe
from tilewright.tuning.share import Room, Share
from tilewright.tuning.visits import HOST, SIZES, Point, Sides, Visits, visits_of

OPENCL = backends()["opencl"]
PRIORS = OPENCL.priors(made_up.TWO_CORES)
KERNELS = ("quick", "slow")
pytestmark = pytest.mark.usefixtures("own_store")


def truth(name: str, sides: Sides) -> float:
    """The host starts at once and is slow, `quick` starts late and is twice as fast."""
    m, n, k = sides
    flops = 2.0 * m * n * k
    seconds = {
        HOST: 1e-6 + flops / 1e12,
        "quick": 2.5e-5 + flops / 2e12,
        "slow": 4e-3 + flops / 1e11,
    }
    return seconds[name]


class MadeUpProbe:
    """What `Probe` is to a campaign, with made-up times; `load(visit)` multiplies one."""

    kernels = KERNELS

    def __init__(self, load: Callable[[Point, int], float] = lambda point, visit: 1.0) -> None:
        self.load = load
        self.visited: list[Point] = []
        self.refused: set[str] = set()

    def __enter__(self) -> MadeUpProbe:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        pass

    def is_ready(self, point: Point) -> bool:
        return True

    def cost(self, point: Point, seconds: float) -> float:
        return 2 * seconds

    def last_cost(self) -> float:
        return 0.0

    def visit(self, point: Point, seconds: float, room: Room) -> float | None:
        self.visited.append(point)
        if point[0] in self.refused:
            raise KernelError("kernel='quick': this driver knows better")
        return truth(*point) * self.load(point, self.visited.count(point))

    def computed(self, name: str, sides: Sides) -> float:
        return 2.0 * sides[0] * sides[1] * sides[2]

    def transfer(self, curves: Mapping[str, Curve]) -> float | None:
        return None


def campaign(probe: MadeUpProbe, monkeypatch: pytest.MonkeyPatch) -> Campaign:
    monkeypatch.setattr(crossover, "Probe", lambda *arguments: probe)
    return Campaign(made_up.TWO_CORES, OPENCL, "float32", PRIORS)


def endless() -> Room:
    return Room()


def one_step() -> Room:
    return Room(0.0)


def wins(measured: Measured | None) -> list[int]:
    assert measured is not None
    return [side for side, won in measured.wins(4) if won]


# From 1 + 2 n^3 / 1e6 > 25 + 2 n^3 / 2e6 microseconds on, that is from 289.
TRUE_WINS = [size for size in SIZES if size > 289]


@pytest.fixture
def unmeasured(opencl_device: Device) -> Iterator[Device]:
    """A device of which nothing is known yet."""
    yield replace(opencl_device, driver="never measured")
    tilewright.forget()


# What a user sees.


def test_until_a_device_is_measured_products_are_numpys_and_nothing_is_measured_first(
    unmeasured: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first call measures nothing: a share of no time is none."""

    def visit(self: Probe, point: Point, seconds: float, room: Room) -> float:
        raise AssertionError(f"{point} was visited")

    monkeypatch.setattr(Probe, "visit", visit)
    monkeypatch.setattr(crossover, "_share", Share(clock=lambda: 1.0))
    a = np.random.default_rng(0).standard_normal((300, 300)).astype(np.float32)
    for dtype in (np.float32, np.float64):
        operand = a.astype(dtype)
        result = tilewright.matmul(operand, operand, device=unmeasured)
        np.testing.assert_array_equal(result, operand @ operand)
        report = tilewright.explain(operand, operand, device=unmeasured)
        assert "engine     host" in report
        assert "crossover  not measured yet" in report


def test_products_measure_their_device_in_slices_and_then_it_is_chosen(
    unmeasured: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [0.0]

    class Slow(MadeUpProbe):
        """Every visit fills a slice."""

        def visit(self, point: Point, seconds: float, room: Room) -> float | None:
            now[0] += 0.06
            return super().visit(point, seconds, room)

    probe = Slow()
    monkeypatch.setattr(crossover, "Probe", lambda *arguments: probe)
    monkeypatch.setattr(crossover, "_share", Share(clock=lambda: now[0]))
    a = np.ones((300, 300), np.float32)
    visits = []
    while "not measured yet" in tilewright.explain(a, a, device=unmeasured):
        before = len(probe.visited)
        tilewright.matmul(a, a, device=unmeasured)
        now[0] += 1.0
        visits.append(len(probe.visited) - before)
        assert len(visits) < 500
    assert visits[0] == 0
    assert max(visits) == 1
    assert "crossover  measured: from about 384" in tilewright.explain(a, a, device=unmeasured)


def test_explain_of_what_is_not_measured_runs_nothing(
    unmeasured: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(crossover, "Probe", None)  # nothing can be visited
    a = np.ones((300, 300), np.float32)
    assert "not measured yet" in tilewright.explain(a, a, device=unmeasured)


def test_a_forced_kernel_and_the_host_measure_nothing(unmeasured: Device) -> None:
    a = np.ones((300, 300), np.float32)
    assert not prepare(a, a, device=unmeasured, kernel="naive").learns
    assert not prepare(a, a, device="host").learns
    assert not prepare(a[:8, :8], a[:8, :8], device=unmeasured).learns
    assert prepare(a, a, device=unmeasured).learns


def test_forget_drops_what_is_known_in_memory_and_the_store_tells_it_again(
    unmeasured: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    priors = OPENCL.priors(unmeasured)
    monkeypatch.setattr(crossover, "Probe", lambda *arguments: MadeUpProbe())
    found = crossover.measured(unmeasured, OPENCL, "float32", priors)
    problem = prepare(*(np.ones((300, 300), np.float32),) * 2, device=unmeasured).plan.problem
    first = plan_problem(problem, unmeasured)
    tilewright.forget()
    monkeypatch.setattr(crossover, "Probe", None)
    again = crossover.known(unmeasured, OPENCL, "float32", priors)
    assert again == found
    assert again is not found
    assert plan_problem(problem, unmeasured) is not first


# How much time it takes.


def test_measuring_takes_a_twentieth_of_the_time_since_the_first_product() -> None:
    now = [100.0]
    share = Share(clock=lambda: now[0])
    assert not share.left()
    now[0] = 101.0
    assert share.left()
    share.spend(0.05)
    assert not share.left()
    now[0] = 101.01
    assert share.left()


def test_a_forked_child_measures_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    share = Share(clock=lambda: now[0])
    share.left()
    now[0] = 10.0
    assert share.left()
    monkeypatch.setattr(share_module.os, "getpid", lambda: -1)
    assert not share.left()


def test_nobody_waits_for_a_slice_of_another_thread(
    unmeasured: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While a thread is in the midst of a visit, others multiply."""
    inside, leave = threading.Event(), threading.Event()

    class Slow(MadeUpProbe):
        def visit(self, point: Point, seconds: float, room: Room) -> float | None:
            inside.set()
            assert leave.wait(600)
            return super().visit(point, seconds, room)

    probe = Slow()
    monkeypatch.setattr(crossover, "Probe", lambda *arguments: probe)
    monkeypatch.setattr(share_module, "SLICE", 60.0)  # however busy the machine is
    clock = iter(float(100 * second) for second in range(10**6))
    monkeypatch.setattr(crossover, "_share", Share(clock=lambda: next(clock)))
    a = np.ones((300, 300), np.float32)
    tilewright.matmul(a, a, device=unmeasured)
    measuring = threading.Thread(target=lambda: tilewright.matmul(a, a, device=unmeasured))
    measuring.start()
    assert inside.wait(600)
    for _ in range(5):
        tilewright.matmul(a, a, device=unmeasured)
    assert len(probe.visited) == 0  # the first visit is still under way, and no other began
    leave.set()
    measuring.join()
    assert len(probe.visited) == 1


def test_a_slice_ends_after_the_build_of_a_program(monkeypatch: pytest.MonkeyPatch) -> None:
    """A visit that was stopped while programs were built is no visit, and comes again."""

    class Builds(MadeUpProbe):
        def visit(self, point: Point, seconds: float, room: Room) -> float | None:
            found = super().visit(point, seconds, room)
            return None if len(self.visited) <= 3 else found

    probe = Builds()
    one = campaign(probe, monkeypatch)
    for _ in range(4):
        one.advance(one_step())
    assert probe.visited == [(HOST, (32, 32, 32))] * 4
    assert one.visits.least((HOST, (32, 32, 32))) == truth(HOST, (32, 32, 32))


# What is believed.


def test_the_crossover_is_where_the_times_cross(monkeypatch: pytest.MonkeyPatch) -> None:
    probe = MadeUpProbe()
    one = campaign(probe, monkeypatch)
    one.advance(endless())
    assert wins(one.measured) == TRUE_WINS
    assert one.settled
    assert one.measured is not None
    assert dict(one.measured.curves)["quick"].seconds(2.0 * 512**3) == pytest.approx(
        truth("quick", (512,) * 3)
    )


@pytest.mark.parametrize("loaded", [HOST, "quick", "slow"])
def test_load_during_one_round_moves_nothing(loaded: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Seconds of other work while the host, or a kernel, was visited: its first visits are slow."""
    probe = MadeUpProbe(lambda point, visit: 5.0 if point[0] == loaded and visit == 1 else 1.0)
    one = campaign(probe, monkeypatch)
    one.advance(endless())
    if loaded == "quick":  # beside `slow` it looked hopeless at some points, then it did not
        assert wins(one.measured)[-1] == TRUE_WINS[-1]
    else:
        assert wins(one.measured) == TRUE_WINS


def test_visits_that_contradict_each_other_are_repeated_and_others_are_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    doubtful = (HOST, (384, 384, 384))
    probe = MadeUpProbe(
        lambda point, visit: 4.0 - visit if point == doubtful and visit < 4 else 1.0
    )
    campaign(probe, monkeypatch).advance(endless())
    assert probe.visited.count(doubtful) == 4  # 3, 2, 1 and 1 times the truth: two agree
    assert probe.visited.count((HOST, (512, 512, 512))) == 2
    assert probe.visited.count(("slow", (32, 32, 32))) == 1  # far behind: once is enough


def test_what_never_agrees_with_itself_is_given_up_after_five_visits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    probe = MadeUpProbe(lambda point, visit: 2.0**-visit)
    campaign(probe, monkeypatch).advance(endless())
    assert max(probe.visited.count(point) for point in probe.visited) == 5


def test_a_kernel_that_the_driver_refuses_loses_its_place_and_nothing_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    probe = MadeUpProbe()
    probe.refused = {"quick"}
    one = campaign(probe, monkeypatch)
    one.advance(endless())
    assert one.measured is not None
    assert [name for name, _ in one.measured.curves] == ["slow"]
    assert wins(one.measured) == []
    assert probe.visited.count(("quick", (32, 32, 32))) == 1


def test_the_longest_products_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a slow device larger squares would take minutes, and their rate is known by then."""
    probe = MadeUpProbe(lambda point, visit: 1000.0)
    campaign(probe, monkeypatch).advance(endless())
    assert max(max(sides) for name, sides in probe.visited if len(set(sides)) == 1) < 1024


# What is measured again.


def test_sixteen_products_in_a_row_that_contradict_the_curves_have_them_measured_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for ratios, again in (
        ([2.0] * 16, True),
        ([0.5] * 16, True),
        ([2.0] * 15, False),
        ([2.0] * 15 + [1.0], False),
        ([1.0] * 15 + [9.0] * 15, False),
        ([1.0] + [9.0] * 16, True),
        ([2.0, 0.5] * 16, False),
        ([1.6] * 16, False),
        ([0.6] * 16, False),
    ):
        one = campaign(MadeUpProbe(), monkeypatch)
        one.advance(endless())
        old = one.measured
        for ratio in ratios:
            one.saw(ratio)
        assert one.settled is not again, ratios
        assert one.measured is old  # used until there is a better one


def test_a_check_that_finds_less_has_all_measured_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Measured on a machine that was busy for long: the curves agree with themselves, wrongly."""
    now = [1e9]
    monkeypatch.setattr(crossover.time, "time", lambda: now[0])
    busy = [True]
    probe = MadeUpProbe(lambda point, visit: 9.0 if busy[0] and point[0] == "quick" else 1.0)
    one = campaign(probe, monkeypatch)
    one.advance(endless())
    assert wins(one.measured) != TRUE_WINS
    busy[0] = False
    now[0] += 500
    assert one.settled
    now[0] += 200
    assert not one.settled
    told: list[str] = []
    monkeypatch.setattr(crossover, "_changed", [lambda: told.append("new curves")])
    for _ in range(3):
        one.advance(endless())
    assert one.settled
    assert wins(one.measured) == TRUE_WINS
    assert told == ["new curves"]


def test_checks_that_agree_become_rare_and_tell_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [1e9]
    monkeypatch.setattr(crossover.time, "time", lambda: now[0])
    probe = MadeUpProbe()
    one = campaign(probe, monkeypatch)
    one.advance(endless())
    monkeypatch.setattr(crossover, "_changed", [lambda: pytest.fail("nothing changed")])
    checks = 0
    for _ in range(1000):  # a week, in steps of ten minutes
        now[0] += 601
        if not one.settled:
            before = len(probe.visited)
            one.advance(endless())
            checks += 1
            assert len(probe.visited) - before == 6
    assert 5 < checks < 20


# What is kept.


def test_a_campaign_goes_on_in_the_next_process(monkeypatch: pytest.MonkeyPatch) -> None:
    probe = MadeUpProbe()
    for _ in range(2000):  # a process a visit
        one = campaign(probe, monkeypatch)
        if one.settled:
            break
        one.advance(one_step())
    assert wins(one.measured) == TRUE_WINS
    whole = MadeUpProbe()
    store.update(store.MEASURED, store.digest(one.key), lambda content: {}, one.key)
    campaign(whole, monkeypatch).advance(endless())
    assert sorted(probe.visited) == sorted(whole.visited)  # nothing was visited in vain


def test_a_campaign_that_was_begun_again_goes_on_in_the_next_process(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    one = campaign(MadeUpProbe(), monkeypatch)
    one.advance(endless())
    for _ in range(16):
        one.saw(3.0)
    one.advance(one_step())
    later = campaign(MadeUpProbe(), monkeypatch)
    assert later.measured == one.measured
    assert not later.settled
    later.advance(endless())
    assert later.settled


def test_two_processes_share_their_visits(monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = (campaign(MadeUpProbe(), monkeypatch) for _ in range(2))
    for _ in range(5):
        first.advance(one_step())
    second.advance(one_step())
    assert second.visits.least((HOST, (192, 192, 192))) is not None


def test_visits_survive_the_store() -> None:
    one = Visits()
    one.add((HOST, (32, 32, 32)), 2e-6)
    one.add((HOST, (32, 32, 32)), 1e-6)
    one.add(("quick", (1, 1024, 1024)), 1e-4)
    one.fail("slow")
    again = visits_of(one.as_dict())
    assert again.as_dict() == one.as_dict()
    assert again.least((HOST, (32, 32, 32))) == 1e-6
    assert again.failed == {"slow"}


@pytest.mark.parametrize(
    "damage",
    [
        None,
        {},
        {"points": None, "failed": []},
        {"points": [[HOST, 32, 32, 32, 1]], "failed": []},
        {"points": [[HOST, 32, 32, 32, 1, -1.0]], "failed": []},
        {"points": [[HOST, 32, 32, 32, 1, float("inf")]], "failed": []},
        {"points": [[HOST, 0, 32, 32, 1, 1.0]], "failed": []},
        {"points": [[HOST, 32, 32, 32, 1, 1.0, 1.0, 1.0]], "failed": []},
        {"points": [[HOST, 32, 32, 32, "x", 1.0]], "failed": []},
    ],
)
def test_damaged_visits_are_made_anew(damage: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    key = crossover._key(made_up.TWO_CORES, PRIORS)
    times = {"since": 0.0, "checked": 0.0}
    content = damage if damage is None else {**damage, **times}
    store.save(key, {"float32 visits": content})
    one = campaign(MadeUpProbe(), monkeypatch)
    assert one.visits.as_dict() == Visits().as_dict()
    one.advance(endless())
    assert wins(one.measured) == TRUE_WINS


def test_with_no_store_curves_are_still_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TILEWRIGHT_CACHE", "off")
    one = campaign(MadeUpProbe(), monkeypatch)
    for _ in range(500):
        if one.settled:
            break
        one.advance(one_step())
    assert wins(one.measured) == TRUE_WINS
