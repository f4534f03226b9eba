"""The figures of variable-size batches: a bound plan beside MKL's batch call and a NumPy loop.

    python -m bench.grouped [--device host|opencl:intel] [--output FILE.json]

fp32, two cores meant; one run, ways interleaved, medians. A bound plan, MKL's batch and a loop with
`out=` write to results that are there; `grouped_matmul` and a plain loop make theirs anew. On the
host the plan that an OpenCL driver of the same cores runs stands beside.
Writes bench/results/grouped-DEVICE.json.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np

import tilewright
from bench.command import measure
from bench.peers import mkl
from bench.timing import interleaved

CASES = ((1, 32, 1000), (1, 64, 1000), (1, 256, 1000), (64, 512, 200))
# Draws that are not even, each with what their sizes are.
UNEVEN = {
    "1000 by a power law": "x of 1..512 with probability ~ 1 / x",
    "100 tall and thin": "m of 512..4096, n of 1..16, k of 1..32",
    "one giant among 799": "300 x 700 x 5000 among 1..32",
    "one long k among 799": "16 x 16 x 200000 among 1..32",
    "one large among 2999": "2000 x 2000 x 2000 before 4..32",
}
# What is asked: times as fast as MKL's batch, and as a loop of numpy.matmul, results made before.
MUST = {(1, 32): (1.0, 4.0), (1, 64): (1.0, 3.0), (1, 256): (1.0, 1.5), (64, 512): (1.0, 1.2)}


def figures(device: tilewright.Device) -> dict[str, Any]:
    """Everything that the result holds besides where it came from."""
    return {
        "batches": [
            *[_even(*case, device) for case in CASES],
            *[_batch(name, *_made(sizes(name)), device, {"must": (1.0, 1.0)}) for name in UNEVEN],
        ],
        "planning": [_planning(count, device) for count in (1000, 100_000)],
    }


def draw(low: int, high: int, count: int) -> tuple[list[Any], list[Any]]:
    """`count` products with m, n, k drawn uniformly from low..high; always the same."""
    generator = np.random.default_rng(0)
    return _made(generator.integers(low, high + 1, (count, 3)), generator)


def sizes(name: str) -> Any:
    """m, n, k of a draw of `UNEVEN`; always the same."""
    generator = np.random.default_rng(0)
    if name == "1000 by a power law":
        every = np.arange(1, 513)
        return generator.choice(every, size=(1000, 3), p=1 / every / np.sum(1 / every))
    if name == "100 tall and thin":
        columns = ((512, 4097), (1, 17), (1, 33))
        return np.stack([generator.integers(*limits, 100) for limits in columns], axis=1)
    if name == "one large among 2999":
        return np.concatenate(([[2000] * 3], generator.integers(4, 33, (2999, 3))))
    drawn = generator.integers(1, 33, (800, 3))
    drawn[400] = (300, 700, 5000) if name == "one giant among 799" else (16, 16, 200_000)
    return drawn


def _made(drawn: Any, generator: Any = None) -> tuple[list[Any], list[Any]]:
    generator = generator or np.random.default_rng(1)
    sizes = drawn.tolist()
    a = [generator.standard_normal((m, k), dtype=np.float32) for m, _, k in sizes]
    b = [generator.standard_normal((k, n), dtype=np.float32) for _, n, k in sizes]
    return a, b


def _even(low: int, high: int, count: int, device: tilewright.Device) -> dict[str, Any]:
    told = {"low": low, "high": high, "must": MUST[low, high]}
    return _batch(f"{count} of {low}..{high}", *draw(low, high, count), device, told)


def _batch(
    name: str, a: list[Any], b: list[Any], device: tilewright.Device, told: dict[str, Any]
) -> dict[str, Any]:
    flops = sum(2.0 * x.shape[0] * x.shape[1] * y.shape[1] for x, y in zip(a, b, strict=True))
    c = [np.full((x.shape[0], y.shape[1]), np.nan, np.float32) for x, y in zip(a, b, strict=True)]
    plan = tilewright.plan_grouped(*_sizes(a, b), device=device)
    bound = plan.bind(a, b)
    _check(a, b, bound())
    ways: dict[str, Callable[[], object]] = {
        "numpy loop": lambda: [x @ y for x, y in zip(a, b, strict=True)],
        "numpy loop, out=": lambda: [
            np.matmul(x, y, out=z) for x, y, z in zip(a, b, c, strict=True)
        ],
        "bound plan": bound,
        "grouped_matmul": lambda: tilewright.grouped_matmul(a, b),
    }
    if device.backend == "host" and (driver := _driver()):
        other = tilewright.plan_grouped(*_sizes(a, b), device=driver)
        ways[f"bound plan, {driver.platform}"] = other.bind(a, b, c)
    library = mkl.library()
    if library is not None:
        ways["mkl batch"] = mkl.bind(library, a, b, c)
        ways["mkl batch"]()
        _check(a, b, c)
    seconds = interleaved(ways, rounds=5)
    row = {
        "drawn": name,
        "count": len(a),
        **told,
        "flops": flops,
        "seconds": seconds,
        "order": plan.layout.chosen if plan.layout else "given",
    }
    rates = "  ".join(f"{name} {flops / s / 1e9:.0f}" for name, s in seconds.items())
    against = {name: s / seconds["bound plan"] for name, s in seconds.items()}
    ratios = "  ".join(f"{ratio:.2f}x {name}" for name, ratio in against.items())
    print(f"{name}: GFLOP/s {rates} | bound plan is {ratios}", flush=True)
    return row


def _driver() -> tilewright.Device | None:
    """An OpenCL driver of the same cores."""
    found = (one for one in tilewright.devices() if one.backend == "opencl" and one.kind == "cpu")
    return next(found, None)


def _sizes(a: list[Any], b: list[Any]) -> tuple[list[int], list[int], list[int]]:
    return [x.shape[0] for x in a], [y.shape[1] for y in b], [x.shape[1] for x in a]


def _check(a: list[Any], b: list[Any], c: Any) -> None:
    for index, (x, y, z) in enumerate(zip(a, b, c, strict=True)):
        truth = x.astype(np.float64) @ y
        if not np.allclose(z, truth, rtol=1e-4, atol=1e-3):
            raise SystemExit(f"problem {index}: wrong result")


def _planning(count: int, device: tilewright.Device) -> dict[str, float]:
    """Median milliseconds of a plan made anew, and of the same plan found again."""
    generator = np.random.default_rng(1)
    fresh, cached = [], []
    for _ in range(9):
        columns = generator.integers(1, 257, (3, count))
        begun = time.perf_counter()
        layout = tilewright.plan_grouped(*columns, device=device).layout
        assert layout is None or len(layout.queue)
        fresh.append(time.perf_counter() - begun)
        begun = time.perf_counter()
        tilewright.plan_grouped(*columns, device=device)
        cached.append(time.perf_counter() - begun)
    row = {
        "count": count,
        "fresh_ms": float(np.median(fresh) * 1e3),
        "cached_ms": float(np.median(cached) * 1e3),
    }
    print(f"planning {count}: {row['fresh_ms']:.2f} ms anew, {row['cached_ms']:.3f} ms cached")
    return row


if __name__ == "__main__":
    measure("grouped", __doc__, figures)
