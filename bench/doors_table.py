"""The table of doors (bench/doors.py): a call with the door closed and open, in milliseconds."""

from __future__ import annotations

from typing import Any


def calls(document: dict[str, Any]) -> list[str]:
    """Closed is what the library does by itself: the fastest of the ways that it has."""
    lines = ["| call | closed, ms | open, ms | times as fast |", "|---|---:|---:|---:|"]
    for row in document["rows"]:
        others = {name: took for name, took in row["seconds"].items() if name != "tilewright"}
        opened = row["seconds"]["tilewright"]
        closed = min(others.values(), default=None)
        found = "raises" if closed is None else f"{closed * 1e3:.3f}"
        if closed is not None and len(others) > 1:
            found += f" ({min(others, key=others.__getitem__)})"
        ratio = "-" if closed is None else f"**{closed / opened:.2f}**"
        lines.append(f"| {row['case']} | {found} | {opened * 1e3:.3f} | {ratio} |")
    return lines
