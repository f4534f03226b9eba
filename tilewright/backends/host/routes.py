"""The rows of experts' tokens by machine code, where that is there: `kernels/routes.py`."""

from __future__ import annotations

from collections.abc import Callable

from tilewright.backends.host import compiled, grouped


def run(dtype: str | None) -> Callable[..., int] | None:
    """`kernels/routes.py`'s route, once what multiplies these rows is compiled too; else None."""
    if dtype is None or not grouped.is_compiled(f"ragged {dtype}"):
        return None
    found: Callable[..., int] = compiled.kernels("routes").route
    return found
