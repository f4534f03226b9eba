"""The table of `bench.panel`: large single products beside NumPy's BLAS."""

from __future__ import annotations

from typing import Any


def large(document: dict[str, Any]) -> list[str]:
    """Lines of GFLOP/s."""
    lines = ["| m = n = k | `panel`, GFLOP/s | NumPy | ÷ NumPy |", "|---|---:|---:|---:|"]
    for row in document["products"]:
        ours, theirs = row["gflops"]["panel"], row["gflops"]["numpy"]
        lines.append(f"| {row['size']} | {ours:.0f} | {theirs:.0f} | {ours / theirs:.2f}× |")
    return lines
