"""Host time of plain calls: what the caller waits for, not what the device takes.

    python -m bench.host_time --name h200      # a CUDA GPU; bench/results/host_time-h200.json
    python -m bench.host_time --name cpu       # the host (host_time_cpu.py has its calls)

A call of ours stands beside torch's for the same operands, in the same run: the two take turns, and
medians count, since a host's mood changes both alike. Results are fresh at each call, as users
write it. Between turns the device is waited for, so that no queue is full. On the host least times
count: its calls are short enough to meet a moment without other work.
"""

from __future__ import annotations

import argparse
import itertools
import json
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np

import tilewright as tw
from bench import host_time_cpu
from bench.environment import RESULTS, environment
from bench.host_rows import Row, at_most, loop_of, times, within

US = 1e6


def lists(count: int, seed: int) -> tuple[list[Any], list[Any]]:
    """Pairs of matrices of 1 to 64 rows and columns."""
    import torch

    sizes = np.random.default_rng(seed).integers(1, 65, (count, 3)).tolist()
    a = [torch.randn(m, k, device="cuda") for m, _, k in sizes]
    return a, [torch.randn(k, n, device="cuda") for _, n, k in sizes]


def rows() -> Iterator[Row]:
    """The cases, plain products first."""
    import torch

    def drawn(*shape: int, dtype: Any = torch.float32) -> Any:
        return torch.randn(*shape, device="cuda", dtype=torch.float32).to(dtype)

    for name, dtype, side, precision in (
        ("fp32", torch.float32, 1024, None),
        ("fp16", torch.float16, 1024, None),
        ("bf16", torch.bfloat16, 1024, None),
        ("fp32x", torch.float32, 1024, "fp32x"),
        ("fp32, 333", torch.float32, 333, None),
        ("fp16, 333", torch.float16, 333, None),
    ):
        a, b = drawn(side, side, dtype=dtype), drawn(side, side, dtype=dtype)
        yield Row(
            f"matmul {name}",
            partial(tw.matmul, a, b, precision=precision),
            partial(torch.mm, a, b),
            "torch.mm",
            within(10e-6),
            100,
        )
    many = drawn(200_000, 16, 16, dtype=torch.bfloat16)
    yield Row(
        "matmul [200000, 16, 16] bf16",
        lambda: tw.matmul(many, many),
        lambda: torch.bmm(many, many),
        "torch.bmm",
        within(50e-6),
        4,
    )
    a, b = lists(1000, 0)
    loop = loop_of(a, b)
    yield Row(
        "1000 pairs", lambda: tw.grouped_matmul(a, b), loop, "loop of torch.mm", at_most(1.5e-3), 3
    )
    fresh = iter([lists(1000, seed) for seed in range(1, 40)])
    yield Row(
        "1000 pairs, sizes never seen",
        lambda: tw.grouped_matmul(*next(fresh)),
        loop,
        "loop of torch.mm",
        at_most(3e-3),
        1,
    )
    yield from _differentiated(*lists(32, 40))
    yield from _of_groups()


def _differentiated(a: list[Any], b: list[Any]) -> Iterator[Row]:
    """Products of a list, and the gradients of both operands."""
    import torch

    for one in (*a, *b):
        one.requires_grad_()
    pulls = [torch.ones(len(x), y.shape[1], device="cuda") for x, y in zip(a, b, strict=True)]

    def step(multiply: Callable[[], Any]) -> None:
        torch.autograd.grad(tuple(multiply()), (*a, *b), pulls)

    ours = partial(step, lambda: tw.grouped_matmul(a, b))
    theirs = partial(step, loop_of(a, b))
    yield Row("32 pairs, with gradients", ours, theirs, "loop of torch.mm", times(1), 3)


def _of_groups() -> Iterator[Row]:
    """Rows of groups: a batch of another size at each call, and very many groups, waited for."""
    import torch

    x = torch.randn(9000, 1024, device="cuda").bfloat16()
    w = torch.randn(8, 1024, 1024, device="cuda").bfloat16()
    ends = torch.tensor([500] * 8, device="cuda").cumsum(0).int()
    ours, theirs = (itertools.cycle(range(4200, 9000, 16)) for _ in range(2))
    yield Row(
        "ragged_matmul, rows that change",
        lambda: tw.ragged_matmul(x[: next(ours)], w, ends),
        lambda: torch._grouped_mm(x[: next(theirs)], w, offs=ends),
        "torch._grouped_mm",
        at_most(60e-6),
        20,
    )
    rows = torch.randn(800_000, 16, device="cuda").half()
    matrices = torch.randn(200_000, 16, 16, device="cuda").half()
    few = torch.arange(4, 800_001, 4, device="cuda", dtype=torch.int32)

    def waited(call: Callable[[], Any]) -> None:
        call()
        torch.cuda.synchronize()

    yield Row(
        "ragged_matmul, 200,000 groups",
        partial(waited, lambda: tw.ragged_matmul(rows, matrices, few)),
        partial(waited, lambda: torch.bmm(rows.view(200_000, 4, 16), matrices)),
        "torch.bmm",
        at_most(1e-3),
        4,
    )


def measured(
    row: Row, turns: int, wait: Callable[[], Any], of: Callable[[Sequence[float]], float]
) -> tuple[float, float]:
    """Median (or least) seconds of a call, ours and the other, in turns."""

    def seconds(call: Callable[[], Any]) -> float:
        wait()
        begun = time.perf_counter()
        for _ in range(row.calls):
            call()
        return (time.perf_counter() - begun) / row.calls

    for call in (row.ours, row.theirs, row.ours):
        call()
    pairs = [(seconds(row.ours), seconds(row.theirs)) for _ in range(turns)]
    ours, theirs = (of(column) for column in zip(*pairs, strict=True))
    return ours, theirs


_How = tuple[Callable[[], Iterator[Row]], Callable[[], Any], Callable[..., float]]


def _on_gpu() -> _How:
    import torch

    return rows, torch.cuda.synchronize, statistics.median


def _on_host() -> _How:
    return host_time_cpu.rows, lambda: None, min


def main() -> int:
    """Measure, print a table and write the JSON; 1 where something took longer than it may."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--name", required=True, help="of the machine, for the file of results")
    parser.add_argument("--turns", type=int, default=15, help="of each pair of calls")
    options = parser.parse_args()
    found: list[dict[str, Any]] = []
    cases, wait, of = _on_host() if options.name == "cpu" else _on_gpu()
    measured(next(cases()), options.turns, wait, of)  # a process's first take up to twice as long
    print(f"{'host time of a call':32s} {'ours':>9s} {'theirs':>9s} {'at most':>9s}  us")
    for row in cases():
        ours, theirs = measured(row, options.turns, wait, of)
        most = row.most(theirs)
        found.append(
            {
                "name": row.name,
                "ours_us": round(ours * US, 2),
                "torch_us": round(theirs * US, 2),
                "torch_is": row.beside,
                "at_most_us": round(most * US, 2),
            }
        )
        numbers = " ".join(f"{seconds * US:9.1f}" for seconds in (ours, theirs, most))
        print(f"{row.name:32s} {numbers}  {'ok' if ours <= most else 'LONGER'}", flush=True)
    device = next(one for one in tw.devices() if options.name != "cpu" or one.backend == "host")
    document = {"environment": environment(device), "turns": options.turns, "rows": found}
    path = RESULTS / f"host_time-{options.name}.json"
    path.write_text(json.dumps(document, indent=1) + "\n")
    return 0 if all(row["ours_us"] <= row["at_most_us"] for row in found) else 1


if __name__ == "__main__":
    sys.exit(main())
