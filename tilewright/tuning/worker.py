"""The worker process of the tuner: builds, checks and times; one JSON line each way.

    {"do": "measure", "device": .., "kernel": .., "config": {..}, "shapes": [..], "cutoffs": [s]}
        -> {"seconds": [s, one a shape, fewer past a cutoff]} | {"failure": "why"}
    {"do": "duel", ..., "configs": [{..}, {..}], "rounds": n, "seconds": limit}
        -> {"seconds": [s, one a configuration, on the first shape]} | {"failure": "why"}
    {"do": "hello", "device": ..}
        -> {"device": "its name"} | {"failure": "why"}

It may crash, hang or be killed at any line: it holds nothing that the tuner does not. A hang that
outlives the tuner ends by the timeout of the request, even inside a driver.
"""

from __future__ import annotations

import contextlib
import faulthandler
import json
import math
import os
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from tilewright.backends import backends
from tilewright.engines.backend import Backend
from tilewright.engines.dense import plan_kernel
from tilewright.errors import DeviceError, TilewrightError
from tilewright.facts.device import Device
from tilewright.facts.kernel import Kernel, Plan
from tilewright.planning.tiles import why_not
from tilewright.remember import Shelf
from tilewright.tuning.trial import Shape, Trial
from tilewright.tuning.tuned import config_from_json
from tilewright.wording import in_one_line

Answer = Callable[[Mapping[str, Any]], dict[str, Any]]
# A few runs for a product of a millisecond, fewer for slow ones.
_REPEATS = (3, 12)
_BLOCK_SECONDS = 0.03
# Those of one task are asked for again by every candidate: a dozen of 2048 x 2048 fit.
_trials: Shelf[tuple[Shape, Device, Backend], Trial] = Shelf("trials of the tuner", most=2 << 30)
# Edges of every tile in one small product: any prime beyond the largest micro-tile would do.
_RAGGED = (67, 131, 53)


def main() -> None:
    """Answer requests from stdin until it ends."""
    serve(answer)


def serve(answer: Answer) -> None:
    """Answer requests with `answer`. Whatever drivers print goes to stderr, not between answers."""
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    _die_first()
    for line in sys.stdin:
        request = json.loads(line)
        faulthandler.dump_traceback_later(request.get("timeout", 60.0) + 5.0, exit=True)
        print(json.dumps(_guarded(answer, request)), file=replies, flush=True)
        faulthandler.cancel_dump_traceback_later()


def answer(request: Mapping[str, Any]) -> dict[str, Any]:
    """Do what a request says."""
    device, backend = _device(request["backend"], request["device"])
    if request["do"] == "hello":
        return {"device": device.name}
    kernel = _kernel(request["kernel"], device, backend)
    shapes = [Shape(**shape) for shape in request["shapes"]]
    trials = [_trial(shape, device, backend) for shape in shapes]
    if request["do"] == "duel":
        return dueled(request["configs"], kernel, trials[0], request["rounds"], request["seconds"])
    ragged = _trial(replace(shapes[0], m=_RAGGED[0], n=_RAGGED[1], k=_RAGGED[2]), device, backend)
    return measured(request["config"], kernel, trials, ragged, request["cutoffs"])


def measured(
    config: Mapping[str, Any],
    kernel: Kernel,
    trials: Sequence[Trial],
    ragged: Trial,
    cutoffs: Sequence[float],
) -> dict[str, Any]:
    """Seconds of a candidate that is right on every trial, or why it is not.

    Past one of `cutoffs` (one a trial, or none at all) it is hopeless, and the rest is left out.
    """
    wrong = ragged.wrong(_plan(config, kernel, ragged))
    found: list[float] = []
    for index, trial in enumerate(trials):
        cutoff = cutoffs[index] if index < len(cutoffs) else math.inf
        plan = _plan(config, kernel, trial)
        wrong = wrong or trial.wrong(plan)
        if wrong:
            return {"failure": wrong}
        found.append(_least(plan, trial, cutoff))
        if found[-1] > cutoff:
            break
    return {"seconds": found}


def dueled(
    configs: Sequence[Mapping[str, Any]],
    kernel: Kernel,
    trial: Trial,
    rounds: int,
    limit: float,
) -> dict[str, Any]:
    """Seconds of candidates in turns, or why one of them has none: on this shape it is wrong."""
    plans = [_plan(config, kernel, trial) for config in configs]
    for plan in plans:
        wrong = trial.wrong(plan)
        if wrong:
            return {"failure": wrong}
    return {"seconds": _duel(plans, trial, rounds, limit)}


def _guarded(answer: Answer, request: Mapping[str, Any]) -> dict[str, Any]:
    """The answer, or why there is none: whatever one candidate does, the next has its turn."""
    try:
        return answer(request)
    except MemoryError as error:  # a device's too: DeviceMemoryError is one
        return {"failure": f"out of memory: {in_one_line(error, 200)}"}
    except TilewrightError as error:
        return {"failure": in_one_line(error, 200)}
    except Exception as error:
        return {"failure": f"{type(error).__name__}: {in_one_line(error, 200)}"}


def _device(backend_name: str, key: str) -> tuple[Device, Backend]:
    backend = backends()[backend_name]
    for device in backend.devices():
        if f"{device.id}|{device.key}" == key:
            return device, backend
    raise DeviceError(f"device={key!r}: the worker's process does not find it")


def _kernel(name: str, device: Device, backend: Backend) -> Kernel:
    return next(kernel for kernel in backend.kernels(device) if kernel.name == name)


def _trial(shape: Shape, device: Device, backend: Backend) -> Trial:
    return _trials.found(
        (shape, device, backend),
        lambda: Trial(shape, device, backend).ready(),
        lambda trial: trial.bytes,
    )


def _plan(document: Mapping[str, Any], kernel: Kernel, trial: Trial) -> Plan:
    config = config_from_json(document)
    why = why_not(kernel, config, trial.problem, trial.device)
    if why is not None:
        raise DeviceError(f"kernel={kernel.name!r}: {why}")
    return plan_kernel(trial.problem, trial.device, kernel, config)


def _least(plan: Plan, trial: Trial, cutoff: float) -> float:
    """The least seconds of a few runs; of one where it is beyond `cutoff`, hopeless."""
    first = trial.seconds(plan)
    if first > cutoff:
        return first
    fewest, most = _REPEATS
    repeats = int(min(max(_BLOCK_SECONDS / max(first, 1e-6), fewest), most))
    return min(first, *(trial.seconds(plan) for _ in range(repeats)))


def _duel(plans: list[Plan], trial: Trial, rounds: int, limit: float) -> list[float]:
    """Median seconds of each plan, all in turns: what slows the machine down slows all.

    As many rounds, or three where more would take longer than `limit` seconds.
    """
    times: list[list[float]] = [[] for _ in plans]
    firsts = [trial.seconds(plan) for plan in plans]
    runs = 3 if max(firsts) < _BLOCK_SECONDS else 1
    began = time.perf_counter()
    for turn in range(rounds):
        if turn >= 3 and time.perf_counter() - began > limit:
            break
        order = range(len(plans)) if turn % 2 == 0 else reversed(range(len(plans)))
        for index in order:
            times[index].append(min(trial.seconds(plans[index]) for _ in range(runs)))
    return [statistics.median(values) for values in times]


def _die_first() -> None:
    """Where memory runs out, this process is the one to lose (Linux; elsewhere nothing)."""
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000", encoding="utf-8")


if __name__ == "__main__":
    main()
