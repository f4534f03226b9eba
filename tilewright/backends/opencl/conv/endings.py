"""How a sum ends, as arguments of kernels: bias, slopes, activation, residual, shuffle, result."""

from __future__ import annotations

from collections.abc import Mapping

from tilewright.backends.opencl.conv.bound import Steps
from tilewright.backends.opencl.rules import preferences
from tilewright.engines.conv import ACTIVATIONS, Conv, ConvWork
from tilewright.facts.device import Device
from tilewright.facts.kernel import Argument, Defines, Int, Raw, Scalar

BITS = {"float32": 32, "float16": 16}


def defines(work: ConvWork, device: Device, *layers: Conv) -> Defines:
    """The -D options that every kernel of convolutions takes; `layers` are those it ends."""
    kinds = {ACTIVATIONS.index(layer.activation.kind) for layer in layers}
    return (
        ("BITS", BITS[work.dtype]),
        ("MULTIPLY_ADD", preferences(device).multiply_add),
        ("KINDS", sum(1 << kind for kind in kinds)),
    )


def arguments(
    work: ConvWork,
    index: int,
    steps: Mapping[str, Steps],
    names: tuple[str, str, str] | None = None,
) -> tuple[Argument, ...]:
    """FINISH_ARGUMENTS of conv.clh for a layer.

    `names` are the memory of bias and of slopes, else the layer's own constants, and some memory of
    the element type: every argument needs it, a residual that is not there too.
    """
    layer = work.layers[index]
    activation = layer.activation
    bias, slopes, any_memory = names or (f"bias{index}", f"slopes{index}", "x")
    residual = Steps(any_memory)
    if layer.adds:
        before = sum(one.adds for one in work.layers[:index])
        residual = steps[f"residual{before}"]
    return (
        Raw(bias),
        Raw(slopes),
        Int(ACTIVATIONS.index(activation.kind)),
        Scalar(float(activation.low)),
        Scalar(float(activation.high)),
        Int(int(layer.adds)),
        *residual.arguments,
    )


def stored(layer: Conv, to: Steps) -> tuple[Argument, ...]:
    """OUT_ARGUMENTS of conv.clh."""
    return (Int(layer.shuffle), *to.arguments)
