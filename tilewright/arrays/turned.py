"""Weights [groups, k, n] that are transposes of what memory has, as those of linear layers are.

Their gradients are made so too: autograd copies a gradient that lies otherwise than its parameter
does. Of 128 experts of 2048 x 1536 in bf16 that was 1.6 GB to move, as much as the product's own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def is_turned(w: Any) -> bool:
    """Whether k lies element by element, and n does not."""
    return bool(w.stride(1) == 1 and w.stride(2) != 1)


def gradient(w: Any, x: Any, pull: Any, depths: Callable[[Any, Any], Any]) -> Any:
    """Of w, of rows x that met it and what came back: x' @ pull a group, lying as w does."""
    if is_turned(w):
        return depths(pull.t(), x).transpose(1, 2)
    return depths(x.t(), pull)


def new_like(w: Any, make: Any) -> Any:
    """A dense tensor of w's sizes, turned as w is: `make` gets the sizes that memory has."""
    groups, k, n = w.shape
    return make((groups, n, k)).transpose(1, 2) if is_turned(w) else make((groups, k, n))
