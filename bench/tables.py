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


def _ladder(document: dict[str, Any], path: Path) -> str:
    """The largest size of a ladder, fastest first, and cuBLAS of the same run."""
    last = document["ladders"][-1]
    lines = [
        f"| {last['size']}³, {document['dtype']} | TFLOP/s | × serial | largest error |",
        "|---|---:|---:|---:|",
    ]
    cublas = document.get("cublas_tflops", {}).get(str(last["size"]))
    if cublas and cublas[0]:
        lines.append(f"| cuBLAS (fp32, before and after) | {cublas[0]:.1f}, {cublas[1]:.1f} | | |")
    for rung in sorted(last["rungs"], key=lambda rung: -rung["gflops"]):
        name = f"`{rung['name']}`" if rung["kind"] == "kernel" else rung["name"]
        over = rung["speedup_over_serial"]
        lines.append(f"| {name} | {rung['gflops'] / 1e3:.2f} | {over:,.0f} | {rung['error']:.1e} |")
    return "\n".join([*lines, "", _source(document, path)])


def _grouped(document: dict[str, Any], path: Path) -> str:
    """Batches beside MKL's batch call and loops, or every order on a GPU."""
    if "milliseconds" in document["batches"][0]:
        return _grouped_gpu(document, path)
    lines = [
        "| m, n, k drawn from | bound plan | MKL batch | NumPy loop | `grouped_matmul` |"
        " bound ÷ MKL | bound ÷ NumPy |",
        "|---|---:|---:|---:|---:|---:|---:|",
    ]
    for row in document["batches"]:
        times, flops = row["seconds"], row["flops"]
        rate = {name: flops / value / 1e9 for name, value in times.items()}
        cells = [rate.get(name) for name in ("bound plan", "mkl batch", "numpy loop")]
        shown = " | ".join("not installed" if x is None else f"{x:.0f}" for x in cells)
        bound = rate["bound plan"]
        mkl = f"{bound / rate['mkl batch']:.2f}×" if "mkl batch" in rate else "-"
        lines.append(
            f"| {row['count']} of {row['low']}..{row['high']} | {shown} |"
            f" {rate['grouped_matmul']:.0f} | {mkl} | {bound / rate['numpy loop']:.2f}× |"
        )
    planning = "; ".join(
        f"{row['count']:,} problems {row['fresh_ms']:.2f} ms, found again {row['cached_ms']:.3f} ms"
        for row in document["planning"]
    )
    return "\n".join([*lines, "", f"GFLOP/s, fp32. Planning: {planning}.", _source(document, path)])


def _grouped_gpu(document: dict[str, Any], path: Path) -> str:
    orders = list(document["batches"][0]["milliseconds"])
    lines = [f"| ms | {' | '.join(orders)} |", "|---|" + "---:|" * len(orders)]
    for row in document["batches"]:
        cells = " | ".join(f"{row['milliseconds'][order]:.3f}" for order in orders)
        lines.append(f"| {row['count']} of {row['low']}..{row['high']} | {cells} |")
    return "\n".join([*lines, "", _source(document, path)])


def _source(document: dict[str, Any], path: Path) -> str:
    facts = document["environment"]
    device = facts["device"]
    return (
        f"{device['name']}, {device['compute_units']} compute units, {device['platform']}"
        f" {device['driver']}, NumPy {facts['versions']['numpy']}; {facts['date']}, commit"
        f" {facts['commit']}; from `{path.relative_to(ROOT)}`."
    )


_TABLES: dict[str, Callable[[dict[str, Any], Path], str]] = {
    "dense": _dense,
    "ladder": _ladder,
    "grouped": _grouped,
}


if __name__ == "__main__":
    main()
