"""The table of batches of bfloat16 and int8: a bound plan and calls beside a loop of torch's."""

from __future__ import annotations

from typing import Any


def lines(document: dict[str, Any]) -> list[str]:
    """A row a draw and element type, in GOP/s."""
    found = [
        "| m, n, k drawn from | elements | bound plan | torch loop | ÷ torch |"
        " `grouped_matmul` | ÷ torch |",
        "|---|---|---:|---:|---:|---:|---:|",
    ]
    for row in document["batches"]:
        ways, work = row["seconds"], row["operations"] / 1e9
        loop = next(s for name, s in ways.items() if name.startswith("torch loop"))
        call = next(s for name, s in ways.items() if name.startswith("grouped_matmul"))
        plan = ways["bound plan"]
        found.append(
            f"| {row['drawn']} | {row['dtype']} | {_rate(work / plan)} | {_rate(work / loop)} |"
            f" {loop / plan:.2f}× | {_rate(work / call)} | {loop / call:.2f}× |"
        )
    return found


def _rate(gops: float) -> str:
    return f"{gops:.{0 if gops >= 10 else 1 if gops >= 1 else 2}f}"
