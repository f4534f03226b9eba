"""What speed each kind of processor reaches, in one table, of several results."""

from __future__ import annotations

import json
from typing import Any

from bench.environment import RESULTS

# Processor, its batches, its single products, the names of ours and of NumPy's rate in those.
_ROWS = (
    (
        "AVX-512 with VNNI, bf16 and `vpopcntq`: AMD EPYC, Zen 4",
        "grouped-host-amd-epyc",
        "panel-opencl-amd-epyc",
    ),
    (
        "AVX-512 as Intel's Cascade Lake has it: the same EPYC, held to it",
        "grouped-host-amd-epyc-cascadelake",
        "panel-opencl-amd-epyc-cascadelake",
    ),
    (
        "AVX2 as Intel's Haswell has it: the same EPYC, held to it",
        "grouped-host-amd-epyc-haswell",
        "panel-opencl-amd-epyc-haswell",
    ),
    (
        "AVX-512 with AMX: Intel Xeon; batches by OpenCL's engine, as they were on 22 November",
        "grouped-opencl-intel-r-xeon-r-processor",
        "dense-opencl-intel-r-xeon-r-processor",
    ),
)
_DRAWS = ((1000, 1, 64), (200, 64, 512))
_SIZE = 2048


def lines(_: dict[str, Any]) -> list[str]:
    """The table, a row a processor, and what its figures mean."""
    heads = [
        part
        for count, low, high in _DRAWS
        for part in (f"{count:,} of {low}..{high}, planned once", "in one call")
    ]
    found = [f"| processor | {' | '.join(heads)} | one of {_SIZE}³, `panel` |"]
    found.append("|---" + "|---:" * (len(heads) + 1) + "|")
    for name, batches, single in _ROWS:
        cells = [cell for draw in _DRAWS for cell in _batch(_read(batches), draw)]
        found.append(f"| {name} | {' | '.join(cells)} | {_single(_read(single))} |")
    meaning = (
        "GFLOP/s of float32 on two cores, and how many times NumPy's: planned once beside a loop"
        " with `out=`, in one call beside a loop that makes its results, one product beside its"
        " BLAS. The first row's batches are of the file below, the others of the tables further"
        " down; the Xeon's are in README.md and measured.md."
    )
    return [*found, "", meaning]


def _read(name: str) -> dict[str, Any]:
    document: dict[str, Any] = json.loads((RESULTS / f"{name}.json").read_text())
    return document


def _batch(document: dict[str, Any], draw: tuple[int, int, int]) -> tuple[str, str]:
    """Ours by a bound plan and in one call, with how many times NumPy's loop of the same kind."""
    drawn = (row for row in document["batches"] if not row.get("drawn") or " of " in row["drawn"])
    row = next(row for row in drawn if (row["count"], row["low"], row["high"]) == draw)
    times, flops = row["seconds"], row["flops"]
    return (
        _cell(flops / times["bound plan"], flops / times["numpy loop, out="]),
        _cell(flops / times["grouped_matmul"], flops / times["numpy loop"]),
    )


def _single(document: dict[str, Any]) -> str:
    rows = document.get("products") or document["sizes"]
    rates = next(row["gflops"] for row in rows if row["size"] == _SIZE)
    return _cell(1e9 * (rates.get("panel") or rates["kernel"]), 1e9 * rates["numpy"])


def _cell(ours: float, peer: float) -> str:
    return f"{ours / 1e9:.0f}, {ours / peer:.2f}×"
