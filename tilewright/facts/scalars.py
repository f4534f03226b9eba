"""What a product takes besides its operands."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Scalars:
    """What a run takes besides its operands."""

    alpha: float = 1.0
    beta: float = 0.0
