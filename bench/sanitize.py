"""compute-sanitizer over every engine of the CUDA back end: nothing out of bounds, no race.

    python -m bench.sanitize --name h200        memcheck and racecheck over batches of small cases

Runs itself under the sanitizer, allocations uncached so that each array has bounds of its own, and
writes bench/results/sanitize-NAME.json: tool, engine, batch, what the sanitizer counted.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np

from bench.environment import RESULTS, ROOT, environment
from tilewright.inputs.devices import resolve

TOOLS = ("memcheck", "racecheck")
DTYPES = ("float32", "float16", "bfloat16", "float64")
SIDES = (1, 7, 16, 17, 33, 64, 65, 129)
LARGER = [[300, 260, 200], [520, 300, 136], [130, 257, 65], [264, 520, 72], [640, 640, 200]]
DEVICE_SIZES = "sizes on the device"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--name", default="gpu")
    parser.add_argument("--output", type=Path, default=RESULTS)
    parser.add_argument("--run", help="multiply here, with this engine: what the sanitizer watches")
    options = parser.parse_args()
    if options.run:
        _train() if options.run == DEVICE_SIZES else _multiply(options.run)
        return
    program = shutil.which("compute-sanitizer") or "/usr/local/cuda/bin/compute-sanitizer"
    if not Path(program).exists():
        raise SystemExit("compute-sanitizer is not installed; it comes with the CUDA toolkit")
    runs = [_watched(program, tool, engine) for tool in TOOLS for engine in _engines()]
    document = {"environment": environment(resolve("cuda:0")), "runs": runs}
    path = options.output / f"sanitize-{options.name}.json"
    path.write_text(json.dumps(document, indent=1) + "\n")
    print(f"written: {path}")
    if any(run["errors"] for run in runs):
        raise SystemExit("the sanitizer found errors")


def _engines() -> list[str]:
    """Ours: the vendor's BLAS is the vendor's to check."""
    from tilewright.backends.cuda import choose

    return [*(name for name in choose.names() if name != "vendor"), DEVICE_SIZES]


def _watched(program: str, tool: str, engine: str) -> dict[str, Any]:
    """One engine under one tool, in a process of its own."""
    # Calls that fail by design, as cuda-bindings' search for functions of newer drivers, are no
    # errors of memory.
    quiet = ["--report-api-errors=no"] if tool == "memcheck" else []
    command = [program, f"--tool={tool}", "--error-exitcode=99", *quiet, sys.executable]
    command += ["-m", "bench.sanitize", "--run", engine]
    surroundings = {**os.environ, "PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}
    ran = subprocess.run(command, cwd=ROOT, env=surroundings, capture_output=True, text=True)
    said = [line for line in ran.stdout.splitlines() if line.startswith("=========")]
    summary = next((line for line in reversed(said) if "SUMMARY" in line), "no summary")
    done = [line for line in ran.stdout.splitlines() if line.startswith("right:")]
    errors = ran.returncode != 0 or not done  # nothing multiplied proves nothing
    print(f"{tool} {engine}: {summary.strip('= ')} {' '.join(done)}", flush=True)
    if errors:
        print("\n".join([*said[:30], ran.stdout[-1000:], ran.stderr[-2000:]]), flush=True)
    return {
        "tool": tool,
        "engine": engine,
        "summary": summary.strip("= "),
        "errors": errors,
        "right": done,
    }


def _multiply(engine: str) -> None:
    """Batches of small and of larger products through one engine, checked against float64."""
    import torch

    from tilewright import grouped_matmul
    from tilewright.errors import KernelError

    for dtype, precision in (*((name, None) for name in DTYPES), ("float32", "fp32x")):
        for pad, larger in itertools.product((1, 8), (False, True)):
            sizes = np.random.default_rng(pad).choice(SIDES, (24, 3)).tolist()
            sizes = LARGER if larger else [*sizes, [20, 18, 3000], [16, 16, 0]]
            kind = getattr(torch, dtype)
            a = [_matrix(m, k, pad, kind) for m, n, k in sizes]
            b = [_matrix(k, n, pad, kind) for m, n, k in sizes]
            try:
                results = grouped_matmul(a, b, kernel=engine, precision=precision)
            except KernelError as error:
                print(f"refused: {precision or dtype} pad {pad}: {error}")
                continue
            for x, y, z in zip(a, b, results, strict=True):
                truth = x.double() @ y.double()
                assert torch.allclose(z.double(), truth, rtol=2e-2, atol=0.5), (dtype, pad)
            print(f"right: {precision or dtype} pad {pad}, {len(sizes)} products")


def _train() -> None:
    """Layers of groups of few and many rows, forward and backward, checked against float64."""
    import torch

    from tilewright.pytorch import GroupedLinear

    for dtype in DTYPES:
        for k, n in ((64, 136), (33, 41)):
            kind, counts = getattr(torch, dtype), [0, 1, 64, 65, 300, 15]
            layer: Any = GroupedLinear(len(counts), k, n, device="cuda", dtype=kind)
            x = _matrix(sum(counts), k, 1, kind).requires_grad_()
            pull = _matrix(len(x), n, 1, kind)
            ends = torch.tensor(np.cumsum(counts), device="cuda")
            result = layer(x, ends)
            result.backward(pull)
            begin = 0
            for group, count in enumerate(counts):
                part = slice(begin, begin := begin + count)
                w, rows, grad = (z.detach().double() for z in (layer.weight, x, pull))
                pairs = (
                    (result[part], rows[part] @ w[group] + layer.bias[group].double()),
                    (x.grad[part], grad[part] @ w[group].t()),
                    (layer.weight.grad[group], rows[part].t() @ grad[part]),
                    (layer.bias.grad[group], grad[part].sum(0)),
                )
                for found, truth in pairs:
                    assert torch.allclose(found.double(), truth, rtol=2e-2, atol=0.5), (dtype, k)
            print(f"right: {dtype}, {len(counts)} groups, {k} to {n}")


def _matrix(rows: int, cols: int, pad: int, dtype: Any) -> Any:
    """A matrix in an allocation of its own that ends where its last row does."""
    import torch

    step = -(-cols // pad) * pad
    flat = torch.randn(max(1, rows * step), device="cuda").to(dtype)
    return flat[: rows * step].view(rows, step)[:, :cols]


if __name__ == "__main__":
    main()
