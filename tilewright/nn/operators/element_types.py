"""ONNX's numbers of element types, as attributes of nodes have them, and ours by name."""

from __future__ import annotations

from typing import Any

NAMES = {
    1: "float32",
    2: "uint8",
    3: "int8",
    4: "uint16",
    5: "int16",
    6: "int32",
    7: "int64",
    9: "bool",
    10: "float16",
    11: "float64",
    12: "uint32",
    13: "uint64",
    16: "bfloat16",
}


def why_not_type(number: int, what: str) -> str | None:
    """Why an element type cannot be taken; None where it can."""
    if number in NAMES:
        return None
    return f"{what}={number}: accepted are {', '.join(f'{k} ({v})' for k, v in NAMES.items())}"


def as_type(xp: Any, array: Any, dtype: str) -> Any:
    """An array in another element type; on NumPy, halves are float32 until they are rounded."""
    if dtype in ("float16", "bfloat16") and not hasattr(xp, "bfloat16"):
        dtype = "float32"
    wanted = getattr(xp, dtype)
    if array.dtype == wanted:
        return array
    return array.astype(wanted) if hasattr(array, "astype") else xp.astype(array, wanted)


def limits(dtype: str) -> tuple[int, int]:
    """The least and the largest number of a type of whole numbers."""
    signed, bits = dtype.startswith("int"), int(dtype.lstrip("uint"))
    return (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)
