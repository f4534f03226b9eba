"""The contract of everything that multiplies: what an engine is asked, in which order.

    why_not(work, device)       what sizes, types and the device tell at once
    propose(work, device)       seconds, scratch, a reason, and what was decided: a frozen Proposal
    bind(proposal, operands)    tables, programs, memory; what is left is launching

An engine is a family of kernels, or a library. What a work is depends on where it lies: one product
of the host's arrays (`facts.problem.Problem`), a batch's columns on a GPU (`backends.cuda.work`),
products of bits (`engines.bits`), or tensors whose sizes only the device knows (`backends.cuda
.ragged`). `engines.choose` asks engines and compares what they propose.
"""

from __future__ import annotations

from typing import Protocol, TypeVar

from tilewright.facts.device import Device
from tilewright.facts.verdict import Proposal

Asked = TypeVar("Asked", contravariant=True)
Operands = TypeVar("Operands", contravariant=True)
Launch = TypeVar("Launch", covariant=True)


class Planner(Protocol[Asked]):
    """What choosing needs of an engine."""

    @property
    def name(self) -> str:
        """What `kernel=` takes and `explain()` prints."""

    def why_not(self, work: Asked, device: Device) -> str | None:
        """Why it cannot take the work there, as far as that can be told without planning."""

    def propose(self, work: Asked, device: Device) -> Proposal:
        """What it would do with a work that `why_not` has nothing against.

        Raises KernelError with the reason where it turns out only now that it cannot, or should
        not, take it.
        """


class Engine(Planner[Asked], Protocol[Asked, Operands, Launch]):
    """A family of kernels, or a library, for one kind of device and of work."""

    def bind(self, proposal: Proposal, operands: Operands) -> Launch:
        """Prepare everything for these operands; nothing is computed yet.

        Raises DeviceError where a kernel cannot be had, or memory not.
        """
