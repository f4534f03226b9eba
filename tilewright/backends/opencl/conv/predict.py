"""How long a convolution engine takes on a device: its ceilings, and shares of them by rules.toml.

The roof of Williams, Waterman and Patterson with a share: seconds = launches + the longer of
multiplications at `share` of the peak and of bytes at the memory's rate. Shares are priors of the
rules; where no ceilings were measured a typical device's stand for them.
"""

from __future__ import annotations

from tilewright.backends.opencl.rules import preferences
from tilewright.engines.conv import ConvWork
from tilewright.facts.device import Device
from tilewright.facts.verdict import Proposal

# Of devices that nobody measured: flops a second of a compute unit, bytes a second.
_PEAK = {"cpu": 1.5e11, "gpu": 2e11}
_SHARED, _OWN = 2e10, 5e11
_LAUNCH = {"cpu": 3e-5, "gpu": 1e-5}
# What an engine keeps of its share on the wrong side of a rule's number of channels.
_UNFIT = 0.25
_LIKE = {"conv_int8": "conv_direct"}  # whose program it runs


def propose(
    name: str,
    work: ConvWork,
    device: Device,
    decisions: object,
    *,
    flops: float,
    moved: float,
    launches: int,
    scratch: int,
) -> Proposal:
    """The proposal of an engine that does so many flops and moves so many bytes."""
    share, reason = _share(name, work, device)
    kind = "cpu" if device.kind == "cpu" else "gpu"
    ceilings = device.ceilings
    peak = ceilings.peak("float32") if ceilings else None
    memory = ceilings.memory(moved) if ceilings else None
    rate = peak.value if peak else _PEAK[kind] * device.compute_units
    stream = _SHARED if device.has("unified_memory") else _OWN
    seconds = max(flops / (share * rate), moved / (memory.value if memory else stream))
    seconds += launches * _LAUNCH[kind]
    basis = "of the measured peak" if peak else "of a typical peak; not measured on this device"
    return Proposal(
        name,
        device,
        seconds,
        f"{share:.0%} {basis} ({reason})",
        scratch=scratch,
        decisions=decisions,
    )


def _share(name: str, work: ConvWork, device: Device) -> tuple[float, str]:
    """The share of the peak that the device's rules give the engine, and which rule spoke."""
    prior = preferences(device)
    share = prior.convs[_LIKE.get(name, name)]
    spoke = [rule for rule in prior.rules if rule.is_of_convolutions]
    reason = "; ".join(f"{rule.name}: {rule.source}" for rule in spoke) or "no rule spoke"
    channels = max(layer.outputs for layer in work.layers)
    beyond = name == "conv_direct_image" and channels > prior.conv_turn
    below = name == "conv_winograd" and channels < prior.conv_turn
    if beyond or below:
        share *= _UNFIT
        side = "more" if beyond else "fewer"
        reason += f"; {channels} channels, {side} than {prior.conv_turn}"
    return share, reason
