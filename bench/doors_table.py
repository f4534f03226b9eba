"""Tables of doors, in milliseconds: of bench/doors.py, muon.py, jax_ragged.py, lists.py, bsr.py."""

from __future__ import annotations

from typing import Any


def calls(document: dict[str, Any]) -> list[str]:
    """Closed is what the library does by itself: the fastest of the ways that it has."""
    lines = _grid([row for row in document["rows"] if "at" in row])
    if lines:
        lines.append("")
    lines += ["| call | closed, ms | open, ms | times as fast |", "|---|---:|---:|---:|"]
    for row in document["rows"]:
        if "at" in row:
            continue
        others = {name: took for name, took in row["seconds"].items() if name != "tilewright"}
        opened = row["seconds"]["tilewright"]
        closed = min(others.values(), default=None)
        found = "raises" if closed is None else f"{closed * 1e3:.3f}"
        if closed is not None and len(others) > 1:
            found += f" ({min(others, key=others.__getitem__)})"
        ratio = "-" if closed is None else f"**{closed / opened:.2f}**"
        lines.append(f"| {row['case']} | {found} | {opened * 1e3:.3f} | {ratio} |")
    return lines


def _grid(rows: list[dict[str, Any]]) -> list[str]:
    """Of products that differ in the number of groups alone a line: times as fast, and us open."""
    if not rows:
        return []
    counts = sorted({row["at"]["groups"] for row in rows})
    lines = ["| times as fast (µs open) by groups | " + " | ".join(map(str, counts)) + " |"]
    lines.append("|---|" + "---:|" * len(counts))
    found: dict[str, dict[int, str]] = {}
    for row in rows:
        at, seconds = row["at"], row["seconds"]
        name = f"{at['dtype']}, {at['rows']} rows a group, k = n = {at['k']}"
        cell = f"**{seconds['alone'] / seconds['tilewright']:.2f}**"
        found.setdefault(name, {})[at["groups"]] = f"{cell} ({seconds['tilewright'] * 1e6:.3g})"
    for name, cells in found.items():
        lines.append(f"| {name} | {' | '.join(cells.get(one, '') for one in counts)} |")
    return lines


def steps(document: dict[str, Any]) -> list[str]:
    """Whole steps of Muon, and how long the host was busy with one."""
    lines = ["| step of Muon, ms (host) | " + " | ".join(document["cases"][0]["ways"]) + " |"]
    lines.append("|---|" + "---:|" * len(document["cases"][0]["ways"]))
    for row in document["cases"]:
        cells = [f"{way['ms']:.2f} ({way['host_ms']:.1f})" for way in row["ways"].values()]
        name = f"{row['case']}, {row['matrices']} matrices"
        lines.append(f"| {name} | **{cells[0]}** | {' | '.join(cells[1:])} |")
    return lines


def programs(document: dict[str, Any]) -> list[str]:
    """Rows of experts by programs of JAX, forward and with both gradients."""
    head = "jax.lax.ragged_dot, ms | ours, ms | times as fast"
    lines = [f"| bf16, rows x k x n; a call | {head} | queued: {head} |"]
    lines.append("|---|---:|---:|---:|---:|---:|---:|")
    for row in document["cases"]:
        for kind, title in (("forward", "forward"), ("step", "with gradients")):
            cells = f"{row['name']}, {row['rows']} x {row['k']} x {row['n']}, {title}"
            for clock in ("ms", "queued_ms"):
                ours, theirs = (way[clock] for way in list(row[kind].values())[:2])
                cells += f" | {theirs:.2f} | {ours:.2f} | **{theirs / ours:.1f}**"
            lines.append(f"| {cells} |")
    return lines


def lists(document: dict[str, Any]) -> list[str]:
    """Lists and adapters, of bench/lists.py, and the ways that a user would write instead."""
    ways = ("tilewright", "bound plan", "loop", "padded")
    lines = ["| list on a GPU, ms | `grouped_matmul`, the layer | bound plan | loop | padded |"]
    lines.append("|---|---:|---:|---:|---:|")
    for row in document["rows"]:
        seconds = dict(row["seconds"])
        seconds["loop"] = seconds.pop("closed", seconds.get("loop"))
        seconds["padded"] = seconds.pop("gathered", seconds.get("padded"))
        cells = [f"{seconds[way] * 1e3:.2f}" if seconds.get(way) else "-" for way in ways]
        lines.append(f"| {row['case']}, {row['of']} | **{cells[0]}** | {' | '.join(cells[1:])} |")
    return lines


def blocks(document: dict[str, Any]) -> list[str]:
    """Block-sparse times block-sparse, of bench/bsr.py."""
    lines = ["| blocks, stored, dtype | products | SciPy, ms | ours, ms | times as fast |"]
    lines.append("|---|---:|---:|---:|---:|")
    for row in document["cases"]:
        ours, theirs = row["seconds"]["tilewright"], row["seconds"]["scipy"]
        share = "three diagonals" if row["share"] is None else f"{row['share']:.0%}"
        name = f"{row['blocks']} x {row['blocks']} of {row['side']} x {row['side']}, {share}"
        lines.append(
            f"| {name}, {row['dtype']} | {row['products']} | {theirs * 1e3:.1f} |"
            f" {ours * 1e3:.1f} | **{theirs / ours:.2f}** |"
        )
    return lines


TABLES = {"doors": calls, "muon": steps, "jax": programs, "lists": lists, "bsr": blocks}
