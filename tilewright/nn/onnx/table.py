"""The table of ONNX's operators that the importer takes, filled by the files of operators/.

    @operator("Relu", (6, 13, 14))                     a line for each operator: its versions, what
    def clamp(at, node): ...                           its attributes may be; then its converter

What is not in the table is refused by name, and the table of the docs is made of it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from tilewright.nn.onnx.graph import Node
from tilewright.nn.onnx.importer import Importer, Traced

Convert = Callable[[Importer, Node], Traced]
_MOST = 1 << 16


@dataclass(frozen=True, slots=True)
class Attribute:
    """An attribute that is understood: what it may be, in words and as a test of its value."""

    accepted: str
    fits: Callable[[Any], bool]


@dataclass(frozen=True, slots=True)
class Operator:
    """An operator: the versions that are understood, and what their attributes may be.

    note     what of it is taken, for the docs
    convert  makes drafts of a node, and says what its value is in the network
    """

    versions: tuple[int, ...]
    attributes: Mapping[str, Attribute]
    note: str
    convert: Convert


def _whole(value: Any, least: int) -> bool:
    return isinstance(value, int) and least <= value < _MOST


def list_of(count: int, least: int) -> Attribute:
    """So many whole numbers."""
    return Attribute(
        f"{count} of {least} to {_MOST - 1}",
        lambda value: len(value) == count and all(_whole(v, least) for v in value),
    )


def one_of(*values: Any) -> Attribute:
    """One of these."""
    return Attribute(" or ".join(str(value) for value in values), lambda value: value in values)


ANY = Attribute("any", lambda value: True)
NUMBER = Attribute("a finite number", lambda value: abs(value) < float("inf"))
FLAG = one_of(0, 1)

OPERATORS: dict[str, Operator] = {}


def operator(
    name: str,
    versions: tuple[int, ...],
    attributes: Mapping[str, Attribute] | None = None,
    note: str = "",
) -> Callable[[Convert], Convert]:
    """Take an operator; the function below converts its nodes."""

    def take(convert: Convert) -> Convert:
        OPERATORS[name] = Operator(versions, attributes or {}, note, convert)
        return convert

    return take
