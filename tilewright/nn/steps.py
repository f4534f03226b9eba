"""Records of a network made ready to run: its steps, how long each took, what is kept."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tilewright.remember import Shelf

# What networks and convolutions were made ready with, for the batch sizes they ran last. A program
# belongs to its network and goes with it.
PROGRAMS: Shelf[tuple[int, tuple[int, ...]], Any] = Shelf("one-bit programs", most=2 << 30)


@dataclass(frozen=True, slots=True)
class Timing:
    """Median seconds of a pass, and the layers that it does."""

    layers: tuple[str, ...]
    kind: str
    seconds: float


@dataclass(frozen=True, slots=True)
class Step:
    """A pass as it is run: nothing to pass in, nothing to allocate."""

    layers: tuple[str, ...]
    kind: str
    run: Callable[[], object]
