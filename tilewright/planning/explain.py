"""Puts a choice into words, alike for every kind of work: engine, why, how long, why no other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from tilewright.facts.device import Device
from tilewright.facts.kernel import Launch, Plan
from tilewright.facts.verdict import Proposal, Verdict
from tilewright.planning.cost import Measured
from tilewright.planning.grouped import GroupedLayout
from tilewright.wording import counted, time_text

_UNKNOWN = "unknown: no measurement was asked, or none covers it"
_FORCED = "unknown: this kernel was not measured on this device"
NOT_MEASURED = "this device is not measured yet: NumPy's BLAS until it is"


def explain(plan: Plan, measured: Measured | None = None, products: int = 1) -> str:
    """The report of a plan that so many equal products follow, ready to print."""
    problem = plan.problem
    m, n, k = problem.m, problem.n, problem.k
    head = product_head(m, n, k, problem.dtype, problem.accumulate, plan.device)
    if products != 1:
        head.insert(1, f"products   {products} of these; {_launches(plan, products)}")
    scratch = sum(one.bytes for one in plan.step.scratch)
    best = Proposal(plan.kernel, plan.device, plan.seconds, plan.reason, scratch)
    verdict = Verdict(plan.device, (best,), plan.rejected)
    unknown = _FORCED if plan.forced else _UNKNOWN
    details = [*_details(plan, measured)]
    return "\n".join(head + lines_of(verdict, problem.flops, details=details, unknown=unknown))


def product_head(m: int, n: int, k: int, dtype: str, sums: str, device: Device) -> list[str]:
    """What is multiplied and where it runs, above what was chosen for it."""
    sizes = f"C[{m} x {n}] = A[{m} x {k}] @ B[{k} x {n}]"
    return [f"{sizes}, {dtype} summed in {sums}", f"device     {device.id}  {device.name}"]


def explained_elsewhere(engine: str, reason: str, device: Device, operations: float) -> list[str]:
    """The choice of a library's own product, of which nothing is predicted."""
    best = Proposal(engine, device, None, reason)
    return lines_of(Verdict(device, (best,), ()), operations)


def batch_head(products: int, dtype: str, operations: float, device: Device) -> list[str]:
    """What a batch is and where it runs, above what was chosen for it."""
    return [
        f"{counted(products, 'product')}, {dtype}, {operations / 1e9:.3f} GFLOP",
        f"device     {device.id}  {device.name}",
    ]


def ragged_head(
    sizes: tuple[int, int, int], groups: int, types: tuple[str, str], device: Device, of_rows: bool
) -> list[str]:
    """What a ragged product of all rows (or of all k) together is and where it runs."""
    (m, n, k), (dtype, sums) = sizes, types
    if of_rows:
        what = f"C[{m} x {n}] = A[{m} x {k}] @ B[group][{k} x {n}]"
    else:
        what = f"C[group][{m} x {n}] = A[{m} x group] @ B[group x {n}], {k} of k"
    return [
        f"{what}, {counted(groups, 'group')}, {dtype} summed in {sums}",
        f"device     {device.id}  {device.name}",
    ]


def explained(layout: GroupedLayout, verdict: Verdict, operations: float) -> list[str]:
    """The plan of a batch in lines."""
    return lines_of(verdict, operations, details=_details_of(layout))


def _details_of(layout: GroupedLayout) -> list[str]:
    """What only plans of batches have: the orders looked at, tiles, cuts, balance."""
    balance = layout.balance()
    lines = [f"order      {name}: {time_text(s)}" for name, s in layout.predicted.items()]
    for shape, tile in enumerate(layout.tiles):
        problems = int(np.count_nonzero(layout.tile == shape))
        if problems:
            lines.append(f"tiles      {tile.m} x {tile.n}: {counted(problems, 'problem')}")
    cut = int(np.count_nonzero(layout.parts > 1))
    if cut:
        products = counted(cut, "long product")
        lines.append(f"split      {products} along k, parts added in a fixed order")
    for name, work in (("before", balance.before), ("after", balance.after)):
        spread = work.max() / work.mean() if work.any() else 1.0
        lines.append(f"balance    {name}: busiest compute unit has {spread:.2f}x the mean")
    return lines


def _details(plan: Plan, measured: Measured | None) -> Iterator[str]:
    """What only plans of one product of the host's arrays have."""
    if plan.step.launches:
        yield f"tunables   {plan.step.config}"
    if plan.origin:
        yield f"config     {plan.origin}"
    if plan.shape_class:
        yield f"class      {plan.shape_class}"
    if measured is not None:
        yield f"crossover  {_crossover(measured, plan.problem.itemsize)}"
    elif plan.reason == NOT_MEASURED:
        yield "crossover  not measured yet: a twentieth of the work goes into it as products run"
    yield from (f"launch     {_launch(launch)}" for launch in plan.step.launches)
    yield from (f"rule       {note}" for note in plan.notes)


def lines_of(
    verdict: Verdict,
    operations: float,
    unit: str = "FLOP/s",
    details: Sequence[str] = (),
    unknown: str = _UNKNOWN,
) -> list[str]:
    """What every report of a choice says; `details`, which only some have, before the rejected."""
    best = verdict.best
    lines = [f"engine     {best.engine}", f"because    {best.reason}"]
    speed = unknown if best.seconds is None else _speed(best.seconds, operations, unit)
    lines.append(f"predicted  {speed}")
    if best.scratch:
        lines.append(f"scratch    {best.scratch / 2**20:.1f} MiB")
    lines += details
    for one in verdict.rejected:
        after = "" if one.seconds is None else f"  ({time_text(one.seconds)})"
        lines.append(f"rejected   {one.kernel}: {one.reason}{after}")
    return lines


def _speed(seconds: float, operations: float, unit: str) -> str:
    if not seconds:
        return "at once"
    rate = operations / seconds / 1e9
    speed = f"{rate / 1e3:.1f} T{unit}" if rate >= 1e4 else f"{rate:.0f} G{unit}"
    return f"{time_text(seconds)}, {speed}"


def _launches(plan: Plan, products: int) -> str:
    if plan.kernel == "host":
        return "the prediction is of one"
    if plan.is_one_launch(products):
        return "one launch of the grouped kernel, the prediction is of one alone"
    return "launched one after another, the prediction is of one"


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
