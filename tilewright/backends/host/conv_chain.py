"""`winograd_chain`: chains of 3x3 convolutions strip by strip, on all cores.

Winograd's F(4x4, 3x3) takes 2.25 multiplications for a result and an input channel where plain sums
take 9, at about twice their rounding; `exact` work gets F(2x2, 3x3): 4, rounded less than plain
sums. Rows roll down strips of columns through all layers, so that activations stay in a core's
caches: layer by layer the transforms waited for memory.
"""

from __future__ import annotations

from collections.abc import Callable

from tilewright.backends.host import compiled, rates, refusals
from tilewright.backends.host.conv_bound import BoundChain
from tilewright.backends.host.conv_plan import ChainPlan, chain_seconds, plan_chain
from tilewright.engines.conv import Conv, ConvOperands, ConvWork
from tilewright.facts.device import Device
from tilewright.facts.verdict import Proposal


class WinogradChain:
    """Chains of 3x3 convolutions of float32 with a step of 1 and a border of 1."""

    name = "winograd_chain"

    def why_not(self, work: ConvWork, device: Device) -> str | None:
        """What a layer has that the kernels do not."""
        if not compiled.available():
            return compiled.why_none()
        if work.dtype != "float32":
            return refusals.dtype(work, "float32")
        for number, layer in enumerate(work.layers, start=1):
            why = _layer_refusal(layer, last=number == len(work.layers))
            if why is not None:
                return why if len(work.layers) == 1 else f"layer {number}: {why}"
        return None

    def propose(self, work: ConvWork, device: Device) -> Proposal:
        """F(4x4, 3x3), or F(2x2, 3x3) where work is exact, in as many strips as finish first."""
        step = 2 if work.exact else 4
        plan = plan_chain(work, step, device.compute_units)
        reason = (
            f"F({step}x{step}, 3x3), {len(plan.strips)} strips an image on {plan.workers} cores,"
            f" {rates.of(device).origin}"
        )
        if not compiled.is_kept("conv_chain"):
            reason += "; compiled first, which takes seconds once"
        seconds = chain_seconds(work, plan, device)
        return Proposal(
            self.name, device, seconds, reason, plan.workers * plan.memory, decisions=(work, plan)
        )

    def bind(self, proposal: Proposal, operands: ConvOperands) -> Callable[[], None]:
        """Packs the weights and takes the scratch memory."""
        work, plan = proposal.decisions
        assert isinstance(work, ConvWork)
        assert isinstance(plan, ChainPlan)
        if not work.images * work.height * work.width:
            return _nothing
        return BoundChain(work, plan, operands)


def _layer_refusal(layer: Conv, *, last: bool) -> str | None:
    for name, given, taken in (
        ("kernel", layer.kernel, (3, 3)),
        ("strides", layer.strides, (1, 1)),
        ("dilations", layer.dilations, (1, 1)),
        ("pads", layer.pads, (1, 1, 1, 1)),
        ("groups", layer.groups, 1),
    ):
        if given != taken:
            return f"{name}={given}: it takes {taken}"
    if not last and layer.shuffle != 1:
        return f"shuffle={layer.shuffle}: only the last layer's pixels are shuffled"
    return None


def _nothing() -> None:
    """An empty batch."""
