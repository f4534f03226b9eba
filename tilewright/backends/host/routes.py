"""Finds which rows each expert's tokens become, in machine code once that is compiled.

torch's operations for it are nine calls, a third of a layer of a single token.
"""

from __future__ import annotations

from collections.abc import Callable

from tilewright.backends.host import compiled, grouped


def run(dtype: str | None) -> Callable[..., int] | None:
    """`kernels/routes.py`'s route, once what multiplies these rows is compiled too; else None."""
    if dtype is None or not grouped.is_compiled(f"ragged {dtype}"):
        return None
    found: Callable[..., int] = compiled.kernels("routes").route
    return found
