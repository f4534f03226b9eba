"""`int8_chain`: convolutions of small whole numbers, one or a chain of them, on all cores.

Sums of four products an instruction (VNNI, AVX-VNNI, ARM's dot products, else AVX2's pairs), a few
rows of each layer at a time, so that what lies between layers stays in a core's cache. x may come
as float32 and the result leave so: both are done in the same pass. The bytes are those of the
definition, one for one.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tilewright.backends.host import compiled, rates, refusals
from tilewright.backends.host.conv_whole_bound import BoundWhole
from tilewright.backends.host.conv_whole_pack import sums_most
from tilewright.backends.host.conv_whole_plan import WholePlan, pieces_of, plan_whole, whole_seconds
from tilewright.engines.conv import Conv, ConvOperands, ConvWork
from tilewright.facts.device import Device
from tilewright.facts.verdict import Proposal

_TAPS, _PIECES = 64, 1 << 12  # of a window, as the kernels' tables hold them


class Int8Chain:
    """Chains of int8 convolutions: any kernel, stride, dilation, pads and groups."""

    name = "int8_chain"

    def why_not(self, work: ConvWork, device: Device) -> str | None:
        """What a layer has that the kernels do not."""
        if not compiled.available():
            return compiled.why_none()
        if work.dtype not in ("uint8", "int8"):
            return refusals.dtype(work, "uint8 and int8")
        for number, layer in enumerate(work.layers, start=1):
            why = _layer_refusal(layer, last=number == len(work.layers))
            if why is not None:
                return why if len(work.layers) == 1 else f"layer {number}: {why}"
        if work.result_dtype != "float32" and work.result == "channels_first":
            return "writes whole numbers channels last alone"
        return None

    def propose(self, work: ConvWork, device: Device) -> Proposal:
        """As many strips of rows as there are cores."""
        plan = plan_whole(work, device.compute_units)
        strips, origin = len(plan.strips), rates.of(device).origin
        reason = f"{strips} strips an image on {plan.workers} cores, sums in int32, {origin}"
        if not compiled.is_kept("conv_whole"):
            reason += "; compiled first, which takes seconds once"
        return Proposal(
            self.name,
            device,
            whole_seconds(work, plan, device),
            reason,
            plan.workers * plan.memory,
            decisions=(work, plan),
        )

    def bind(self, proposal: Proposal, operands: ConvOperands) -> Callable[[], None]:
        """Packs the weights and takes the rings."""
        work, plan = proposal.decisions
        assert isinstance(work, ConvWork)
        assert isinstance(plan, WholePlan)
        return BoundWhole(work, plan, operands)


def _layer_refusal(layer: Conv, *, last: bool) -> str | None:
    whole = layer.whole
    if whole is None:
        return "a layer holds float32: takes whole numbers, as nn.quantise makes them"
    if layer.adds and (not last or whole.dtype != "float32" or layer.shuffle > 1):
        return "adds residuals to the last layer's float32 results alone, without a shuffle"
    if layer.shuffle > 1 and (not last or whole.dtype != "float32"):
        return f"shuffle={layer.shuffle}: shuffles the last layer's pixels, of float32 alone"
    if min(layer.pads) < 0:
        return f"pads={layer.pads}: it takes 0 and more"
    scale = np.asarray(whole.scale)
    if not (np.isfinite(scale).all() and (scale > 0).all()):
        return "scale: it takes finite numbers above 0"
    if whole.step is not None and not 0 < whole.step < np.inf:
        return f"step={whole.step!r}: it takes finite numbers above 0"
    if layer.kernel[0] > _TAPS or layer.kernel[0] * pieces_of(layer)[0] > _PIECES:
        return f"kernel={layer.kernel}: it takes up to {_TAPS} rows"
    if sums_most(layer).max(initial=0) >= 1 << 31:
        return "sums may pass what int32 holds"
    return None


WHOLE_ENGINES = (Int8Chain(),)
