"""The operators of networks, a file each: types, sizes, the definition, how much work it is.

    base.py      what every operator offers            OPERATORS of every other file: what there is

Adding an operator is adding a file here with a tuple `OPERATORS`; nothing else lists them. The
definition is written in the array API's words, so NumPy on the host and torch on GPUs run it;
engines take over where they are faster.
"""

from __future__ import annotations

import functools
import importlib
import pkgutil
from collections.abc import Mapping

from tilewright.nn.operators.base import Operator


@functools.cache
def found() -> Mapping[str, tuple[Operator, ...]]:
    """What each operator of ONNX is here: one record, or several for meanings that changed."""
    table: dict[str, list[Operator]] = {}
    for item in pkgutil.iter_modules(__path__):
        module = importlib.import_module(f"{__name__}.{item.name}")
        for operator in getattr(module, "OPERATORS", ()):
            table.setdefault(operator.name, []).append(operator)
    return {name: tuple(entries) for name, entries in sorted(table.items())}


def find(name: str, version: int) -> Operator | None:
    """The operator whose meaning ONNX's `version` gave, None where it is not implemented."""
    entries = found().get(name, ())
    return next((entry for entry in entries if version in entry.versions), None)
