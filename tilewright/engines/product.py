"""What engines of a network's products are asked: matrices that lie alike, and what ends them.

    C[..., m, n] = activation(alpha * A[..., m, k] @ B[..., k, n] + beta * C + bias[n])

Leading dimensions are those of C; where A or B is the same for all of one, its step is 0. What is
asked is sizes and steps alone, so that plans are made before memory is taken.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tilewright.engines.contract import Engine
from tilewright.facts.dtypes import VALUES


@dataclass(frozen=True, slots=True)
class Matrices:
    """Sizes [..., rows, columns], and elements from one to the next along each."""

    sizes: tuple[int, ...]
    steps: tuple[int, ...]

    @property
    def is_whole(self) -> bool:
        """Whether they follow each other in memory without gaps, row after row."""
        step = 1
        for size, found in zip(reversed(self.sizes), reversed(self.steps), strict=True):
            if size > 1 and found != step:
                return False
            step *= size
        return True

    @property
    def is_one(self) -> bool:
        """Whether it is one matrix, the same for all leading dimensions."""
        pairs = zip(self.sizes[:-2], self.steps[:-2], strict=True)
        return all(size == 1 or step == 0 for size, step in pairs)


@dataclass(frozen=True, slots=True)
class ProductWork:
    """Products of one network's step.

    bias     whether a vector [n] is added to every row
    beta     other than 0 where C holds what is added; engines find it there
    activation   "none", "relu" or "gelu"
    fixed    B is known when the product is bound, and never changes
    """

    a: Matrices
    b: Matrices
    c: Matrices
    dtype: str = "float32"
    bias: bool = False
    alpha: float = 1.0
    beta: float = 0.0
    activation: str = "none"
    fixed: bool = False

    @property
    def sizes(self) -> tuple[int, int, int]:
        """Rows and columns of C, columns of A: m, n, k."""
        return self.c.sizes[-2], self.c.sizes[-1], self.a.sizes[-1]

    @property
    def count(self) -> int:
        """How many products."""
        return math.prod(self.c.sizes[:-2])

    @property
    def flops(self) -> float:
        """Multiplications and additions."""
        return 2.0 * self.count * math.prod(self.sizes)

    @property
    def bytes(self) -> float:
        """What memory must move: every matrix once, C twice where something is added to it."""
        own = sum(
            math.prod(size for size, step in zip(one.sizes, one.steps, strict=True) if step)
            for one in (self.a, self.b, self.c)
        )
        again = self.count * self.sizes[0] * self.sizes[1] if self.beta else 0
        return float(VALUES[self.dtype] * (own + again))


@dataclass(frozen=True, slots=True, eq=False)
class ProductOperands:
    """Arrays of the engine's place as the work has them; `bias` a vector [n] or None.

    added   what `out` holds before the product where `beta` is not 0, of sizes that broadcast to
            its own; else None
    """

    a: Any
    b: Any
    out: Any
    bias: Any = None
    added: Any = None


ProductEngine = Engine[ProductWork, ProductOperands, Callable[[], None]]
