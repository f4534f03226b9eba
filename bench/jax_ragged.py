"""Rows of experts under jax.jit on a GPU: tilewright.jax.ragged_dot beside jax.lax.ragged_dot.

    python -m bench.jax_ragged --name h200      bench/results/jax-ragged-h200.json

Milliseconds are of the host's clock, medians of interleaved rounds: `ms` of a call of a compiled
program and the wait for its results, `queued_ms` of a call of several that are waited for together,
as the steps of a program are. Nobody sleeps between calls: after 10 ms of sleep `x + 1` under jit
took an H200's host 0.5 ms, and 0.07 without. bf16, sizes drawn from a multinomial; `step` is the
product with both gradients. `apart` is the largest distance of the two ways' results, over the
largest one.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from bench.environment import RESULTS, environment

ROUNDS = 9
QUEUED = 8  # calls


@dataclass(frozen=True)
class Case:
    """Tokens times experts a token are `rows`."""

    name: str
    rows: int
    k: int
    n: int
    groups: int


CASES = (
    Case("Qwen3-30B-A3B, 128 experts", 8192, 2048, 1536, 128),
    Case("OLMoE, 64 experts", 16384, 2048, 2048, 64),
    Case("Mixtral 8x7B, 8 experts", 8192, 4096, 14336, 8),
)


def main() -> None:
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    from importlib.metadata import version

    from tilewright.inputs.devices import resolve

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--name", required=True)
    parser.add_argument("--output", type=Path, default=RESULTS)
    options = parser.parse_args()
    document: dict[str, Any] = {"environment": environment(resolve("cuda:0"))}
    document["environment"]["versions"]["jax"] = version("jax")
    document["cases"] = [_measured(case) for case in CASES]
    path = options.output / f"jax-ragged-{options.name}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(document, indent=1) + "\n")
    print(f"written: {path}")


def _measured(case: Case) -> dict[str, Any]:
    import jax
    import jax.numpy as jnp

    from tilewright.jax import ragged_dot

    keys = jax.random.split(jax.random.key(0), 3)
    x = jax.random.normal(keys[0], (case.rows, case.k), jnp.bfloat16)
    w = jax.random.normal(keys[1], (case.groups, case.k, case.n), jnp.bfloat16)
    pull = jax.random.normal(keys[2], (case.rows, case.n), jnp.bfloat16)
    even = np.full(case.groups, 1 / case.groups)
    sizes = jnp.array(np.random.default_rng(0).multinomial(case.rows, even), jnp.int32)
    ways = {"tilewright": ragged_dot, "jax.lax.ragged_dot": jax.lax.ragged_dot}
    record: dict[str, Any] = {**asdict(case), "gflop": 2e-9 * case.rows * case.k * case.n}
    for kind, made in (("forward", _forward), ("step", _step)):
        calls: dict[str, Any] = {}
        first, results = {}, []
        for way, dot in ways.items():
            program, begun = jax.jit(made(dot)), time.perf_counter()
            results.append(jax.block_until_ready(program(x, w, sizes, pull)))
            first[way] = 1e3 * (time.perf_counter() - begun)
            calls[way] = lambda program=program: program(x, w, sizes, pull)
        found, queued = _times(calls, 1), _times(calls, QUEUED)
        record[kind] = {
            way: {"ms": found[way], "queued_ms": queued[way], "first_ms": first[way]}
            for way in ways
        }
        record[kind]["apart"] = _apart(*results)
        del results
        print(f"{case.name}: {kind} {record[kind]}", flush=True)
    return record


def _forward(dot: Any) -> Callable[..., Any]:
    return lambda x, w, sizes, pull: [dot(x, w, sizes)]


def _step(dot: Any) -> Callable[..., Any]:
    import jax

    def step(x: Any, w: Any, sizes: Any, pull: Any) -> Any:
        out, back = jax.vjp(lambda x, w: dot(x, w, sizes), x, w)
        return [out, *back(pull)]

    return step


def _times(calls: dict[str, Callable[[], Any]], count: int) -> dict[str, float]:
    """Milliseconds of a call of `count` that are waited for together; two runs of a way a round."""
    import jax

    found: dict[str, list[float]] = {way: [] for way in calls}
    for _ in range(ROUNDS):
        for way, call in calls.items():
            for _ in range(2):
                begun = time.perf_counter()
                jax.block_until_ready([call() for _ in range(count)])
                found[way].append(1e3 * (time.perf_counter() - begun) / count)
    return {way: statistics.median(values) for way, values in found.items()}


def _apart(ours: Any, theirs: Any) -> float:
    import jax.numpy as jnp

    pairs = zip(ours, theirs, strict=True)
    wide = [(x.astype(jnp.float32), y.astype(jnp.float32)) for x, y in pairs]
    return max(float(abs(x - y).max() / abs(y).max()) for x, y in wide)


if __name__ == "__main__":
    main()
