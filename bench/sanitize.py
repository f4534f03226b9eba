"""compute-sanitizer over every engine of the CUDA back end: nothing out of bounds, no race.

    python -m bench.sanitize --name h200        memcheck and racecheck over batches of small cases

Runs itself under the sanitizer, allocations uncached so that each array has bounds of its own, and
writes bench/results/sanitize-NAME.json after each engine: tool, engine, batch, what the sanitizer
counted. `--only` names engines, parted by commas; `--seconds` is when no other is begun any more.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np

from bench.environment import RESULTS, ROOT, environment
from tilewright.inputs.devices import resolve

TOOLS = ("memcheck", "racecheck")
DTYPES = ("float32", "float16", "bfloat16", "float64")
SIDES = (1, 7, 16, 17, 33, 64, 65, 129)
LARGER = [[300, 260, 200], [520, 300, 136], [130, 257, 65], [264, 520, 72], [640, 640, 200]]
DEVICE_SIZES, EXPERTS, EIGHT_BITS = "sizes on the device", "layers of experts", "8-bit products"
LONG_GROUPS = "groups of many rows"
_LONGEST = 240  # seconds of one engine under one tool


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--name", default="gpu")
    parser.add_argument("--output", type=Path, default=RESULTS)
    parser.add_argument("--run", help="multiply here, with this engine: what the sanitizer watches")
    parser.add_argument("--only", default="", help="engines, parted by commas")
    parser.add_argument("--seconds", type=float, default=1e9, help="begin none after these")
    options = parser.parse_args()
    if options.run:
        own = {DEVICE_SIZES: _train, EXPERTS: _experts, EIGHT_BITS: _eight_bits}
        own[LONG_GROUPS] = _long_groups
        own[options.run]() if options.run in own else _multiply(options.run)
        return
    program = shutil.which("compute-sanitizer") or "/usr/local/cuda/bin/compute-sanitizer"
    if not Path(program).exists():
        raise SystemExit("compute-sanitizer is not installed; it comes with the CUDA toolkit")
    document: dict[str, Any] = {"environment": environment(resolve("cuda:0")), "runs": []}
    path, begun = options.output / f"sanitize-{options.name}.json", time.monotonic()
    chosen = options.only.split(",") if options.only else _engines()
    for engine, tool in itertools.product(chosen, TOOLS):
        if time.monotonic() - begun > options.seconds:
            document["not begun"] = [*document.get("not begun", []), [tool, engine]]
        else:
            document["runs"].append(_watched(program, tool, engine))
        path.write_text(json.dumps(document, indent=1) + "\n")
    print(f"written: {path}")
    if any(run["errors"] for run in document["runs"]):
        raise SystemExit("the sanitizer found errors")


def _engines() -> list[str]:
    """Ours: the vendor's BLAS is the vendor's to check."""
    from tilewright.backends.cuda import choose

    ours = (name for name in choose.names() if name != "vendor")
    return [DEVICE_SIZES, LONG_GROUPS, EXPERTS, EIGHT_BITS, *ours]


def _watched(program: str, tool: str, engine: str) -> dict[str, Any]:
    """One engine under one tool, in a process of its own."""
    # Calls that fail by design, as cuda-bindings' search for functions of newer drivers, are no
    # errors of memory.
    quiet = ["--report-api-errors=no"] if tool == "memcheck" else []
    command = [program, f"--tool={tool}", "--error-exitcode=99", *quiet, sys.executable]
    command += ["-m", "bench.sanitize", "--run", engine]
    surroundings = {**os.environ, "PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}
    try:
        ran = subprocess.run(
            command, cwd=ROOT, env=surroundings, capture_output=True, text=True, timeout=_LONGEST
        )
    except subprocess.TimeoutExpired:
        print(f"{tool} {engine}: not done in {_LONGEST} s", flush=True)
        summary = f"not done in {_LONGEST} s"
        return {"tool": tool, "engine": engine, "summary": summary, "errors": True, "right": []}
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
            sizes = LARGER if larger else [*sizes, [20, 18, 3000], [65, 72, 3000], [16, 16, 0]]
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

    for dtype, precision in (*((name, None) for name in DTYPES), ("float32", "fp32x")):
        for k, n in ((64, 136), (33, 41)):
            kind, counts = getattr(torch, dtype), [0, 1, 64, 65, 300, 15]
            layer: Any = GroupedLinear(
                len(counts), k, n, precision=precision, device="cuda", dtype=kind
            )
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
            print(f"right: {precision or dtype}, {len(counts)} groups, {k} to {n}")


def _long_groups() -> None:
    """Groups cut evenly, into tiles of two strips that take turns, and as the device says.

    It takes whole tiles for groups of about as many rows, and even ones for the others.
    """
    from tilewright.backends.cuda.ragged import hopper_cuts

    alike = [181, 0, 182, 189, 193, 194, 195, 199, 203]
    unlike = [48, 55, 0, 137, 181, 192, 272, 314, 337]
    evenly, either = hopper_cuts.CUTS.index(hopper_cuts.EVENLY), hopper_cuts.EITHER
    cases = (
        ([4000, 0, 2601, 17, 1900], 1416, evenly),
        (alike, 2048, either),
        (unlike, 2048, either),
    )
    for counts, n, cut in cases:
        with patch.object(hopper_cuts, "choice", return_value=cut):
            _rows_of_groups(counts, n)


def _rows_of_groups(counts: list[int], n: int) -> None:
    """Halves of groups of so many rows, with a bias and without, beside each group's product."""
    import torch

    from tilewright import ragged_matmul

    k = 64
    ends = torch.tensor(np.cumsum(counts), device="cuda")
    owners = torch.arange(len(counts), device="cuda").repeat_interleave(
        torch.tensor(counts, device="cuda")
    )
    for dtype, with_bias in itertools.product(("bfloat16", "float16"), (False, True)):
        kind = getattr(torch, dtype)
        x = _matrix(sum(counts), k, 1, kind)
        w = _matrix(len(counts) * k, n, 1, kind).view(len(counts), k, n)
        bias = _matrix(len(counts), n, 1, kind) if with_bias else None
        out = ragged_matmul(x, w, ends, bias=bias)
        truth = torch.cat([x[owners == g].float() @ w[g].float() for g in range(len(counts))])
        truth += 0 if bias is None else bias[owners].float()
        assert torch.allclose(out.float(), truth, rtol=2e-2, atol=0.1), (dtype, with_bias)
        print(f"right: {dtype}, bias {with_bias}, {len(counts)} groups, {k} to {n}")


def _experts() -> None:
    """Layers whose rows are found by index, forward and backward, beside a loop in float64."""
    import torch

    from tilewright import moe

    for dtype, (d, n) in itertools.product(("bfloat16", "float32"), ((64, 64), (40, 24))):
        kind, tokens, groups, top = getattr(torch, dtype), 70, 5, 2
        x, weights = _matrix(tokens, d, 1, kind), _matrix(tokens, top, 1, kind)
        w_up = _matrix(groups * d, 2 * n, 1, kind).view(groups, d, 2 * n)
        w_down = _matrix(groups * n, d, 1, kind).view(groups, n, d)
        given = [one.requires_grad_() for one in (x, w_up, w_down, weights)]
        experts = torch.rand(tokens, groups, device="cuda").topk(top).indices
        wide = [one.detach().double().requires_grad_() for one in given]
        out = moe(given[0], given[1], given[2], experts, given[3])
        truth = _loop(wide[0], wide[1], wide[2], experts, wide[3])
        pull = torch.randn_like(out)
        found = [out, *torch.autograd.grad(out, given, pull)]
        wanted = [truth, *torch.autograd.grad(truth, wide, pull.double())]
        for one, right in zip(found, wanted, strict=True):
            assert (one.double() - right).norm() <= 0.03 * right.norm(), dtype
        print(f"right: {dtype}, {groups} experts, {d} to {n}")


def _loop(x: Any, w_up: Any, w_down: Any, experts: Any, weights: Any) -> Any:
    import torch

    out = torch.zeros_like(x)
    for slot in range(experts.shape[1]):
        left, right = torch.einsum("td,tdn->tn", x, w_up[experts[:, slot]]).chunk(2, 1)
        made = torch.nn.functional.silu(left) * right
        made = torch.einsum("tn,tnd->td", made, w_down[experts[:, slot]])
        out = out + weights[:, slot, None] * made
    return out


def _eight_bits() -> None:
    """Quantised, and rows and depths of groups, beside float32's product of what is decoded; int8
    beside float64's."""
    import torch

    from tilewright import quantise_fp8, quantise_int8, ragged_matmul

    counts = [0, 1, 64, 65, 300, 15]
    ends = torch.tensor(np.cumsum(counts), device="cuda")
    for k, n in ((144, 136), (256, 48)):
        x = _matrix(sum(counts), k, 1, torch.bfloat16)
        w = _matrix(len(counts) * k, n, 1, torch.bfloat16).view(len(counts), k, n)
        for of_x, of_w in (("row", "row"), ("1x128", "128x128")):
            xv, xs = quantise_fp8(x, scale=of_x)
            wv, ws = quantise_fp8(w, scale=of_w, along=1)
            out = ragged_matmul(xv, wv, ends, scale_a=xs, scale_b=ws)
            owners = torch.arange(len(counts), device="cuda").repeat_interleave(
                torch.tensor(counts, device="cuda")
            )
            truth = torch.einsum("tk,tkn->tn", x.float(), w.float()[owners])
            assert (out.float() - truth).norm() <= 0.06 * truth.norm(), (k, of_x)
            print(f"right: rows, {of_x}, {k} to {n}")
        xi, wi = (torch.randint_like(one.float(), -128, 128).to(torch.int8) for one in (x, w.mT))
        sums = ragged_matmul(xi, wi.mT, ends)
        of_x, of_w = quantise_int8(x)[1], quantise_int8(w, along=1)[1]
        out = ragged_matmul(xi, wi.mT, ends, scale_a=of_x, scale_b=of_w)
        truth = torch.einsum("tk,tnk->tn", xi.double(), wi.double()[owners])
        assert torch.equal(sums.double(), truth), k
        assert (out.double() - truth * of_x * of_w[owners, 0]).norm() <= 0.01 * out.norm(), k
        print(f"right: int8, {k} to {n}")
        y = _matrix(sum(counts), n, 1, torch.bfloat16)
        xv, xs, padded = quantise_fp8(x, along=0, offsets=ends)
        yv, ys, _ = quantise_fp8(y, along=0, offsets=ends)
        out = ragged_matmul(xv.t(), yv, padded, scale_a=xs.t(), scale_b=ys)
        begins = [0, *ends.tolist()]
        for group, (begin, end) in enumerate(itertools.pairwise(begins)):
            truth = x[begin:end].float().t() @ y[begin:end].float()
            assert (out[group].float() - truth).norm() <= 0.06 * truth.norm() + 1e-6, group
        print(f"right: depths, {k} by {n}")


def _matrix(rows: int, cols: int, pad: int, dtype: Any) -> Any:
    """A matrix in an allocation of its own that ends where its last row does."""
    import torch

    step = -(-cols // pad) * pad
    flat = torch.randn(max(1, rows * step), device="cuda").to(dtype)
    return flat[: rows * step].view(rows, step)[:, :cols]


if __name__ == "__main__":
    main()
