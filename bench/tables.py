"""Turns bench/results/*.json into the tables of README.md and docs/, between their markers.

    <!-- table: dense-opencl-... -->  ...  <!-- end -->

Nobody types a number into a document: `make tables` does.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench.environment import RESULTS, ROOT

_MARK = re.compile(r"(<!-- table: (\S+) -->\n).*?(<!-- end -->)", re.DOTALL)


def main() -> None:
    for page in [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]:
        text = page.read_text()
        filled = _MARK.sub(_fill, text)
        if filled != text:
            page.write_text(filled)
            print(f"updated: {page.relative_to(ROOT)}")


def _fill(match: re.Match[str]) -> str:
    name = match.group(2)
    path = RESULTS / f"{name}.json"
    if not path.exists():
        raise SystemExit(f"table={name!r}: there is no {path.relative_to(ROOT)}")
    document = json.loads(path.read_text())
    kind = name.partition("-")[0]
    return f"{match.group(1)}{_TABLES[kind](document, path)}\n{match.group(3)}"


def _dense(document: dict[str, Any], path: Path) -> str:
    lines = [
        "| n = m = k | NumPy | `matmul` | ratio | runs on |",
        "|---:|---:|---:|---:|---|",
    ]
    for row in document["sizes"]:
        seconds, rate = row["seconds"], row["gflops"]
        if row["size"] < 384:
            ours = f"{seconds['numpy'] * 1e6:.1f} µs | {seconds['matmul'] * 1e6:.1f} µs"
            note = f"{row['added_microseconds']:+.1f} µs"
        else:
            ours = f"{rate['numpy']:.0f} GFLOP/s | {rate['matmul']:.0f} GFLOP/s"
            note = f"{row['ratio']:.2f}×"
        lines.append(f"| {row['size']} | {ours} | {note} | {row['chosen']} |")
    return "\n".join([*lines, "", _source(document, path)])


def _source(document: dict[str, Any], path: Path) -> str:
    facts = document["environment"]
    device = facts["device"]
    return (
        f"{device['name']}, {device['compute_units']} compute units, {device['platform']}"
        f" {device['driver']}, NumPy {facts['versions']['numpy']}; {facts['date']}, commit"
        f" {facts['commit']}; from `{path.relative_to(ROOT)}`."
    )


_TABLES: dict[str, Callable[[dict[str, Any], Path], str]] = {"dense": _dense}


if __name__ == "__main__":
    main()
