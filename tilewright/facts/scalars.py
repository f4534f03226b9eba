"""The scalars of a product: alpha and beta."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Scalars:
    """What a run takes besides its operands."""

    alpha: float = 1.0
    beta: float = 0.0
