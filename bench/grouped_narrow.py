"""Batches of bfloat16 and int8 on the host: a bound plan beside torch's loop and NumPy's.

    python -m bench.grouped_narrow [--output FILE.json]

Two cores meant; one run, ways interleaved, medians. The draws are of `bench.grouped`; results
are made before, where the way has a place for them. torch multiplies bfloat16 by `torch.mm(out=)`,
which is oneDNN's, and int8 by `torch._int_mm`, into new results, or not at all; NumPy multiplies
int32 copies made before. Writes bench/results/narrow-HOST.json.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

import tilewright
from bench.command import measure
from bench.grouped import CASES, sizes
from bench.timing import interleaved
from tilewright.arrays import torch_private as private

DRAWS = {
    **{f"{count} of {low}..{high}": (low, high, count) for low, high, count in CASES},
    **dict.fromkeys(("1000 by a power law", "one long k among 799")),
}


def figures(device: tilewright.Device) -> dict[str, Any]:
    """Everything that the result holds besides where it came from."""
    return {
        "batches": [_batch(name, dtype, device) for dtype in ("bfloat16", "int8") for name in DRAWS]
    }


def drawn(name: str) -> list[tuple[int, int, int]]:
    """m, n, k of every product of a draw; always the same."""
    even = DRAWS[name]
    if even is None:
        return [tuple(row) for row in sizes(name).tolist()]
    low, high, count = even
    generator = np.random.default_rng(0)
    return [tuple(row) for row in generator.integers(low, high + 1, (count, 3)).tolist()]


def _made(rows: int, cols: int, dtype: str) -> torch.Tensor:
    if dtype == "int8":
        return torch.randint(-128, 128, (rows, cols), dtype=torch.int8)
    return torch.randn(rows, cols).to(torch.bfloat16)


def _batch(name: str, dtype: str, device: tilewright.Device) -> dict[str, Any]:
    torch.manual_seed(0)
    shapes = drawn(name)
    a = [_made(m, k, dtype) for m, _, k in shapes]
    b = [_made(k, n, dtype) for _, n, k in shapes]
    plan = tilewright.plan_grouped(
        *(list(column) for column in zip(*shapes, strict=True)), dtype=dtype, device=device
    )
    bound = plan.bind(a, b)
    _check(a, b, bound(), dtype)
    ways: dict[str, Callable[[], object]] = {"bound plan": bound, **_peers(a, b, dtype)}
    seconds = interleaved(ways, rounds=3)
    operations = sum(2.0 * m * n * k for m, n, k in shapes)
    rates = "  ".join(f"{way} {operations / s / 1e9:.0f}" for way, s in seconds.items())
    print(f"{dtype}, {name}: GOP/s {rates}", flush=True)
    return {
        "dtype": dtype,
        "drawn": name,
        "count": len(shapes),
        "operations": operations,
        "seconds": seconds,
    }


def _peers(a: list[Any], b: list[Any], dtype: str) -> dict[str, Callable[[], object]]:
    if dtype == "bfloat16":
        c = [torch.empty(x.shape[0], y.shape[1], dtype=x.dtype) for x, y in zip(a, b, strict=True)]
        return {
            "torch loop, out=": lambda: [
                torch.mm(x, y, out=z) for x, y, z in zip(a, b, c, strict=True)
            ],
            "grouped_matmul, out=": lambda: tilewright.grouped_matmul(a, b, out=c),
        }
    multiply = private.int8_product(torch)
    wide = [[x.numpy().astype(np.int32) for x in part] for part in (a, b)]
    c = [np.empty((x.shape[0], y.shape[1]), np.int32) for x, y in zip(a, b, strict=True)]
    return {
        "torch loop": lambda: [multiply(x, y) for x, y in zip(a, b, strict=True)],
        "grouped_matmul": lambda: tilewright.grouped_matmul(a, b),
        **(
            {
                "numpy loop of int32, out=": lambda: [
                    np.matmul(x, y, out=z) for x, y, z in zip(*wide, c, strict=True)
                ]
            }
            if sum(x.shape[0] * x.shape[1] * y.shape[1] for x, y in zip(a, b, strict=True)) < 1e9
            else {}
        ),
    }


def _check(a: list[Any], b: list[Any], c: Any, dtype: str) -> None:
    for index, (x, y, z) in enumerate(zip(a, b, c, strict=True)):
        truth = x.double() @ y.double()
        near = 0.0 if dtype == "int8" else 0.01 * float(truth.abs().max() + 1)
        if float((z.double() - truth).abs().max()) > near:
            raise SystemExit(f"problem {index}: wrong result")


if __name__ == "__main__":
    measure("narrow", __doc__, figures)
