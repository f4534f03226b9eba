"""A network that says, of every sample between two pictures, how much of which is right.

    both pictures moved (`motion.py`) -> 23 planes of half the sides (`kernels/fusing.py`)
        -> network -> more of one or the other, or of both as they stand

It runs on the host, on the core that finds the motion, and sees luma; chroma follows.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Protocol

import numpy as np

from tilewright import models
from tilewright.arrays.array import NDArray
from tilewright.inputs.devices import host
from tilewright.video.look import Look
from tilewright.video.planes import kernels_of

NAMES = ("none", "fuse-s")


class Fusion(Protocol):
    """Says what `kernels/fusing.py` calls `said` of what it calls planes."""

    given: NDArray

    def __call__(self) -> NDArray:
        """Of the planes that `given` holds now."""


def halves(look: Look) -> tuple[int, int]:
    """Rows and columns of the planes."""
    return -(-look.height // 2), -(-look.width // 2)


def fusion(name: str, look: Look) -> Fusion | None:
    """The network of this name, bound for pictures of one look; None for "none"."""
    return None if name == "none" else _Bound(name, halves(look))


class _Bound:
    def __init__(self, name: str, size: tuple[int, int]) -> None:
        kernels = kernels_of("fusing")
        device = replace(host(), compute_units=1)
        self.given: NDArray = np.zeros((kernels.READ, *size), np.float32)
        self._said: NDArray = np.empty((1, kernels.SAID, *size), np.float32)
        self._net: Any = models.load(name).bind((1, kernels.READ, *size), device=device)

    def __call__(self) -> NDArray:
        self._net(self.given[None], out=self._said)
        return np.asarray(self._said[0])
