"""A plan in words: kernel, configuration, launches, predicted time, what was rejected and why."""

from __future__ import annotations

import numpy as np

from tilewright.facts.kernel import Launch, Plan
from tilewright.facts.verdict import Verdict
from tilewright.planning.cost import Measured
from tilewright.planning.grouped import GroupedLayout

NOT_MEASURED = "this device is not measured yet: NumPy's BLAS until it is"


def explain(plan: Plan, measured: Measured | None = None, products: int = 1) -> str:
    """The report of a plan that so many equal products follow, ready to print."""
    problem, step = plan.problem, plan.step
    lines = [
        f"C[{problem.m} x {problem.n}] = A[{problem.m} x {problem.k}] @ B[{problem.k} x"
        f" {problem.n}], {problem.dtype} summed in {problem.accumulate}",
        f"device     {plan.device.id}  {plan.device.name}",
        f"kernel     {plan.kernel}  ({step.config})",
        f"because    {plan.reason}",
        f"predicted  {_time(plan)}",
    ]
    if products != 1:
        lines.insert(1, f"products   {products} of these; {_launches(plan, products)}")
    if plan.origin:
        lines.insert(3 + (products != 1), f"config     {plan.origin}")
    if plan.shape_class:
        lines.append(f"class      {plan.shape_class}")
    if measured is not None:
        lines.append(f"crossover  {_crossover(measured, problem.itemsize)}")
    elif plan.reason == NOT_MEASURED:
        lines.append(
            "crossover  not measured yet: a tenth of the time goes into it as products run"
        )
    lines += [f"launch     {_launch(launch)}" for launch in step.launches]
    if step.scratch:
        total = sum(scratch.bytes for scratch in step.scratch)
        lines.append(f"scratch    {total / 2**20:.1f} MiB")
    lines += [f"rule       {note}" for note in plan.notes]
    for rejected in plan.rejected:
        seconds = "" if rejected.seconds is None else f"  ({rejected.seconds * 1e3:.3f} ms)"
        lines.append(f"rejected   {rejected.kernel}: {rejected.reason}{seconds}")
    return "\n".join(lines)


def lines_of(verdict: Verdict, operations: float) -> list[str]:
    """What every report of a choice says: the engine, why, how long, and why no other."""
    best = verdict.best
    lines = [f"engine     {best.engine}", f"because    {best.reason}"]
    lines.append(f"predicted  {_speed(best.seconds, operations)}")
    if best.scratch:
        lines.append(f"scratch    {best.scratch / 2**20:.1f} MiB")
    for one in verdict.rejected:
        seconds = "" if one.seconds is None else f"  ({one.seconds * 1e3:.3f} ms)"
        lines.append(f"rejected   {one.kernel}: {one.reason}{seconds}")
    return lines


def _speed(seconds: float | None, operations: float) -> str:
    if not seconds:
        return "unknown: no measurement was asked, or none covers it" if seconds is None else "0 ms"
    rate = operations / seconds / 1e9
    speed = f"{rate / 1e3:.1f} TFLOP/s" if rate >= 1e3 else f"{rate:.0f} GFLOP/s"
    return f"{seconds * 1e3:.3f} ms, {speed}"


def explained(layout: GroupedLayout) -> list[str]:
    """The plan of a batch in lines."""
    balance = layout.balance()
    lines = [f"order      {layout.chosen}", f"because    {layout.reason}"]
    lines += [
        f"predicted  {name}: {seconds * 1e3:.3f} ms" for name, seconds in layout.predicted.items()
    ]
    for shape, tile in enumerate(layout.tiles):
        problems = int(np.count_nonzero(layout.tile == shape))
        if problems:
            lines.append(f"tiles      {tile.m} x {tile.n}: {problems} problems")
    cut = int(np.count_nonzero(layout.parts > 1))
    if cut:
        lines.append(f"split      {cut} long products along k, parts added in a fixed order")
    for name, work in (("before", balance.before), ("after", balance.after)):
        spread = work.max() / work.mean() if work.any() else 1.0
        lines.append(f"balance    {name}: busiest compute unit has {spread:.2f}x the mean")
    return lines


def _launches(plan: Plan, products: int) -> str:
    if plan.kernel == "host":
        return "the prediction is of one"
    if plan.is_one_launch(products):
        return "one launch of the grouped kernel, the prediction is of one alone"
    return "launched one after another, the prediction is of one"


def _time(plan: Plan) -> str:
    if plan.seconds is None:
        return "unknown: no measurement was asked, or none covers it"
    rate = plan.problem.flops / plan.seconds / 1e9
    return f"{plan.seconds * 1e3:.3f} ms, {rate:.0f} GFLOP/s"


def _crossover(measured: Measured, itemsize: int) -> str:
    wins = measured.wins(itemsize)
    sides = [side for side, won in wins if won]
    if not sides:
        return f"measured: NumPy's BLAS is faster at squares from {wins[0][0]} to {wins[-1][0]}"
    if all(won for side, won in wins if side >= sides[0]):
        return f"measured: from about {sides[0]} x {sides[0]} x {sides[0]} the device is faster"
    shown = ", ".join(map(str, sides))
    return f"measured: of squares to {wins[-1][0]} the device is faster at {shown}"


def _launch(launch: Launch) -> str:
    return f"{launch.program}  global {launch.global_size}  group {launch.local_size}"
