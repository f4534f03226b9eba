"""Chooses who multiplies: of the engines that can, the one of fewest predicted seconds.

The one place where engines are compared, whatever the work: one product of the host's arrays,
batches on GPUs, products of bits, products whose sizes lie on the device.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

from tilewright.engines.contract import Planner
from tilewright.errors import KernelError, TilewrightError
from tilewright.facts.device import Device
from tilewright.facts.verdict import Proposal, Rejected, Verdict
from tilewright.wording import short

Work = TypeVar("Work")


class _HasName(Protocol):
    @property
    def name(self) -> str: ...


Named = TypeVar("Named", bound=_HasName)


def choose(
    work: Work,
    device: Device,
    engines: Sequence[Planner[Work]],
    wanted: str | None = None,
    *,
    enough: float = 0.0,
    least: Callable[[Planner[Work]], float] | None = None,
) -> Verdict:
    """Ask the engines in turn, or only the one wanted; none after one done within `enough` seconds.

    `least` gives seconds that no proposal of an engine undercuts: one that cannot win by it is not
    asked to plan, and refused.

    Of equal predictions the engine asked first wins, of those that predict nothing too, and they
    come last. Raises KernelError where the engine that was wanted does not exist or cannot.
    """
    asked = engines if wanted is None else (named(engines, wanted, device),)
    proposals: list[Proposal] = []
    refusals: list[Rejected] = []
    for engine in asked:
        answer = _answer(engine, work, device, proposals, least)
        if isinstance(answer, str):
            refusals.append(Rejected(engine.name, answer))
            continue
        proposals.append(answer)
        if answer.seconds is not None and answer.seconds <= enough:
            break
    if wanted is not None and not proposals:
        raise KernelError(f"kernel={short(wanted)}: {device.name}: {refusals[0].reason}")
    return Verdict(device, tuple(sorted(proposals, key=_order)), tuple(refusals))


def merged(first: Verdict, second: Verdict) -> Verdict:
    """What the engines of two devices say of one work; the first's win ties."""
    proposals = sorted(first.proposals + second.proposals, key=_order)
    return Verdict(first.device, tuple(proposals), first.refusals + second.refusals)


def named(engines: Sequence[Named], name: str, device: Device) -> Named:
    """The engine of this name. Raises KernelError with the names that there are."""
    for engine in engines:
        if isinstance(name, str) and engine.name == name:
            return engine
    if not engines:
        raise KernelError(
            f"kernel={short(name)}: {device.id!r} has no kernels to force; accepted is kernel=None"
        )
    known = ", ".join(repr(engine.name) for engine in engines)
    raise KernelError(f"kernel={short(name)}: {device.id!r} knows {known}")


def _answer(
    engine: Planner[Work],
    work: Work,
    device: Device,
    others: Sequence[Proposal],
    least: Callable[[Planner[Work]], float] | None,
) -> Proposal | str:
    """A proposal, or the reason for none; what one cannot plan does not concern the others."""
    why = engine.why_not(work, device)
    if why is not None:
        return why
    if others and least is not None and least(engine) > min(map(_order, others)):
        return "slower, however it is planned"
    try:
        return engine.propose(work, device)
    except TilewrightError as error:
        return str(error)


def _order(one: Proposal) -> float:
    return math.inf if one.seconds is None else one.seconds * one.margin
