"""Writes measured curves as JSON and reads them back, checked number by number."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from tilewright.planning.classes import Boundaries
from tilewright.planning.cost import Curve, Measured, Narrow


def to_json(value: Measured) -> dict[str, Any]:
    """Plain JSON types."""
    return {
        "host": value.host.points,
        "curves": {name: curve.points for name, curve in value.curves},
        "bandwidth": value.bandwidth,
        "transfer": value.transfer,
        "narrow": {name: asdict(sides) for name, sides in value.narrow},
        "boundaries": asdict(value.boundaries),
        "wrong": value.wrong,
    }


def from_json(document: dict[str, Any]) -> Measured:
    """What `to_json` wrote. Raises KeyError, TypeError, ValueError or AttributeError for others."""
    return Measured(
        _points(document["host"]),
        tuple((name, _points(points)) for name, points in document["curves"].items()),
        _positive(document["bandwidth"]),
        None if document["transfer"] is None else _positive(document["transfer"]),
        tuple((name, _narrow(sides)) for name, sides in document["narrow"].items()),
        _boundaries(document["boundaries"]),
        tuple(str(name) for name in document.get("wrong", ())),
    )


def _points(points: Sequence[Sequence[float]]) -> Curve:
    curve = tuple((_positive(flops), _positive(seconds)) for flops, seconds in points)
    if not curve or list(curve) != sorted(curve):
        raise ValueError("a curve without points, or not ascending")
    return Curve(curve)


def _narrow(document: dict[str, Any]) -> Narrow:
    sides = {
        side: tuple((_positive(width), _positive(factor)) for width, factor in document[side])
        for side in "mnk"
    }
    if any(list(points) != sorted(points) for points in sides.values()):
        raise ValueError("widths that do not ascend")
    return Narrow(**sides)


def _boundaries(document: dict[str, Any]) -> Boundaries:
    sides = {name: int(document[name]) for name in ("matrix_vector", "skinny", "small")}
    if min(sides.values()) < 0:
        raise ValueError("a boundary below 0")
    return Boundaries(**sides, measured=bool(document["measured"]))


def _positive(value: Any) -> float:
    if not float(value) > 0:
        raise ValueError(f"{value!r} is not positive")
    return float(value)
