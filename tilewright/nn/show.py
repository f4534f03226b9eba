"""A plan as text: every step, what of the file it does, by whom, how long, and why."""

from __future__ import annotations

from tilewright.facts.verdict import Verdict
from tilewright.nn.plan import Plan, Step
from tilewright.nn.segments import Segment, moved_bytes
from tilewright.wording import counted, time_text, wrapped


def explained(plan: Plan, title: str) -> str:
    """The report that `explain()` prints."""
    inputs = ", ".join(
        f"{i.name} {list(plan.tensors[i.name].shape)} {plan.dtype_of(i.name)}"
        for i in plan.graph.inputs
    )
    predicted = "" if plan.seconds is None else f", predicted {time_text(plan.seconds)}"
    lines = [
        f"{title} on {plan.device.id} ({plan.device.name}): {inputs}",
        f"{counted(len(plan.steps), 'step')}{predicted}, values take"
        f" {plan.peak_bytes / 2**20:.2f} MiB at once, engines"
        f" {plan.scratch_bytes / 2**20:.2f} MiB besides",
    ]
    if plan.widened:
        ends = ", outputs are rounded to it once" if plan.outside else ""
        lines.append(
            f"no engine has {', '.join(plan.widened)} here, so it is as fast as float32: weights"
            f" were rounded to it, values between layers are float32 and are not{ends}"
        )
    for number, step in enumerate(plan.steps, 1):
        lines += _lines(number, step, plan)
    return "\n".join(part for line in lines for part in wrapped(line))


def _names(covers: tuple[str, ...]) -> str:
    """The first and the last of them."""
    if len(covers) < 4:
        return ", ".join(covers)
    return f"{covers[0]} ... {covers[-1]}, {len(covers)} nodes"


def _lines(number: int, step: Step, plan: Plan) -> list[str]:
    """One step: what it is, then what was decided, then what was not taken."""
    shape = list(plan.tensors[next(n for n in step.node.outputs if n)].shape)
    head = f"{number:4d}  {step.kind} -> {shape}, {step.flops / 1e6:,.1f} MFLOP"
    lines = [head + (f": {_names(step.covers)}" if step.covers else "")]
    if step.verdict is None:
        why = f", as no engine takes it ({step.refused})" if step.refused else ""
        return [*lines, f"      by definition{why}"]
    best = step.verdict.best
    seconds = "not predicted" if best.seconds is None else time_text(best.seconds)
    lines.append(f"      {best.engine}, {seconds}: {best.reason}")
    if step.segment is not None:
        lines += _cut(step, step.segment)
    return [*lines, *(f"      not {text}" for text in _others(step.verdict))]


def _others(verdict: Verdict) -> list[str]:
    """Who was not taken, and why: those with one reason in one line."""
    found: dict[str, list[str]] = {}
    for other in verdict.rejected:
        took = "" if other.seconds is None else f" ({time_text(other.seconds)})"
        found.setdefault(other.reason, []).append(f"{other.kernel}{took}")
    return [f"{', '.join(names)}: {reason}" for reason, names in found.items()]


def _cut(step: Step, segment: Segment) -> list[str]:
    """How a chain was cut, and what that saves."""
    lines = [f"      {segment.why}"] if segment.why else []
    nodes = [len(part) for part in step.node.attributes["parts"]]
    if sum(nodes) > 1:
        fused, apart = (size / 2**20 for size in moved_bytes(segment.work, nodes))
        lines.append(f"      moves {fused:.2f} MiB; its nodes one by one would {apart:.2f} MiB")
    return lines
