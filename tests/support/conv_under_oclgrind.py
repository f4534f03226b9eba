"""The kernels of convolutions in Oclgrind; run by under_oclgrind.py in a process of its own."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tests.backends.opencl.conv import test_conv_int8
from tests.support.conv_chains import chain, layer
from tests.support.conv_opencl import ENGINES, check, takes
from tilewright import Device
from tilewright.engines.conv import ConvWork

# Edges everywhere: odd sizes, groups, residuals, a shuffle, strides, channels last.
_ONE = layer(np.random.default_rng(3), 6, 6, kernel=(3, 2), strides=(2, 2), groups=6)
CASES = (
    chain((1, 5, 4), (2, 5, 6), "float32", shuffle=2, adds=True),
    replace(chain((3, 5), (1, 4, 9), "float32"), result="channels_last"),
    ConvWork((_ONE,), 1, 7, 5),
    ConvWork((replace(_ONE, weights=_ONE.weights.repeat(2, axis=1), groups=3),), 1, 4, 5),
)


def multiply(device: Device) -> None:
    """Every case on every engine that takes it, but one that would be simulated for 20 s."""
    for name in ("limits", "chain"):
        test_conv_int8.check(test_conv_int8.WORKS[name], device)
    for case in CASES:
        for name in ENGINES:
            long = name == "conv_winograd" and len(case.layers) > 1
            if takes(case, device, name) and not long:
                check(case, device, name)
