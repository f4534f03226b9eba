"""Chains of whole numbers of eight bits by the kernels of halves: the same bits, sums being exact.

    ring of halves   v - zero: a whole number of at most 255, and 0 in pads
    sums             float32, exact where no sum can reach 2^24: weights say so of each layer
    endings          float32(sum) * scale, / step, limits, rounded: as `Whole` has them

Tensor cores multiply eight bits twice as fast as halves; but a chain of few channels waits for what
is between its products as well, and one kernel in halves is done before a launch a layer in bytes.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np

from tilewright.backends.cuda.conv.chain_plan import FEW
from tilewright.engines.conv import Conv, ConvWork, Whole

_EXACT = 1 << 24  # whole numbers below are float32's
_RANGES = {"uint8": (0, 255), "int8": (-128, 127)}
_LARGEST = 1e30  # of quotients, so that no division overflows


def unfit(work: ConvWork) -> str | None:
    """Why layers of whole numbers are no chain for these kernels; None where there are none."""
    if all(layer.whole is None for layer in work.layers):
        return None
    for index, layer in enumerate(work.layers):
        why = "float" if layer.whole is None else _unfit(layer, layer.whole)
        if why is not None:
            return f"layers[{index}]: {why}"
    for index, (one, after) in enumerate(pairwise(work.layers)):
        if not _follows(one.whole, after.whole):
            return f"layers[{index + 1}] takes other numbers than the layer before gives"
    if work.layers[0].inputs > FEW:
        return f"{work.layers[0].inputs} channels of whole numbers at first: takes {FEW}"
    return None


def _unfit(layer: Conv, whole: Whole) -> str | None:
    if layer.adds:
        return "a residual"
    low, high = _RANGES[whole.source]
    furthest = max(whole.zero - low, high - whole.zero)
    sums = np.abs(layer.weights.reshape(layer.outputs, -1).astype(np.int64)).sum(1) * furthest
    if layer.bias is not None:
        sums = sums + np.abs(layer.bias.astype(np.int64))
    if int(sums.max()) >= _EXACT:
        return f"sums of up to {int(sums.max())}: takes less than {_EXACT}"
    if float((sums * whole.scale.astype(np.float64)).max()) / (whole.step or 1.0) > _LARGEST:
        return f"step={whole.step}: results of more than {_LARGEST} steps"
    return None


def _follows(one: Whole | None, after: Whole | None) -> bool:
    """Whether a layer's results are what the next takes, as they are."""
    if one is None or after is None or one.step is None or after.taken is not None:
        return False
    return one.dtype == after.source and one.shift == after.zero


def fill(parameters: Any, stage: int, whole: Whole) -> None:
    """A stage's numbers. Limits come after the division: rounding is monotonous, so it is equal."""
    if whole.step is None:
        parameters.low[stage], parameters.high[stage] = whole.low, whole.high
        return
    low, high = _RANGES[whole.dtype]
    step = np.float32(whole.step)
    with np.errstate(over="ignore"):
        limits = np.float32(whole.low) / step, np.float32(whole.high) / step
    parameters.low[stage] = max(float(limits[0]), low - whole.shift)
    parameters.high[stage] = min(float(limits[1]), high - whole.shift)
    parameters.step[stage], parameters.inverse[stage] = step, np.float32(1) / step
    parameters.shift = whole.shift  # the last one's counts


def fill_source(parameters: Any, whole: Whole) -> None:
    """How the picture is read."""
    low, high = _RANGES[whole.source]
    parameters.zero, parameters.taken = whole.zero, whole.taken or 1.0
    parameters.least, parameters.most = low - whole.zero, high - whole.zero
