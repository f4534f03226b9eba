"""The scalars of a product: alpha and beta."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Scalars:
    """What a run takes besides its operands; complex where these are."""

    alpha: complex = 1.0
    beta: complex = 0.0
