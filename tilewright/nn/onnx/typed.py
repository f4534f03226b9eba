"""Which element types a node of ONNX's takes together, by the type variables of ONNX's schemas.

    Add(A: T, B: T)                          both of one type
    Gather(data: T, indices: Tind)           whole numbers for the places
    Reshape(data: T, shape: tensor(int64))   this type alone

Of variables with several types any type of the same sort is taken, as later versions of an operator
add types (bfloat16 foremost) without another meaning.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilewright.facts.dtypes import VALUES
from tilewright.nn.graph import Node

_NAMES = {"float": "float32", "double": "float64"}  # where ONNX calls them otherwise


def mistyped(node: Node, given: Sequence[str]) -> list[str]:
    """What is wrong with the element types of a node's inputs; "" is one that is absent."""
    wrong = []
    bound: dict[str, int] = {}
    formals = _formals(node.operator, node.version)
    for at, dtype in enumerate(given):
        variable, accepted, alike = formals[min(at, len(formals) - 1)]
        if not dtype:
            continue
        called = f"input {at} ({node.inputs[at]!r}) is {dtype}"
        if not _takes(accepted, dtype):
            wrong.append(f"{called}; accepted are {', '.join(accepted)}")
            continue
        first = bound.setdefault(variable, at) if alike else at
        if given[first] != dtype:
            other = f"input {first} ({node.inputs[first]!r})"
            wrong.append(f"{called}; accepted is {given[first]}, as {other}")
    return wrong


def _formals(operator: str, version: int) -> list[tuple[str, tuple[str, ...], bool]]:
    """Of each input its type variable, the types it takes, and whether equals must be equal.

    The last stands for all that follow it where there may be any number.
    """
    from onnx import defs

    schema = defs.get_schema(operator, version, "")
    return [(one.type_str, _listed(one), bool(one.is_homogeneous)) for one in schema.inputs]


def _listed(formal: Any) -> tuple[str, ...]:
    """The types that an input may have, of those that there are here."""
    names = (text.removeprefix("tensor(").removesuffix(")") for text in formal.types)
    found = {_NAMES.get(name, name) for name in names}
    return tuple(name for name in VALUES if name in found)


def _takes(accepted: tuple[str, ...], dtype: str) -> bool:
    """A type by itself exactly; of several any of the same sort."""
    if len(accepted) < 2:
        return dtype in accepted
    return _sort(dtype) in map(_sort, accepted)


def _sort(dtype: str) -> str:
    """Floating, whole or bool."""
    return "float" if "float" in dtype else "whole" if "int" in dtype else dtype
