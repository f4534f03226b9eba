"""Whole optimizer steps by Muon on a GPU, beside what a user would pick.

    python -m bench.muon --name h200        bench/results/muon-h200.json

tilewright        tilewright.pytorch.Muon
torch.optim.Muon  one matrix after another
padded            lists of operations for momentum and parameters as ours has them, Newton-Schulz by
                  baddbmm of all matrices padded with zeros to the largest, wide ones turned
same shape        the same, a baddbmm for each shape

Milliseconds are of the host's clock around one step and the wait for it, medians of interleaved
rounds; `host_ms` until the call returns. Peers have their memory beforehand, as ours has. `error`
is of Newton-Schulz alone, against float64, the largest of eight matrices.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from bench.environment import RESULTS, environment
from bench.muon_shapes import Shape, transformer, yolo
from tilewright.inputs.devices import resolve

ROUNDS = 7
A, B, C = 3.4445, -4.7750, 2.0315
CASES: dict[str, Callable[[], list[Shape]]] = {"transformer 1B": transformer, "YOLO11n": yolo}
Step = Callable[[], None]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--name", required=True)
    parser.add_argument("--output", type=Path, default=RESULTS)
    options = parser.parse_args()
    document: dict[str, Any] = {"environment": environment(resolve("cuda:0")), "cases": []}
    for name, shapes in CASES.items():
        document["cases"].append(_measured(name, shapes()))
    path = options.output / f"muon-{options.name}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(document, indent=1) + "\n")
    print(f"written: {path}")


def _measured(name: str, shapes: list[Shape]) -> dict[str, Any]:
    import torch

    torch.manual_seed(0)
    params = [torch.nn.Parameter(torch.randn(one, device="cuda") * 0.02) for one in shapes]
    for one in params:
        one.grad = torch.randn_like(one)
    ways = _ways(params)
    flops = sum(2.0 * 5 * (2 * min(s) ** 2 * max(s) + min(s) ** 3) for s in shapes)
    record: dict[str, Any] = {
        "case": name,
        "matrices": len(shapes),
        "parameters": sum(m * n for m, n in shapes),
        "gflop": flops / 1e9,
        "error": _errors(params[:8]),
        "ways": {},
    }
    first = {way: _seconds(step)[1] for way, step in ways.items()}
    for step in ways.values():
        _seconds(step)
    found: dict[str, list[tuple[float, float]]] = {way: [] for way in ways}
    for _ in range(ROUNDS):
        for way, step in ways.items():
            time.sleep(0.02)
            found[way].append(_seconds(step))
    for way, pairs in found.items():
        host, whole = (1e3 * statistics.median(column) for column in zip(*pairs, strict=True))
        row = {"ms": whole, "host_ms": host, "first_ms": 1e3 * first[way]}
        record["ways"][way] = row | {"tflops": flops / whole / 1e9}
        print(f"{name}: {way:18s} {row}", flush=True)
    print(f"{name}: error {record['error']}", flush=True)
    return record


def _seconds(step: Step) -> tuple[float, float]:
    """Until the call returned, and until all was done."""
    import torch

    torch.cuda.synchronize()
    begun = time.perf_counter()
    step()
    returned = time.perf_counter()
    torch.cuda.synchronize()
    return returned - begun, time.perf_counter() - begun


def _ways(params: list[Any]) -> dict[str, Step]:
    import torch

    from tilewright.pytorch import Muon

    return {
        "tilewright": Muon(params, lr=1e-3).step,
        "torch.optim.Muon": torch.optim.Muon(params, lr=1e-3).step,
        "padded": _Batched(params, together=True).step,
        "same shape": _Batched(params, together=False).step,
    }


class _Batched:
    """Muon by lists of operations and baddbmm."""

    def __init__(self, params: list[Any], *, together: bool) -> None:
        import torch

        self._params = [one.detach() for one in params]
        self._grads = [one.grad for one in params]
        self._buffers = [torch.zeros_like(one) for one in self._params]
        wide = [min(one.shape) for one in params], [max(one.shape) for one in params]
        sizes = (
            [(max(wide[0]), max(wide[1]))] * len(params)
            if together
            else list(zip(*wide, strict=True))
        )
        self._batches = []
        self._views: list[Any] = [None] * len(params)
        for size in sorted(set(sizes)):
            which = [i for i, one in enumerate(sizes) if one == size]
            x = torch.zeros((len(which), *size), dtype=torch.bfloat16, device="cuda")
            g = torch.zeros((len(which), size[0], size[0]), dtype=torch.bfloat16, device="cuda")
            self._batches.append((x, torch.empty_like(x), g, torch.empty_like(g)))
            for place, i in enumerate(which):
                m, n = params[i].shape
                self._views[i] = x[place, :m, :n] if m <= n else x[place, :n, :m].T

    def step(self) -> None:
        """With the arithmetic of torch.optim.Muon and its defaults."""
        import torch

        torch._foreach_lerp_(self._buffers, self._grads, 0.05)
        update = torch._foreach_lerp(self._grads, self._buffers, 0.95)
        torch._foreach_copy_(self._views, update)
        for batch in self._batches:
            _orthogonalised(*batch)
        torch._foreach_copy_(update, self._views)
        torch._foreach_mul_(self._params, 1 - 1e-3 * 0.1)
        rates: dict[float, tuple[list[Any], list[Any]]] = {}
        for one, change in zip(self._params, update, strict=True):
            rate = 1e-3 * max(1, one.shape[0] / one.shape[1]) ** 0.5
            pair = rates.setdefault(rate, ([], []))
            pair[0].append(one)
            pair[1].append(change)
        for rate, pair in rates.items():
            torch._foreach_add_(*pair, alpha=-rate)


def _orthogonalised(x: Any, y: Any, g: Any, h: Any) -> None:
    """The five steps of each matrix of x, in place."""
    import torch

    x.div_(torch.linalg.vector_norm(x, dim=(1, 2), keepdim=True).clamp(min=1e-7))
    there, other = x, y
    for _ in range(5):
        torch.bmm(there, there.mT, out=g)
        torch.baddbmm(g, g, g, beta=B, alpha=C, out=h)
        torch.baddbmm(there, h, there, beta=A, out=other)
        there, other = other, there
    x.copy_(there)


def _errors(params: Sequence[Any]) -> dict[str, float]:
    """Relative, of Newton-Schulz in bf16 here and by torch, against float64."""
    import torch
    from torch.optim._muon import _zeropower_via_newtonschulz

    from tilewright.pytorch import newton_schulz

    grads = [one.grad for one in params]
    theirs = [_zeropower_via_newtonschulz(one, (A, B, C), 5, 1e-7) for one in grads]
    worst = {"tilewright": 0.0, "torch.optim.Muon": 0.0}
    for grad, *pair in zip(grads, newton_schulz(grads), theirs, strict=True):
        x = (grad if grad.shape[0] <= grad.shape[1] else grad.T).double()
        x = x / x.norm()
        for _ in range(5):
            gram = x @ x.T
            x = A * x + (B * gram + C * gram @ gram) @ x
        exact = x if grad.shape[0] <= grad.shape[1] else x.T
        for way, found in zip(worst, pair, strict=True):
            worst[way] = max(worst[way], float((found - exact).norm() / exact.norm()))
    torch.cuda.synchronize()
    return worst


if __name__ == "__main__":
    main()
