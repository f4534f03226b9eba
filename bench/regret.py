"""Regret: what `matmul` picks beside the best that could be picked, on shapes never tuned for.

    python -m bench.regret [--device opencl:intel] [--output FILE.json]

For each of 60 held-out shapes (seed below; none is a shape that the tuner or the probe uses): every
kernel in its default and its tuned configuration, and NumPy's BLAS, in turns; least seconds. Two
columns: operands of the host, where the host is a choice, and operands of the device, where it is
none. `regret` is the picked one's time over the best one's; the suite holds where it is at most
1.05. Shapes where it is more are visited again, what takes least of all visits counts. Writes
bench/results/regret-DEVICE.json.
"""

from __future__ import annotations

import math
import statistics
import time
from typing import Any

import numpy as np

from bench.command import measure
from bench.timing import REST
from tilewright import Device
from tilewright.calls.dense_plan_host import plan_problem
from tilewright.engines.dense import plan_kernel
from tilewright.facts.kernel import Plan
from tilewright.inputs.devices import backend_of
from tilewright.tuning import crossover, tuned
from tilewright.tuning.trial import Shape, Trial

COUNT = 60
CLOSE = 1.05
_SEED = 20
_SECONDS = 0.8  # a shape
_HOPELESS = 2.0  # a choice this many times slower than the best is not run again
# Nor is one run at all whose best rate on the shapes before would be so much too slow here.
_OUT_OF_REACH = 4.0
# How often shapes whose regret is more are visited again: on a machine that is a part of a larger
# one NumPy's two threads waited for each other for milliseconds, of another shape in every run.
_AGAIN = 2
HOST = "host"
COLUMNS = ("host", "device")
_best_rates: dict[str, float] = {}


def shapes() -> list[Shape]:
    """A third near squares, a third with a narrow side, a third of any sides; logarithmic draws."""
    generator = np.random.default_rng(_SEED)

    def side(low: int, high: int) -> int:
        return int(np.exp(generator.uniform(np.log(low), np.log(high))))

    found = []
    for index in range(COUNT):
        if index % 3 == 0:
            middle = side(40, 1400)
            sides = [side(max(1, int(middle / 1.3)), int(middle * 1.3)) for _ in range(3)]
        elif index % 3 == 1:
            sides = [side(1, 64), side(256, 2048), side(256, 2048)]
            generator.shuffle(sides)
        else:
            sides = [side(8, 1500) for _ in range(3)]
        found.append(Shape(sides[0], sides[1], sides[2]))
    return found


def figures(device: Device) -> dict[str, Any]:
    """Everything that the result holds besides where it came from."""
    backend = backend_of(device)
    crossover.measured(device, backend, "float32", backend.priors(device))
    rows = []
    for shape in shapes():
        row = _shape(shape, device)
        rows.append(row)
        print(_line(row), flush=True)
    for _ in range(_AGAIN):
        for row in rows:
            if any(row[column]["regret"] > CLOSE for column in COLUMNS):
                _visited_again(row, device)
    result: dict[str, Any] = {"close": CLOSE, "shapes": rows}
    for column in COLUMNS:
        regrets = [row[column]["regret"] for row in rows]
        result[column] = {
            "within": sum(regret <= CLOSE for regret in regrets) / len(regrets),
            "mean": math.prod(regrets) ** (1 / len(regrets)),
            "median": statistics.median(regrets),
            "worst": max(regrets),
        }
        print(f"{column} operands: {result[column]}")
    return result


def _visited_again(row: dict[str, Any], device: Device) -> None:
    """Its choices in turns once more, the least seconds of all visits kept."""
    found = _shape(Shape(row["m"], row["n"], row["k"]), device)
    seconds = {
        name: min(spent, found["seconds"].get(name, spent))
        for name, spent in row["seconds"].items()
    }
    row.update(seconds=seconds, visits=row.get("visits", 1) + 1)
    for column in COLUMNS:
        row[column] = _judged(seconds, row[column]["picked"], column)
    print(f"again {_line(row)}", flush=True)


def _judged(seconds: dict[str, float], picked: str, column: str) -> dict[str, Any]:
    able = {name: s for name, s in seconds.items() if column == "host" or name != HOST}
    best = min(able, key=lambda name: able[name])
    return {"picked": picked, "best": best, "regret": able[picked] / able[best]}


def _shape(shape: Shape, device: Device) -> dict[str, Any]:
    trial = Trial(shape, device, backend_of(device))
    choices = _choices(trial, device)
    picked = {
        "host": _label(plan_problem(trial.problem, device, host_operands=True)),
        "device": _label(plan_problem(trial.problem, device, host_operands=False)),
    }
    seconds = _in_turns(choices, trial, set(picked.values()))
    row: dict[str, Any] = {
        "m": shape.m,
        "n": shape.n,
        "k": shape.k,
        "seconds": seconds,
    }
    for column, own in picked.items():
        row[column] = _judged(seconds, own, column)
    return row


def _choices(trial: Trial, device: Device) -> dict[str, Plan | None]:
    """Every kernel with its default and its tuned configuration; None is NumPy's BLAS."""
    backend = backend_of(device)
    priors = backend.priors(device)
    known = crossover.measured(device, backend, "float32", priors)
    kernels = backend.kernels(device)
    found = tuned.lookup(trial.problem, device, kernels, priors, known.boundaries)
    plans: dict[str, Plan | None] = {HOST: None}
    for kernel in sorted(kernels, key=lambda kernel: kernel.name not in priors.kernels):
        for better in (None, found.get(kernel.name)):
            plan = plan_kernel(trial.problem, device, kernel, tuned=better)
            plans[_label(plan)] = plan
    return plans


def _label(plan: Plan) -> str:
    return HOST if plan.kernel == HOST else f"{plan.kernel}: {plan.step.config}"


def _in_turns(choices: dict[str, Plan | None], trial: Trial, picked: set[str]) -> dict[str, float]:
    """Least seconds of each; the host in blocks with a rest, as its threads keep spinning."""

    def once(name: str) -> float:
        plan = choices[name]
        return trial.host_seconds() if plan is None else trial.seconds(plan)

    best: dict[str, float] = {}
    for name in choices:
        rate = _best_rates.get(name.partition(":")[0], math.inf)
        if (
            best
            and name not in picked
            and trial.shape.flops / rate > _OUT_OF_REACH * min(best.values())
        ):
            continue
        # Neither side's threads sleep at once after a product: rested, each has the cores alone.
        time.sleep(REST if name == HOST or len(best) == 1 else 0.0)
        once(name)
        best[name] = min(once(name) for _ in range(3 if name == HOST else 1))
    for name, seconds in best.items():
        kernel = name.partition(":")[0]
        _best_rates[kernel] = max(_best_rates.get(kernel, 0.0), trial.shape.flops / seconds)
    began = time.perf_counter()
    while time.perf_counter() - began < _SECONDS:
        least = min(best.values())
        device_least = min(value for name, value in best.items() if name != HOST)
        for name in best:
            limit = _HOPELESS * (least if name == HOST else device_least)
            if best[name] > limit and name != HOST:
                continue
            if name == HOST:
                time.sleep(REST)
            runs = max(2, min(8, int(0.004 / best[name])))
            best[name] = min(best[name], *(once(name) for _ in range(runs + 1)))
            if name == HOST:
                time.sleep(REST)
    return best


def _line(row: dict[str, Any]) -> str:
    sides = f"{row['m']:5} x {row['n']:5} x {row['k']:5}"
    columns = "   ".join(
        f"{column} {row[column]['regret']:.3f} {row[column]['picked'].split(':')[0]}"
        f" (best {row[column]['best'].split(':')[0]})"
        for column in ("host", "device")
    )
    return f"{sides}   {columns}"


if __name__ == "__main__":
    measure("regret", __doc__, figures)
