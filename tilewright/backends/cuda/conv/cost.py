"""Predicts convolutions that run layer by layer, in Triton or by the vendor, from an H200's.

a layer   its launch + the longer of:  its products, slow for few outputs and for few inputs
                                       its bytes: what it reads and what it writes
"""

from __future__ import annotations

from tilewright.engines.conv import Conv, ConvWork
from tilewright.facts.device import Device
from tilewright.facts.measured.scale import scale

Rates = tuple[float, float, float, float, float, float]
_FEW = 8  # inputs


def seconds(work: ConvWork, device: Device, rates: Rates, *, along: int = 1) -> float | None:
    """All layers one after another; None where nothing was measured: other types than halves.

    `along`: inputs are read so many at a time; others are slow.
    """
    if work.dtype not in ("float16", "bfloat16"):
        return None
    launch, *_, first = rates
    scaled, total = scale(device, "float16"), 0.0
    for index, layer in enumerate(work.layers):
        flops, moved = _sizes(work, index)
        speed = _speed(layer, rates, along) * scaled.multiply * scaled.share
        odd = index == 0 and work.source == "channels_first" and layer.inputs >= _FEW
        spent = max(flops / speed, moved / (rates[4] * scaled.bandwidth))
        total += launch + spent * (first if odd else 1.0)
    return total


def _sizes(work: ConvWork, index: int) -> tuple[float, float]:
    """Flops and bytes of a layer of a work in halves."""
    layer = work.layers[index]
    (before, *size), after = work.sizes[index], work.sizes[index + 1]
    rows, columns = layer.sums(*size)
    moved = before * size[0] * size[1] + after[0] * after[1] * after[2]
    flops = 2.0 * rows * columns * layer.weights.size
    return work.images * flops, 2.0 * work.images * moved


def _speed(layer: Conv, rates: Rates, along: int) -> float:
    """Flops a second of its products."""
    _, most, each, few, _, _ = rates
    channels, outputs = layer.weights.shape[1], layer.outputs // layer.groups
    speed = min(most, each * max(16, outputs))
    slow = channels < _FEW or channels % along
    return min(speed, few) if slow else speed
