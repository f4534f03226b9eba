"""8-bit products of ragged rows beside what a user would pick instead, and first of all right.

8-bit floats, and int8 beside a loop of torch's `_int_mm`, which has no grouped product.

    python -m bench.fp8 --name h200             tables, and bench/results/fp8-NAME.json
    python -m bench.fp8 --name h200 --only moe

Milliseconds of the device around one call, medians of interleaved rounds, each after a rest
(bench/gpu.py says why). Every way writes bf16; quantising is a table of its own, in GB/s of what is
read and written. Torch's `_scaled_grouped_mm` has scales of rows, as ours where it says "row".
"""

from __future__ import annotations

import argparse
import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from bench import gpu, gpu_cases
from bench.environment import RESULTS, environment
from tilewright.inputs.devices import resolve


@dataclass(frozen=True)
class Case:
    """Rows a group, n and k; `must` and `aim` in ms or, above 10, in TFLOP/s."""

    name: str
    rows: tuple[int, ...]
    n: int
    k: int
    must: float | None = None
    aim: float | None = None

    @property
    def flops(self) -> float:
        """Multiplications and additions."""
        return 2.0 * sum(self.rows) * self.n * self.k


def _moe(count: int, k: int, n: int, tokens: int) -> tuple[int, ...]:
    return tuple(m for m, _, _ in gpu_cases.experts(count, k, n, tokens))


INT8 = 1200  # TOP/s that int8 must reach on the cases that say so
CASES = (
    Case("moe-64: 16384 tokens, 2048 x 2816", _moe(64, 2048, 2816, 16384), 2816, 2048, 0.215, 0.18),
    Case("4 x 8192 rows, n 4096, k 7168", (8192,) * 4, 4096, 7168, 1150, 1250),
    Case("4 x 8192 rows, n 7168, k 2048", (8192,) * 4, 7168, 2048, 1050, 1150),
    Case("moe-8: 8192 tokens, 4096 x 14336", _moe(8, 4096, 14336, 8192), 14336, 4096),
    Case("moe-256: 16384 tokens, 7168 x 2048", _moe(256, 7168, 2048, 16384), 2048, 7168),
    Case("one of 8192", (8192,), 8192, 8192),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--name", required=True)
    parser.add_argument("--only", default="", help="cases whose name holds this")
    parser.add_argument("--output", type=Path, default=RESULTS)
    options = parser.parse_args()
    document: dict[str, Any] = {"environment": environment(resolve("cuda:0"))}
    chosen = [case for case in CASES if options.only in case.name]
    document["cases"] = [_measured(case) for case in chosen]
    document["depths"] = [_gradients(case) for case in chosen if len(case.rows) > 1]
    document["int8"] = [_whole(case) for case in chosen]
    document["quantising"] = _quantising()
    path = options.output / f"fp8-{options.name}.json"
    path.write_text(json.dumps(document, indent=1) + "\n")
    print(f"written: {path}")


def _measured(case: Case) -> dict[str, Any]:
    import torch

    import tilewright

    x = torch.randn(sum(case.rows), case.k, device="cuda", dtype=torch.bfloat16)
    w = torch.randn(len(case.rows), case.k, case.n, device="cuda", dtype=torch.bfloat16)
    ends = torch.tensor(case.rows, device="cuda").cumsum(0).int()
    out = torch.empty(len(x), case.n, device="cuda", dtype=torch.bfloat16)
    ways: dict[str, Any] = {}
    refused: dict[str, str] = {}
    errors = {}
    kinds = {"row": ("row", "row"), "1x128, 128x128": ("1x128", "128x128")}
    for name, (of_x, of_w) in kinds.items():
        xv, xs = tilewright.quantise_fp8(x, scale=of_x)
        wv, ws = tilewright.quantise_fp8(w, scale=of_w, along=1)

        def ours(xv: Any = xv, wv: Any = wv, xs: Any = xs, ws: Any = ws) -> Any:
            return tilewright.ragged_matmul(xv, wv, ends, scale_a=xs, scale_b=ws, out=out)

        ways[f"tilewright, {name}"] = ours
        errors[name] = _error(case, ours(), xv, wv, xs, ws)
        if name == "row":
            flat = xs[:, 0].contiguous(), ws[:, 0].contiguous()
            gpu._add(ways, refused, "torch, row", lambda: _torch(xv, wv, *flat, ends))  # noqa: B023
    # A copy lies as ours does, k contiguous for fp8; bf16 as each of the two takes it.
    gpu._add(ways, refused, "tilewright, bf16", lambda: _plain(x, w, ends, out))
    gpu._add(ways, refused, "torch, bf16", lambda: lambda: torch._grouped_mm(x, w, offs=ends))
    return _recorded(case, ways, refused, {"error": errors})


def _whole(case: Case) -> dict[str, Any]:
    """Of int8: its sums, and scaled to bf16."""
    import torch

    import tilewright

    x = torch.randint(-128, 128, (sum(case.rows), case.k), device="cuda", dtype=torch.int8)
    w = torch.randint(
        -128, 128, (len(case.rows), case.n, case.k), device="cuda", dtype=torch.int8
    ).mT
    of_x = torch.rand(len(x), 1, device="cuda")
    of_w = torch.rand(len(w), 1, case.n, device="cuda")
    ends = torch.tensor(case.rows, device="cuda").cumsum(0).int()
    sums = torch.empty(len(x), case.n, device="cuda", dtype=torch.int32)
    out = torch.empty(len(x), case.n, device="cuda", dtype=torch.bfloat16)
    ways: dict[str, Any] = {
        "tilewright, int32": lambda: tilewright.ragged_matmul(x, w, ends, out=sums),
        "tilewright, bf16": lambda: tilewright.ragged_matmul(
            x, w, ends, scale_a=of_x, scale_b=of_w, out=out
        ),
    }
    refused: dict[str, str] = {}
    ways["tilewright, int32"](), ways["tilewright, bf16"]()
    bounds = [(sum(case.rows[:at]), sum(case.rows[: at + 1])) for at in range(len(case.rows))]
    for group in (0, len(case.rows) - 1):
        begin, end = bounds[group]
        exact = x[begin:end].double() @ w[group].double()
        assert torch.equal(sums[begin:end].double(), exact), "int8 is exact"
        scaled = sums[begin:end].float() * (of_x[begin:end] * of_w[group])
        assert torch.equal(out[begin:end], scaled.bfloat16()), "scaled in float32, rounded once"

    def loop() -> None:
        for group, (begin, end) in enumerate(bounds):
            torch._int_mm(x[begin:end], w[group])

    gpu._add(ways, refused, "torch, int32, a loop", lambda: loop)
    must = INT8 if case.must and case.must > 10 else None
    return _recorded(replace(case, must=must, aim=None), ways, refused, {})


def _torch(x: Any, w: Any, of_x: Any, of_w: Any, ends: Any) -> Any:
    import torch

    if len(w) == 1:
        return lambda: torch._scaled_mm(
            x, w[0], of_x[:, None], of_w, out_dtype=torch.bfloat16, use_fast_accum=True
        )
    return lambda: torch._scaled_grouped_mm(
        x, w, of_x, of_w, offs=ends, out_dtype=torch.bfloat16, use_fast_accum=True
    )


def _plain(x: Any, w: Any, ends: Any, out: Any) -> Any:
    import tilewright

    return lambda: tilewright.ragged_matmul(x, w, ends, out=out)


def _gradients(case: Case) -> dict[str, Any]:
    """Of the weights: rows of a group are k."""
    import torch

    import tilewright

    x, y = (
        torch.randn(sum(case.rows), size, device="cuda", dtype=torch.bfloat16)
        for size in (case.k, case.n)
    )
    ends = torch.tensor(case.rows, device="cuda").cumsum(0).int()
    out = torch.empty(len(case.rows), case.k, case.n, device="cuda", dtype=torch.bfloat16)
    xv, xs, padded = tilewright.quantise_fp8(x, along=0, offsets=ends)
    ways: dict[str, Any] = {}
    refused: dict[str, str] = {}
    for name, kind in (("1x128, 128x1", "1x128"), ("1x128, 128x128", "128x128")):
        yv, ys, _ = tilewright.quantise_fp8(y, along=0, offsets=ends, scale=kind)

        def ours(yv: Any = yv, ys: Any = ys) -> Any:
            return tilewright.ragged_matmul(xv.t(), yv, padded, scale_a=xs.t(), scale_b=ys, out=out)

        ways[f"tilewright, {name}"] = ours
    gpu._add(ways, refused, "tilewright, bf16", lambda: _plain(x.t(), y, ends, out))
    gpu._add(ways, refused, "torch, bf16", lambda: lambda: torch._grouped_mm(x.t(), y, offs=ends))
    return _recorded(case, ways, refused, {})


def _recorded(case: Case, ways: Any, refused: Any, more: dict[str, Any]) -> dict[str, Any]:
    import torch

    rows = gpu._rows(ways, case.flops)
    limits = [
        value if value is None or value < 10 else case.flops / value / 1e9
        for value in (case.must, case.aim)
    ]
    print(f"{case.name}   must {limits[0]} aim {limits[1]}   {more}", flush=True)
    for name, row in sorted(rows.items(), key=lambda item: item[1]["ms"]):
        print(f"    {name:28s} {row['ms']:9.4f} ms {row['tflops']:8.1f} TFLOP/s"
              f" {row['host_us']:7.1f} us host", flush=True)  # fmt: skip
    for name, why in refused.items():
        print(f"    {name:28s} -: {why[:150]}", flush=True)
    torch.cuda.empty_cache()
    head = {"case": case.name, "gflop": case.flops / 1e9, "must_ms": limits[0], "aim_ms": limits[1]}
    return {**head, "ways": rows, "refused": refused, **more}


def _error(case: Case, found: Any, x: Any, w: Any, of_x: Any, of_w: Any) -> float:
    """Of the first group, a few rows: relative to float64's product of what operands stand for."""
    group = max(range(len(case.rows)), key=lambda at: case.rows[at])
    begin = sum(case.rows[:group])
    rows = slice(begin, begin + min(case.rows[group], 300))
    scale = of_x[rows].double().repeat_interleave(128 if of_x.shape[1] > 1 else case.k, 1)
    left = x[rows].double() * scale[:, : case.k]
    scale = of_w[group].double()
    for at, size in ((0, case.k), (1, case.n)):
        if scale.shape[at] != size:
            scale = scale.repeat_interleave(128 if scale.shape[at] > 1 else size, at)
    truth = left @ (w[group].double() * scale[: case.k, : case.n])
    return float((found[rows].double() - truth).norm() / truth.norm())


def _quantising() -> list[dict[str, Any]]:
    import torch

    import tilewright

    x = torch.randn(32768, 7168, device="cuda", dtype=torch.bfloat16)
    ends = torch.arange(1, 65, device="cuda") * 512 - 3
    kinds: dict[str, dict[str, Any]] = {
        "row": {"scale": "row"},
        "1x128": {},
        "128x128": {"scale": "128x128"},
        "1x128, along rows": {"along": 0},
        "128x128, along rows": {"along": 0, "scale": "128x128"},
        "1x128, along rows of groups": {"along": 0, "offsets": ends},
    }
    ways = {name: _quantiser(tilewright, x, options) for name, options in kinds.items()}
    ways["int8, row"] = lambda: tilewright.quantise_int8(x)
    found = []
    for name, ms in gpu._times(ways).items():
        rate = 3 * x.numel() / ms / 1e6
        print(f"    quantise {name:28s} {ms:8.4f} ms {rate:7.0f} GB/s", flush=True)
        found.append({"kind": name, "ms": ms, "gb_s": rate})
    return found


def _quantiser(tilewright: Any, x: Any, options: dict[str, Any]) -> Any:
    return lambda: tilewright.quantise_fp8(x, **options)


if __name__ == "__main__":
    main()
