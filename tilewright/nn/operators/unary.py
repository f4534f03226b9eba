"""Operators of one input and no attribute, element by element: a line each."""

from __future__ import annotations

from typing import Any

from tilewright.nn.operators.base import FLOATS, SIGNED, UNSIGNED
from tilewright.nn.operators.formula import Formula


def sigmoid(xp: Any, x: Any) -> Any:
    """1 / (1 + exp(-x))."""
    made = xp.exp(-x)
    made += 1
    return 1 / made


def relu(xp: Any, x: Any) -> Any:
    """max(x, 0), and NaN for NaN."""
    return xp.maximum(x, xp.zeros((), dtype=x.dtype, device=x.device))


def softplus(xp: Any, x: Any) -> Any:
    """log(1 + exp(x)), which does not overflow."""
    return relu(xp, x) + xp.log1p(xp.exp(-xp.abs(x)))


OPERATORS = (
    Formula("Abs", (6, 13), lambda xp, x: xp.abs(x)),
    Formula("Acos", (7, 22), lambda xp, x: xp.acos(x), FLOATS),
    Formula("Acosh", (9, 22), lambda xp, x: xp.acosh(x), FLOATS),
    Formula("Asin", (7, 22), lambda xp, x: xp.asin(x), FLOATS),
    Formula("Asinh", (9, 22), lambda xp, x: xp.asinh(x), FLOATS),
    Formula("Atan", (7, 22), lambda xp, x: xp.atan(x), FLOATS),
    Formula("Atanh", (9, 22), lambda xp, x: xp.atanh(x), FLOATS),
    Formula("BitwiseNot", (18,), lambda xp, x: ~x, (*SIGNED, *UNSIGNED)),
    Formula("Ceil", (6, 13), lambda xp, x: xp.ceil(x), FLOATS),
    Formula("Cos", (7, 22), lambda xp, x: xp.cos(x), FLOATS),
    Formula("Cosh", (9, 22), lambda xp, x: xp.cosh(x), FLOATS),
    Formula("Exp", (6, 13), lambda xp, x: xp.exp(x), FLOATS),
    Formula("Floor", (6, 13), lambda xp, x: xp.floor(x), FLOATS),
    Formula("HardSwish", (14, 22), lambda xp, x: x * xp.clip(x * (1 / 6) + 0.5, 0, 1), FLOATS),
    Formula("Log", (6, 13), lambda xp, x: xp.log(x), FLOATS),
    Formula("Mish", (18, 22), lambda xp, x: x * xp.tanh(softplus(xp, x)), FLOATS),
    Formula("Neg", (6, 13), lambda xp, x: -x, (*FLOATS, *SIGNED)),
    Formula("Not", (1,), lambda xp, x: xp.logical_not(x), ("bool",)),
    Formula("Reciprocal", (6, 13), lambda xp, x: 1 / x, FLOATS),
    Formula("Relu", (6, 13, 14), relu, (*FLOATS, *SIGNED)),
    Formula("Round", (11, 22), lambda xp, x: xp.round(x), FLOATS),  # halves to even
    Formula("Sigmoid", (6, 13), sigmoid, FLOATS),
    Formula("Sign", (9, 13), lambda xp, x: xp.sign(x)),
    Formula("Sin", (7, 22), lambda xp, x: xp.sin(x), FLOATS),
    Formula("Sinh", (9, 22), lambda xp, x: xp.sinh(x), FLOATS),
    Formula("Softplus", (1, 22), softplus, FLOATS),
    Formula("Softsign", (1, 22), lambda xp, x: x / (1 + xp.abs(x)), FLOATS),
    Formula("Sqrt", (6, 13), lambda xp, x: xp.sqrt(x), FLOATS),
    Formula("Tan", (7, 22), lambda xp, x: xp.tan(x), FLOATS),
    Formula("Tanh", (6, 13), lambda xp, x: xp.tanh(x), FLOATS),
)
