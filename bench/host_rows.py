"""What `bench.host_time` measures: a call of ours beside another for the same."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Row:
    """A call of ours, torch's for the same, and what ours may take where torch's takes so long."""

    name: str
    ours: Callable[[], Any]
    theirs: Callable[[], Any]
    beside: str
    most: Callable[[float], float]
    calls: int


def loop_of(a: list[Any], b: list[Any]) -> Callable[[], list[Any]]:
    """What a user of torch would write for a list of products."""
    import torch

    def loop() -> list[Any]:
        return [torch.mm(x, y) for x, y in zip(a, b, strict=True)]

    return loop


def within(more: float) -> Callable[[float], float]:
    """Torch's time and so many seconds."""
    return lambda theirs: theirs + more


def times(factor: float) -> Callable[[float], float]:
    """So many times what the other takes."""
    return lambda theirs: factor * theirs


def at_most(seconds: float) -> Callable[[float], float]:
    """So many seconds, whatever torch takes."""
    return lambda _: seconds
