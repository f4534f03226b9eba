"""Tuned beside untuned, in turns: every kernel of the ladder over the dense suite's sizes.

    tilewright tune --device opencl:intel --budget 600
    python -m bench.tune [--device opencl:intel] [--output FILE.json]

For each kernel: seconds of its default and of its tuned configuration at every size that its
default does in LONGEST seconds, their ratio, and where the tuned one came from. Where the default
won its proof the ratio is 1 by definition and counts so; a kernel that was never tuned is left out.
Writes bench/results/tune-DEVICE.json.
"""

from __future__ import annotations

import math
import time
from typing import Any

from bench.command import measure
from tilewright import Device
from tilewright.engines.dense import plan_kernel
from tilewright.facts.kernel import Config, Kernel, Plan
from tilewright.inputs.devices import backend_of
from tilewright.planning.classes import UNMEASURED, Boundaries
from tilewright.tuning import crossover, tuned
from tilewright.tuning.trial import Shape, Trial

SIZES = (64, 128, 192, 256, 320, 384, 512, 640, 768, 1000, 1024, 1280, 1536, 2048)
LONGEST = 0.12
_BUDGET = 80.0


def figures(device: Device) -> dict[str, Any]:
    """Everything that the result holds besides where it came from."""
    backend = backend_of(device)
    known = crossover.known(device, backend, "float32", backend.priors(device))
    boundaries = known.boundaries if known is not None else UNMEASURED
    trials = {size: Trial(Shape(size, size, size), device, backend) for size in SIZES}
    problem = trials[SIZES[-1]].problem
    found = tuned.lookup(
        problem, device, backend.kernels(device), backend.priors(device), boundaries
    )
    kernels = [kernel for kernel in backend.kernels(device) if kernel.name in found]
    if not kernels:
        raise SystemExit(f"{device.id}: nothing was tuned; run `tilewright tune` first")
    rows = []
    for kernel in kernels:
        rows.append(_kernel(kernel, device, boundaries, trials, _BUDGET / len(kernels)))
        print(_line(rows[-1]), flush=True)
    means = [row["faster"] for row in rows]
    result = {
        "kernels": rows,
        "faster": math.prod(means) ** (1 / len(means)),
        "slowest_ratio": min(size["faster"] for row in rows for size in row["sizes"]),
    }
    print(f"geometric mean {result['faster']:.2f}x, worst shape {result['slowest_ratio']:.3f}x")
    return result


def _kernel(
    kernel: Kernel,
    device: Device,
    boundaries: Boundaries,
    trials: dict[int, Trial],
    budget: float,
) -> dict[str, Any]:
    sizes: list[dict[str, Any]] = []
    began = time.perf_counter()
    for size, trial in trials.items():
        default, better = _plans(kernel, device, boundaries, trial)
        trial.seconds(default)
        first = trial.seconds(default)
        if first > LONGEST or time.perf_counter() - began > budget:
            break
        same = default.step.config == better.step.config
        seconds = _in_turns((default,) if same else (default, better), trial, first)
        sizes.append(
            {
                "size": size,
                "seconds": {"default": seconds[0], "tuned": seconds[-1]},
                "faster": seconds[0] / seconds[-1],
                "gflops": {
                    "default": 2 * size**3 / seconds[0] / 1e9,
                    "tuned": 2 * size**3 / seconds[-1] / 1e9,
                },
                "configuration": _settings(better.step.config),
                "origin": better.origin,
            }
        )
    ratios = [row["faster"] for row in sizes]
    return {
        "kernel": kernel.name,
        "sizes": sizes,
        "faster": math.prod(ratios) ** (1 / max(1, len(ratios))),
    }


def _plans(
    kernel: Kernel, device: Device, boundaries: Boundaries, trial: Trial
) -> tuple[Plan, Plan]:
    """The default plan and the one that `matmul(kernel=...)` follows."""
    backend = backend_of(device)
    found = tuned.lookup(trial.problem, device, (kernel,), backend.priors(device), boundaries)
    default = plan_kernel(trial.problem, device, kernel)
    return default, plan_kernel(trial.problem, device, kernel, tuned=found.get(kernel.name))


def _in_turns(plans: tuple[Plan, ...], trial: Trial, first: float) -> list[float]:
    """Least seconds of each plan over rounds in turns: noise only ever adds, to both alike."""
    rounds = max(4, min(25, int(0.4 / max(first, 1e-6))))
    best = [math.inf for _ in plans]
    for plan in plans:
        trial.seconds(plan)
    for turn in range(rounds):
        order = range(len(plans)) if turn % 2 == 0 else reversed(range(len(plans)))
        for index in order:
            best[index] = min(best[index], *(trial.seconds(plans[index]) for _ in range(2)))
    return best


def _settings(config: Config) -> dict[str, int]:
    return config.changed


def _line(row: dict[str, Any]) -> str:
    sizes = "  ".join(f"{size['size']}:{size['faster']:.2f}" for size in row["sizes"])
    return f"{row['kernel']:10} {row['faster']:.2f}x   {sizes}"


if __name__ == "__main__":
    measure("tune", __doc__, figures)
