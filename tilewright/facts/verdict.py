"""Records of a choice: what engines proposed, why others refused, and the verdict over them.

A proposal holds what its engine decided, so that the engine can bind it later, again, or to other
addresses, without planning twice; `explain()` prints the verdict.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tilewright.facts.device import Device


@dataclass(frozen=True, slots=True)
class Proposal:
    """What an engine would do with a work on a device.

    `seconds` is the prediction, None where nothing was ever measured; `scratch` the bytes of device
    memory that it takes; `reason` says in words how it was decided. `margin` is how many times
    faster than another it must be predicted to be preferred. `decisions` are the engine's own.
    """

    engine: str
    device: Device
    seconds: float | None
    reason: str
    scratch: int = 0
    margin: float = 1.0
    decisions: Any = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Rejected:
    """An alternative that was not taken, and why."""

    kernel: str
    reason: str
    seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the engines said of a work on a device: proposals, the best first, and refusals."""

    device: Device
    proposals: tuple[Proposal, ...]
    refusals: tuple[Rejected, ...]

    @property
    def best(self) -> Proposal:
        """The one that will run; there is none where every engine refused."""
        return self.proposals[0]

    @property
    def reasons(self) -> str:
        """Every refusal in a line."""
        return "; ".join(f"{one.kernel}: {one.reason}" for one in self.refusals) or "none there"

    @property
    def rejected(self) -> tuple[Rejected, ...]:
        """All but the best, and why not: the slower ones, the nearest first, then the refusals."""
        return (*(self._slower(one) for one in self.proposals[1:]), *self.refusals)

    def _slower(self, one: Proposal) -> Rejected:
        best = self.best.seconds
        if one.seconds is None:
            why = "later in the rules" if best is None else "the probe left it out"
        elif best is not None and one.seconds < best:
            why = f"faster than {self.best.engine} by less than {one.margin - 1:.0%}"
        else:
            why = "slower"
        return Rejected(one.engine, why, one.seconds)
