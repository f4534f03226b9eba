"""A plan of a batch in words, in the lines that every report of a choice has."""

from __future__ import annotations

from tilewright import plan_grouped
from tilewright.facts.device import Device


def test_a_plan_for_a_device_names_its_engine_and_every_order(intel: Device) -> None:
    plan = plan_grouped([100, 5], [100, 7], [100, 3], device=intel)
    assert plan.layout is not None
    text = plan.explain()
    assert f"\nengine     opencl\nbecause    {plan.layout.reason}\npredicted  " in text
    for order in ("given", "k-descending", "bucketed", "longest-first"):
        assert f"\norder      {order}: " in text
    shown = f"GroupedPlan(2 products, float32, {intel.id!r}, {plan.layout.chosen})"
    assert repr(plan) == shown


def test_a_plan_for_the_host_names_its_engine() -> None:
    plan = plan_grouped([100] * 4, [7] * 4, [3] * 4, device="host", order="given")
    assert repr(plan) == "GroupedPlan(4 products, float32, 'host', given)"
    assert "\nengine     native\nbecause    given: " in plan.explain()


def test_a_plan_that_no_engine_takes_is_a_loop_and_says_why() -> None:
    plan = plan_grouped([100] * 4, [7] * 4, [3] * 4, device="host", dtype="float16")
    assert plan.explain().splitlines()[2:] == [
        "engine     host",
        "because    a loop of numpy.matmul, as given",
        "predicted  unknown: no measurement was asked, or none covers it",
        "rejected   native: no grouped kernel for float16 on 'host'",
    ]


def test_one_problem_is_told_in_the_singular(intel: Device) -> None:
    lines = plan_grouped([5], [7], [3], device=intel).explain().splitlines()
    assert lines[0].startswith("1 product, ")
    assert any(line.startswith("tiles ") and line.endswith(": 1 problem") for line in lines)
