"""What a tuner may choose: legal by the one check, right in its results, found by the search."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

from tests.planning.test_rules import assert_launches_fit
from tests.support import made_up
from tests.support.cases import Case, operands
from tests.support.runs import prepared, run_configuration
from tilewright import Device
from tilewright.backends import backends
from tilewright.engines.dense import plan_kernel
from tilewright.facts.kernel import Config, Kernel, Tunable
from tilewright.tuning.search import Space, _fresh, search
from tilewright.tuning.trial import Shape

DEVICE = made_up.TWO_CORES
KERNELS = backends()["opencl"].kernels(DEVICE)
PANEL = next(kernel for kernel in KERNELS if kernel.name == "panel")
SQUARE = Shape(1000, 1000, 1000).problem()
CASES = (
    Case(131, 263, 37, out="offset", alpha=2.0, beta=-1.0, bias=True, activation="relu"),
    Case(132, 264, 40, a="F", b="F"),
)


@pytest.mark.parametrize("on", made_up.DEVICES, ids=lambda device: device.name)
@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.name)
def test_drawn_configurations_are_planned_within_the_limits_of_the_device(
    kernel: Kernel, on: Device
) -> None:
    generator = random.Random(3)
    assert isinstance(kernel, Tunable)
    for sides in ((97, 61, 43), (1024, 1024, 1024), (1, 4096, 4096)):
        problem = Shape(*sides).problem()
        space = Space.of(kernel, problem, on)
        if space is None:
            assert kernel.why_not(problem, on) is not None
            continue
        assert space.size > 20
        drawn = [space.draw(generator) for _ in range(60)]
        legal = [config for config in drawn if space.legal(config)]
        assert legal
        for config in legal:
            assert_launches_fit(plan_kernel(problem, on, kernel, config))


def test_the_search_finds_the_best_of_thousands_in_a_few_dozen() -> None:
    space = Space.of(PANEL, SQUARE, DEVICE)
    assert space is not None
    target = {"micro_m": 8, "vector": 8, "tile_k": 256, "tile_m": 96, "tile_n": 512}
    asked: list[Config] = []

    def measure(config: Config) -> float | str:
        asked.append(config)
        if config.multiply_add == 1:
            return "refused"
        return 1.0 + sum(abs(np.log2(getattr(config, n) / v)) for n, v in target.items())

    result = search(space, measure, lambda: 1 - len(asked) / 250)
    assert result is not None
    assert {name: getattr(result[0], name) for name in target} == target
    assert len(asked) == len(set(asked))
    assert len(asked) < space.size / 20
    assert all(space.legal(config) for config in asked)


def test_a_search_in_which_all_fails_finds_nothing() -> None:
    space = Space.of(PANEL, SQUARE, DEVICE)
    assert space is not None
    asked = iter(range(40))
    assert search(space, lambda config: "refused", lambda: 1 - next(asked) / 30) is None


@pytest.mark.slow
@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.name)
def test_drawn_configurations_are_right(kernel: Kernel, device: Device) -> None:
    generator = random.Random(5)
    for case in CASES:
        problem = prepared(operands(case), device).plan.problem
        space = Space.of(kernel, problem, device)
        assert space is not None
        drawn = [space.draw(generator) for _ in range(50)]
        run_configuration(case, device, kernel, next(c for c in drawn if space.legal(c)))


@pytest.mark.parametrize("found", [0, 3])
def test_a_space_is_exhausted_after_200_draws_in_a_row_that_give_nothing_new(found: int) -> None:
    """New ones begin the row anew; what is illegal and what is known is nothing."""
    drawn: list[Config] = []

    class Drawing:
        def draw(self, generator: random.Random) -> Config:
            new = len(drawn) % 150 == 149 and len(drawn) < 150 * found
            drawn.append(Config(unroll=len(drawn)) if new else Config(unroll=len(drawn) % 2))
            return drawn[-1]

        def legal(self, config: Config) -> bool:
            return config.unroll != 1

    space: Any = Drawing()
    fresh = list(_fresh(space, random.Random(0), {Config(unroll=0): 1.0}))
    assert len(fresh) == found
    assert len(drawn) == 150 * found + 200
