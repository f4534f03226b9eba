"""What a stored configuration may hold, at both sides of every limit."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tilewright.facts.kernel import Config
from tilewright.planning.classes import Boundaries
from tilewright.planning.cost import Curve, Measured
from tilewright.tuning.curves import from_json, to_json
from tilewright.tuning.tasks import Task, tasks
from tilewright.tuning.trial import Shape, allowed_error, relative_error
from tilewright.tuning.tuned import config_from_json, ratio_from_json
from tilewright.tuning.tuner import Tuner


@pytest.mark.parametrize(
    ("name", "least", "most"),
    [
        ("tile_m", 0, 16384),
        ("tile_k", 0, 16384),
        ("group_n", 0, 16384),
        ("micro_m", 1, 16384),
        ("vector", 1, 16),
        ("unroll", 1, 64),
        ("buffers", 1, 8),
        ("multiply_add", 0, 2),
    ],
)
def test_a_tunable_lies_between_what_divides_and_what_a_kernel_can_hold(
    name: str, least: int, most: int
) -> None:
    for value in (least, most):
        config = config_from_json({name: value})
        assert getattr(config, name) == value
    for wrong in (least - 1, most + 1, float(most), True, str(most)):
        with pytest.raises(ValueError, match="is no tunable"):
            config_from_json({name: wrong})


@pytest.mark.parametrize("document", [{"rate": 1}, {"speed": 1}, {"tile_m": None}])
def test_what_is_no_tunable_is_refused(document: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="is no tunable"):
        config_from_json(document)
    assert config_from_json({}) == Config()


def test_large_products_come_first_and_have_most_of_the_time() -> None:
    """Four parts of it, small ones two, every other class one; three shapes at most of each."""
    bounds = Boundaries(1, 16, 256, measured=True)
    shapes = [
        Shape(1, 900, 900),
        *(Shape(100 + size, 100, 100) for size in range(5)),
        Shape(900, 900, 900),
        Shape(900, 8, 900),
    ]
    kernel: Any = object()
    found = tasks((kernel,), shapes, bounds)
    assert [(one.shape_class, one.weight, len(one.shapes)) for one in found] == [
        ("large", 4.0, 1),
        ("small", 2.0, 3),
        ("matrix-vector m", 1.0, 1),
        ("skinny n", 1.0, 1),
    ]
    assert found[1].shapes == tuple(shapes[1:4])
    assert found[0].record == "float32 float32 rows-rows large"
    assert Task(kernel, "large", tuple(shapes)).weight == 1.0


def test_a_boundary_of_nothing_is_stored_and_read_and_one_below_is_none() -> None:
    """A device whose smallest square has the full rate has no small class."""
    curve = Curve(((1e6, 1e-3),))
    known = Measured(curve, (("k", curve),), 1e9, None, (), Boundaries(0, 0, 0, measured=True))
    document = to_json(known)
    assert from_json(document) == known
    for name in ("matrix_vector", "skinny", "small"):
        wrong = {**document, "boundaries": {**document["boundaries"], name: -1}}
        with pytest.raises(ValueError, match="below 0"):
            from_json(wrong)


@pytest.mark.parametrize(
    ("record", "found"),
    [
        ({"ratio": 1.0}, 1.0),
        ({"ratio": 0.5, "ratios": [0.25, 0.75]}, 0.75),
        ({"ratio": 0.5, "ratios": [1.25]}, 1.0),
        ({"ratio": 0.0, "ratios": [0.5]}, None),
        ({"ratio": 1.01, "ratios": [0.5]}, None),
        ({"ratio": 0.5, "ratios": [-1.0]}, None),
        ({"ratio": 0.5, "ratios": [0.0]}, None),
        ({"ratio": 0.5, "ratios": [1e-9]}, 1e-9),
    ],
)
def test_a_ratio_is_that_of_the_shape_that_gained_least(record: Any, found: float | None) -> None:
    if found is not None:
        assert ratio_from_json(record) == found
        return
    with pytest.raises(ValueError, match="ratio="):
        ratio_from_json(record)


def test_what_counts_as_rounding_grows_with_the_root_of_the_depth() -> None:
    eps = 2.0**-23
    assert allowed_error("float32", 100, 0.0) == pytest.approx(1e-6 + 10 * eps, rel=1e-12)
    assert allowed_error("float64", 0, 3e-7) == pytest.approx(1.6e-6, rel=1e-12)


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
def test_an_error_is_relative_to_the_largest_magnitude(scale: float) -> None:
    truth = scale * np.array([1e-3, -4.0, 2.0])
    found = truth + scale * np.array([0.02, 0.0, -0.01])
    assert relative_error(found, truth) == pytest.approx(0.005)
    assert relative_error(truth, truth) == 0
    assert math.isnan(relative_error(np.where(truth > 0, np.nan, truth), truth))
    nothing = np.zeros(3)
    assert relative_error(nothing, nothing) == 0
    assert relative_error(truth, nothing) > 1


@pytest.mark.parametrize(
    ("seconds_left", "interrupts", "begun"), [(9.0, 9, 3), (9.0, 0, 1), (9.0, 1, 2), (0.0, 9, 0)]
)
def test_no_task_begins_once_the_time_is_up_or_somebody_interrupted(
    seconds_left: float, interrupts: int, begun: int
) -> None:
    tuner: Any = SimpleNamespace(
        workshop=SimpleNamespace(greet=lambda request: {}),
        _request=lambda what: {},
        interrupted=False,
        seconds_left=seconds_left,
    )
    seen: list[object] = []

    def run_task(task: object, share: float) -> None:
        tuner.interrupted = len(seen) == interrupts
        seen.append(task)

    tuner._run_task = run_task
    tasks: Any = [SimpleNamespace(weight=1.0)] * 3
    assert Tuner.run(tuner, tasks) == []
    assert len(seen) == begun


def test_time_that_passes_is_taken_off_a_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [50.0]
    monkeypatch.setattr("tilewright.tuning.tuner.time.monotonic", lambda: clock[0])
    tuner: Any = SimpleNamespace(budget=10.0, _began=50.0)
    left = Tuner.seconds_left.fget
    assert left is not None
    for passed, seconds in ((0.0, 10.0), (4.0, 6.0), (10.0, 0.0), (11.0, 0.0)):
        clock[0] = 50.0 + passed
        assert left(tuner) == seconds


def test_a_shape_makes_two_operations_for_each_product_of_elements() -> None:
    assert Shape(3, 5, 7).flops == 2 * 3 * 5 * 7
    assert Shape(1, 1, 1).flops == 2
    assert Shape(3, 5, 7).problem().flops == 2 * 3 * 5 * 7
