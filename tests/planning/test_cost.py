"""What a plan reckons with: curves, narrow sides, classes and what is legal, in plain numbers."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
import pytest

from tests.support import made_up
from tilewright.engines.dense import Candidate
from tilewright.facts.kernel import Axis, Config, Plan, Resources, Scratch, Step
from tilewright.facts.problem import Problem
from tilewright.facts.verdict import Rejected
from tilewright.planning.classes import (
    CLASSES,
    Boundaries,
    classify,
    describe,
    layout_of,
    nearest,
    record_name,
)
from tilewright.planning.cost import (
    CALL,
    Curve,
    Measured,
    Narrow,
    device_seconds,
    host_seconds,
    interpolated,
)
from tilewright.planning.explain import explain
from tilewright.planning.host_part import large, spared
from tilewright.planning.tiles import legal_configs, waves, why_not

CURVE = Curve(((1e6, 1e-3), (1e8, 1e-1), (1e9, 0.5)))
DEVICE = made_up.TWO_CORES


def plain(m: int, n: int, k: int) -> Problem:
    return Problem(m, n, k, k, 1, n, 1, n, 1)


@pytest.mark.parametrize(
    ("flops", "seconds"),
    [
        (1.0, 1e-3),  # the first time before the first point
        (1e6, 1e-3),
        (1e7, 1e-2),  # halfway in logarithms
        (1e8, 1e-1),
        (1e9, 0.5),
        (4e9, 2.0),  # the last rate beyond the end
    ],
)
def test_a_curve_is_read_between_its_points_and_beyond_them(flops: float, seconds: float) -> None:
    assert CURVE.seconds(flops) == pytest.approx(seconds, rel=1e-12)


@pytest.mark.parametrize(("x", "y"), [(0.5, 8.0), (1, 8.0), (4, 4.0), (16, 2.0), (99, 2.0)])
def test_between_points_lies_their_mean_of_logarithms(x: float, y: float) -> None:
    assert interpolated(((1.0, 8.0), (16.0, 2.0)), x) == pytest.approx(y, rel=1e-12)


def test_a_side_is_narrow_where_the_widest_is_four_times_as_long() -> None:
    narrow = Narrow(m=((1.0, 8.0),), n=((1.0, 32.0),))
    assert narrow.factor(1, 4, 4) == pytest.approx(8.0)
    assert narrow.factor(1, 3, 3) == 1.0
    assert narrow.factor(32, 999, 128) == pytest.approx(8.0 ** (1 / 2))
    assert narrow.factor(1, 1, 4) == pytest.approx(32.0), "the worst side counts"
    assert narrow.factor(4, 4, 1) == 1.0, "nothing was measured of k"
    assert narrow.factor(1024, 9999, 9999) == pytest.approx(1.0)


def measured(transfer: float | None, bandwidth: float = 1e15) -> Measured:
    names = (("panel", Narrow(m=((1.0, 4.0),))), ("host", Narrow(k=((1.0, 2.0),))))
    return Measured(CURVE, (("panel", CURVE),), bandwidth, transfer, names)


@pytest.mark.parametrize("host", [True, False])
def test_a_device_is_charged_for_sides_calls_bytes_and_transfer(host: bool) -> None:
    step = Step("panel", Config(), ())
    step = replace(step, computed_flops=1e8, moved_bytes=1000)
    call = CALL if host else 0.0
    square, flat = plain(100, 100, 100), plain(10, 100, 100)

    def seconds(problem: Problem, known: Measured) -> float | None:
        return device_seconds(step, problem, known, host=host)

    assert seconds(square, measured(None)) == pytest.approx(0.1 + call)
    factor = 4.0 ** (1 - math.log(10) / math.log(1024))
    assert seconds(flat, measured(None)) == pytest.approx(0.1 * factor + call)
    slow = measured(None, bandwidth=1e5)
    assert seconds(square, slow) == pytest.approx((square.traffic + 1000) / 1e5 + call)
    moved = square.traffic / 1e5 if host else 0.0
    assert seconds(square, measured(1e5, bandwidth=1.0)) == pytest.approx(0.1 + moved + call)
    assert device_seconds(replace(step, kernel="naive"), square, slow, host=host) is None


def test_the_host_is_charged_for_sides_and_bytes() -> None:
    problem = plain(100, 100, 50)
    assert host_seconds(problem, measured(None)) == pytest.approx(1e-3)
    thin = plain(10000, 10000, 1)
    assert host_seconds(thin, measured(None)) == pytest.approx(2 * CURVE.seconds(2e8))
    assert host_seconds(problem, measured(None, bandwidth=1e3)) == problem.traffic / 1e3


def test_a_gain_of_under_three_per_cent_is_no_win_and_transfer_counts_by_the_element() -> None:
    def known(kernel: float, transfer: float | None = None) -> Measured:
        curves = (("panel", Curve(((2e9, kernel),))), ("naive", Curve(((2e9, 9.0),))))
        return Measured(Curve(((2e9, 1.03),)), curves, 1e12, transfer)

    assert known(0.999).wins(4) == ((1000, True),)
    assert known(1.001).wins(4) == ((1000, False),)
    # 3 x 1000^2 elements at 3e8 bytes a second are a hundredth of a second a byte.
    assert [known(0.95, 3e8).wins(size)[0][1] for size in (2, 4, 8)] == [True, True, False]
    assert replace(known(0.1), curves=()).wins(4) == ((1000, False),)


@pytest.mark.parametrize(
    ("won", "words"),
    [
        ((False, False, False), "NumPy's BLAS is faster at squares from 100 to 400"),
        ((False, True, True), "from about 200 x 200 x 200 the device is faster"),
        ((True, True, True), "from about 100 x 100 x 100 the device is faster"),
        ((True, False, True), "of squares to 400 the device is faster at 100, 400"),
    ],
)
def test_a_report_names_the_sides_at_which_the_device_wins(
    won: tuple[bool, ...], words: str
) -> None:
    flops = [2.0 * side**3 for side in (100, 200, 400)]
    host = Curve(tuple((size, 1.0) for size in flops))
    curve = Curve(tuple((size, 0.5 if one else 2.0) for size, one in zip(flops, won, strict=True)))
    scratch = (Scratch("a", 3 << 20), Scratch("b", 1 << 19))
    step = Step("panel", Config(), (), scratch)
    rejected = (Rejected("naive", "slower", 0.25), Rejected("image", "no images"))
    made = Plan(DEVICE, plain(500, 500, 400), step, 0.02, "predicted fastest", rejected, ("so",))
    report = explain(made, Measured(host, (("panel", curve),), 1e15, None))
    lines = report.splitlines()
    assert f"crossover  measured: {words}" in lines
    assert "predicted  20.000 ms, 10 GFLOP/s" in lines
    assert "scratch    3.5 MiB" in lines
    assert "rejected   naive: slower  (250.000 ms)" in lines
    assert "rejected   image: no images" in lines
    assert "rule       so" in lines
    assert "predicted  unknown" in explain(replace(made, seconds=None))
    assert not any(line.startswith(("class", "config")) for line in lines)
    named = explain(replace(made, origin="a record", shape_class="large")).splitlines()
    assert "config     a record" in named
    assert "class      large" in named
    assert not any(line.startswith("crossover") for line in named)


# Classes.


@pytest.mark.parametrize(
    ("sides", "found"),
    [
        ((1, 4, 9), "matrix-vector m"),
        ((9, 2, 8), "matrix-vector n"),
        ((90, 90, 3), "skinny k"),
        ((3, 11, 90), "small"),  # the middle side is not four times as long
        ((3, 12, 90), "skinny m"),
        ((5, 90, 90), "skinny m"),
        ((6, 90, 90), "small"),
        ((100, 100, 100), "small"),
        ((100, 101, 100), "large"),
    ],
)
def test_a_class_is_the_narrow_side_or_the_size(sides: tuple[int, int, int], found: str) -> None:
    boundaries = Boundaries(matrix_vector=2, skinny=5, small=100, measured=True)
    assert classify(plain(*sides), boundaries) == found
    assert describe(plain(*sides), boundaries).startswith(f"{found} (")
    assert describe(plain(*sides), boundaries).endswith("; measured)")
    assert "not measured" in describe(plain(*sides), Boundaries())


def test_what_may_serve_a_class_is_another_class_and_the_class_itself_comes_first() -> None:
    for name in CLASSES:
        first, *others = nearest(name)
        assert first == name
        assert others
        assert set(others) <= set(CLASSES) - {name}
    assert nearest("skinny n")[1:] == ("matrix-vector n", "large", "small")


def test_a_layout_is_told_by_the_dimension_of_neighbours() -> None:
    turned = Problem(8, 9, 7, 1, 8, 30, 3, 9, 1)
    assert layout_of(plain(8, 9, 7)) == "rows-rows"
    assert layout_of(turned) == "columns-strided"
    assert layout_of(replace(turned, b_row=1)) == "columns-columns"
    assert record_name(turned, "large") == "float32 float32 columns-strided large"


# Configurations.


@dataclass(frozen=True)
class Sized:
    """A kernel whose needs are its configuration's numbers."""

    needs: Resources
    name: str = "sized"

    def why_not(self, problem: Problem, device: object) -> None:
        return None

    def configs(self, problem: Problem, device: object) -> tuple[Config, ...]:
        return tuple(Config(tile_m=side, tile_n=side, group_m=side // 2) for side in (64, 32, 16))

    def space(self, problem: Problem, device: object) -> tuple[Axis, ...]:
        return ()

    def resources(self, config: Config, problem: Problem) -> Resources:
        return self.needs

    def lower(self, problem: Problem, device: object, config: Config) -> Step:
        return Step(self.name, config, ())


SMALL = replace(
    DEVICE, kind="gpu", compute_units=4, max_work_group=64, max_work_item_sizes=(32, 16, 1),
    local_memory=1024,
)  # fmt: skip


@pytest.mark.parametrize(
    ("config", "needs", "said"),
    [
        (Config(group_n=32, group_m=16), Resources(64, 1024), None),
        (Config(group_n=33, group_m=1), Resources(1), "33 x 1 work-items"),
        (Config(group_n=1, group_m=17), Resources(1), "1 x 17 work-items"),
        (Config(), Resources(65), "65 work-items a group, the device allows 64"),
        (Config(), Resources(1, 1025), "1025 bytes of local memory, the device has 1024"),
        (Config(), Resources(1, why_not="too odd"), "too odd"),
    ],
)
def test_what_a_device_holds_is_legal_to_the_last_byte(
    config: Config, needs: Resources, said: str | None
) -> None:
    found = why_not(Sized(needs), config, plain(9, 9, 9), SMALL)
    assert found == said if said is None else said in str(found)


def test_fewer_rounds_of_tiles_come_first_and_cpus_keep_the_kernels_order() -> None:
    kernel, problem = Sized(Resources(1)), plain(64, 64, 9)
    assert waves(Config(tile_m=32, tile_n=32), problem, SMALL) == 32 * 32
    assert waves(Config(tile_m=32, tile_n=16), problem, SMALL) == 2 * 32 * 16
    assert waves(Config(tile_m=32, tile_n=32, rate=2.0), problem, SMALL) == 512
    assert waves(Config(tile_m=60, tile_n=64), problem, SMALL) == 60 * 64
    assert waves(Config(), problem, SMALL) == 0
    order = [config.tile_m for config in legal_configs(kernel, problem, replace(SMALL, kind="cpu"))]
    assert order == [32, 16], "a group of 32 rows is beyond the device"
    first = legal_configs(kernel, plain(16, 16, 9), SMALL)[0]
    assert first.tile_m == 16


@pytest.mark.parametrize(
    ("sides", "found"),
    [
        ((900, 900, 900), True),
        ((900, 900, 899), False),
        ((256, 2000, 1424), True),
        ((255, 2000, 9999), False),
        ((9999, 255, 2000), False),
        ((9999, 2000, 255), False),
    ],
)
def test_a_blas_takes_what_is_wide_in_every_direction(
    sides: tuple[int, int, int], found: bool
) -> None:
    assert large(*(np.array([side]) for side in sides)).tolist() == [found]


@pytest.mark.parametrize(
    ("others", "found"), [((30, 30, 30), [0, 1]), ((300, 300, 300), []), ((512, 700, 700), [])]
)
def test_what_is_large_is_a_blas_where_the_others_are_little(
    others: tuple[int, int, int], found: list[int]
) -> None:
    sizes = np.array([(1000, 1000, 1000), (512, 2000, 712), *[others] * 300])
    assert np.flatnonzero(spared(*sizes.T)).tolist() == found


def candidate(ratio: float, moved: int = 0) -> Candidate:
    step = Step("panel", Config(), (), computed_flops=2.0 * 512**3, moved_bytes=moved)
    return Candidate(step, step, ratio)


# 1e12 operations a second, but a launch takes 1e-4 s at least.
LINE = Curve(((1e8, 1e-4), (1e12, 1.0)))


def known(bandwidth: float = 1e15) -> Measured:
    return Measured(LINE, (("panel", LINE),), bandwidth, None)


@pytest.mark.parametrize("ratio", [0.5, 0.8, 1.0, 2.0])
@pytest.mark.parametrize("host", [True, False])
def test_a_better_configuration_takes_nothing_off_launches_and_bytes(
    ratio: float, host: bool
) -> None:
    """What is over the cost of a launch, or of the bytes, is scaled; a call comes on top."""
    problem = plain(512, 512, 512)
    call = CALL if host else 0.0
    seconds = 2.0 * 512**3 / 1e12
    found = candidate(ratio).seconds(problem, known(), host=host)
    assert found == pytest.approx(call + 1e-4 + (seconds - 1e-4) * ratio)
    # 3 x 512^2 elements and twice as many bytes moved besides, in 2e-4 s.
    bytes_ = 3 * 3 * 512**2 * 4
    slow = known(bytes_ / 2e-4)
    found = candidate(ratio, 2 * 3 * 512**2 * 4).seconds(problem, slow, host=host)
    assert found == pytest.approx(call + 2e-4 + (max(seconds, 2e-4) - 2e-4) * ratio)


def test_a_prediction_is_no_less_than_what_is_possible() -> None:
    problem = plain(512, 512, 512)
    assert candidate(0.5).seconds(problem, known(), host=False, least=0.25) == 0.25
    assert candidate(0.5).seconds(problem, Measured(LINE, (), 1e15, None), host=False) is None


@pytest.mark.parametrize(
    ("bias", "activation", "passes", "gelu"),
    [
        (False, "none", 0, 0),
        (True, "none", 2, 0),  # from the product into C, and the bias
        (False, "relu", 2, 0),
        (True, "relu", 3, 0),
        (False, "gelu", 1, 1),
        (True, "gelu", 2, 1),
    ],
)
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_numpys_passes_behind_a_product_read_and_write_every_element(
    bias: bool, activation: str, passes: int, gelu: int, dtype: str
) -> None:
    """A gelu takes 21 ns an element besides."""
    bare = replace(plain(300, 200, 100), dtype=dtype)
    problem = replace(bare, bias=bias, activation=activation)
    more = host_seconds(problem, known(1e9)) - host_seconds(bare, known(1e9))
    itemsize = np.dtype(dtype).itemsize
    wanted = 300 * 200 * (passes * 2 * itemsize / 1e9 + gelu * 2.1e-8)
    # A bias is read too, where bytes are what a product costs.
    assert more == pytest.approx(wanted, rel=1e-2, abs=1e-9)
