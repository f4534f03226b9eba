"""The definitions of what convolutions make of their sums, by the array API."""

from __future__ import annotations

import math
from typing import Any

from tilewright.engines.conv import Activation
from tilewright.nn.operators.erf import erf


def activate(xp: Any, x: Any, activation: Activation) -> Any:
    """One of `engines.conv.ACTIVATIONS` of x [N, C, ...]; NaN stays NaN."""
    low, high = activation.low, activation.high
    match activation.kind:
        case "none":
            return x
        case "relu":
            return xp.where(x < 0, xp.zeros_like(x), x)
        case "leaky":
            return xp.where(x < 0, x * low, x)
        case "prelu":
            slopes = xp.asarray(activation.slopes, dtype=x.dtype, device=x.device)
            return xp.where(x < 0, x * xp.reshape(slopes, (1, -1, *[1] * (x.ndim - 2))), x)
        case "clip":
            return _clip(xp, x, low, high)
        case "sigmoid":
            return _sigmoid(xp, x)
        case "hard_sigmoid":
            return _clip(xp, x * low + high, 0.0, 1.0)
        case "hard_swish":
            return x * _clip(xp, x / 6 + 0.5, 0.0, 1.0)
        case "silu":
            return x * _sigmoid(xp, x)
        case "tanh":
            return xp.tanh(x)
    return x * 0.5 * (1 + erf(xp, x * math.sqrt(0.5)))


def _clip(xp: Any, x: Any, low: float, high: float) -> Any:
    """min(max(x, low), high)."""
    x = xp.where(x < low, xp.full_like(x, low), x)
    return xp.where(x > high, xp.full_like(x, high), x)


def _sigmoid(xp: Any, x: Any) -> Any:
    """By exponentials that do not overflow: of -|x| alone."""
    small = xp.exp(-xp.abs(x))
    return xp.where(x < 0, small / (1 + small), 1 / (1 + small))
