"""Activations whose form attributes set, element by element: a line each, and Clip."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from tilewright.nn.graph import Node, Shape
from tilewright.nn.operators.base import FLOATS, NUMBERS, Elementwise, Given
from tilewright.nn.operators.erf import erf
from tilewright.nn.operators.unary import sigmoid

Function = Callable[[Any, Any, Mapping[str, Any]], Any]


class Activation(Elementwise):
    """A function of each element and the node's attributes: function(xp, x, attributes)."""

    dtypes = FLOATS

    def __init__(self, name: str, versions: tuple[int, ...], function: Function) -> None:
        self.name, self.versions = name, versions
        self._function = function

    def compute(self, xp: Any, node: Node, *given: Any) -> Any:
        """The function of every element."""
        return self._function(xp, given[0], node.attributes)


class Gelu(Elementwise):
    """x times the share of the normal distribution below it, or the form with tanh."""

    name = "Gelu"
    versions = (20,)
    dtypes = FLOATS

    def why_not(self, node: Node) -> str | None:
        """Of approximations only tanh is defined."""
        chosen = node.attributes["approximate"]
        known = chosen in ("none", "tanh")
        return None if known else f"approximate={chosen!r}: accepted are 'none' and 'tanh'"

    def compute(self, xp: Any, node: Node, *given: Any) -> Any:
        """x / 2 * (1 + erf(x / sqrt 2)), or tanh of a cubic in the place of erf."""
        (x,) = given
        if node.attributes["approximate"] == "tanh":
            inner = xp.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x * x * x))
        else:
            inner = erf(xp, x * math.sqrt(0.5))
        return 0.5 * x * (1 + inner)


class Clip6(Elementwise):
    """Limits as attributes."""

    name = "Clip"
    versions = (6,)
    dtypes = FLOATS

    def compute(self, xp: Any, node: Node, *given: Any) -> Any:
        """min(max(x, low), high)."""
        (x,) = given
        return xp.clip(x, node.attributes["min"], node.attributes["max"])


class Clip(Elementwise):
    """Limits as inputs; where they cross, the upper one wins."""

    name = "Clip"
    versions = (11, 12, 13)
    dtypes = NUMBERS

    def shapes(self, node: Node, given: Given) -> tuple[Shape, ...]:
        """Those of x."""
        assert given[0] is not None
        return (given[0].shape,)

    def compute(self, xp: Any, node: Node, *given: Any) -> Any:
        """min(max(x, low), high)."""
        x, low, high = (*given, None, None)[:3]
        if low is not None:
            x = xp.maximum(x, low)
        return x if high is None else xp.minimum(x, high)


class SwiGLU(Elementwise):
    """One input gates the other."""

    name = "SwiGLU"
    versions = (28,)
    dtypes = FLOATS

    def compute(self, xp: Any, node: Node, *given: Any) -> Any:
        """a * sigmoid(alpha * a) * b."""
        a, b = given
        return a * sigmoid(xp, node.attributes["alpha"] * a) * b


def leaky(xp: Any, x: Any, slope: Any) -> Any:
    """x, and slope * x below zero.

    Without a choice for each element: of random signs that is 20 times as slow in NumPy.
    """
    zero = xp.zeros((), dtype=x.dtype, device=x.device)
    return xp.maximum(x, zero) + slope * xp.minimum(x, zero)


def _elu(xp: Any, x: Any, alpha: float, divisor: float = 1.0) -> Any:
    """x, and alpha * (exp(x / divisor) - 1) below zero."""
    zero = xp.zeros((), dtype=x.dtype, device=x.device)
    return xp.maximum(x, zero) + alpha * xp.expm1(xp.minimum(x, zero) / divisor)


def _shrink(xp: Any, x: Any, bias: float, limit: float) -> Any:
    zero = xp.zeros_like(x)
    return xp.where(x < -limit, x + bias, xp.where(x > limit, x - bias, zero))


OPERATORS = (
    Activation("Celu", (12, 28), lambda xp, x, a: _elu(xp, x, a["alpha"], a["alpha"])),
    Activation("Elu", (6, 22), lambda xp, x, a: _elu(xp, x, a["alpha"])),
    Activation("HardSigmoid", (6, 22), lambda xp, x, a: xp.clip(a["alpha"] * x + a["beta"], 0, 1)),
    Activation("LeakyRelu", (6, 16), lambda xp, x, a: leaky(xp, x, a["alpha"])),
    Activation("Selu", (6, 22), lambda xp, x, a: a["gamma"] * _elu(xp, x, a["alpha"])),
    Activation("Shrink", (9,), lambda xp, x, a: _shrink(xp, x, a["bias"], a["lambd"])),
    Activation("Swish", (24,), lambda xp, x, a: x * sigmoid(xp, a["alpha"] * x)),
    Activation(
        "ThresholdedRelu",
        (10, 22),
        lambda xp, x, a: xp.where(x > a["alpha"], x, xp.zeros_like(x)),
    ),
    Clip(),
    Clip6(),
    Gelu(),
    SwiGLU(),
)
