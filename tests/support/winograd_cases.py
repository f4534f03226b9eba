"""Single layers for Winograd's kernel: every edge and ending, and the error that each may have."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tests.support import conv_chains
from tests.support.conv_chains import layer
from tilewright.engines.conv import ACTIVATIONS, Activation, ConvWork, Format

NUMBERS = {"leaky": (0.1, 0.0), "clip": (-0.3, 0.6), "hard_sigmoid": (0.2, 0.5)}
ALLOWED = {2: 2.0, 4: 4.0}  # times the error of plain sums


def _one(
    inputs: int,
    outputs: int,
    size: tuple[int, int, int],
    last: Format = "channels_last",
    **facts: Any,
) -> ConvWork:
    single = layer(np.random.default_rng(inputs + outputs), inputs, outputs, **facts)
    return ConvWork((single,), *size, "float32", source=last, result=last)


def _ending(kind: str) -> ConvWork:
    slopes = np.linspace(-1, 1, 12, dtype=np.float32) if kind == "prelu" else None
    low, high = NUMBERS.get(kind, (0.0, 0.0))
    return _one(8, 12, (1, 9, 7), activation=Activation(kind, low, high, slopes))


CASES = {
    "whole blocks": _one(16, 64, (1, 16, 32)),
    "odd": _one(20, 40, (2, 33, 35)),
    "channels first": _one(13, 70, (1, 17, 33), "channels_first"),
    "one channel, one pixel": _one(1, 1, (1, 1, 1)),
    "odd pads, shuffled": _one(24, 36, (1, 7, 9), pads=(0, 2, 1, 0), shuffle=3),
    "a residual": _one(8, 8, (1, 20, 20), adds=True, shuffle=2, activation=Activation("relu")),
    **{kind: _ending(kind) for kind in ACTIVATIONS},
}


def allowed(work: ConvWork, tile: int, residuals: Sequence[Any], x: Any, exact: Any) -> float:
    """The largest error, as conv_chains.error has it: so many times that of torch's plain sums."""
    import torch

    plain = conv_chains.reference(work, x.cpu(), [one.cpu() for one in residuals], torch.float32)
    return ALLOWED[tile] * conv_chains.error(plain, exact.cpu()) + 1e-7
