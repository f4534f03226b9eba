"""What engines of convolutions say of works that they do not take, and what they would need.

`explain()` prints these lines to who wants to know why another engine was not chosen.
"""

from __future__ import annotations

from tilewright.engines.conv import ConvWork


def dtype(work: ConvWork, taken: str) -> str:
    """Of another element type than the engine's."""
    if work.dtype in ("uint8", "int8"):
        return f"layers hold {work.dtype}: takes {taken}, as they were before nn.quantise"
    made = ", which nn.quantise makes" if "int8" in taken else ""
    return f"layers hold {work.dtype}: takes {taken}{made}"


def several(work: ConvWork) -> str:
    """Of a chain, by an engine of single layers."""
    count = len(work.layers)
    return f"takes one layer at a time, so the chain would have to be cut into {count} steps"


def but_one_of_floats(work: ConvWork) -> str | None:
    """Of all but one layer of float32."""
    if work.dtype != "float32":
        return dtype(work, "float32")
    return several(work) if len(work.layers) > 1 else None
