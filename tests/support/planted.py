"""A made-up kernel with faults planted in its configurations, a worker that has them, and tuners.

    python planted.py worker LOG           answers requests; every candidate asked is a line of LOG
    python planted.py tune KERNEL SECONDS  a tuner of that kernel, in the store that is set

The kernel's time is known, so a test knows the right answer: the least micro_m without a fault.
With PLANTED_HOLDS=3 a worker stands still at its third candidate, until a file `go` lies beside
LOG: what happens meanwhile does not depend on how fast anybody is.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tests.support import made_up
from tilewright import Device
from tilewright.facts.kernel import Axis, Config, Priors, Resources, Step, axis
from tilewright.facts.problem import Problem
from tilewright.tuning.tasks import Task
from tilewright.tuning.trial import Shape
from tilewright.tuning.tuner import Tuner
from tilewright.tuning.workshop import Workshop

DEVICE = made_up.TWO_CORES
PRIORS = Priors(digest="planted")
SHAPES = (Shape(512, 512, 512), Shape(500, 500, 500))
# micro_m 8 is the default; less is faster; `vector` plants the fault of the same number.
SIZES = (8, 6, 5, 4, 3, 2)
HANGS = 2
FAULTS = {
    1: "",
    HANGS: "no answer within",
    3: "the worker died of SIGSEGV",
    4: "wrong numbers",
    5: "out of memory",
    6: "the worker died of SIGKILL",
}


@dataclass(frozen=True)
class Planted:
    """Eight of `SIZES` times seven faults; micro_m 2 is legal on no device."""

    name: str = "planted"
    faults: tuple[int, ...] = (1,)
    unrolls: tuple[int, ...] = (1, 2, 4)

    def why_not(self, problem: Problem, device: Device) -> None:
        return None

    def configs(self, problem: Problem, device: Device) -> tuple[Config, ...]:
        return (Config(micro_m=SIZES[0]),)

    def space(self, problem: Problem, device: Device) -> tuple[Axis, ...]:
        faults, unrolls = axis("vector", *self.faults), axis("unroll", *self.unrolls)
        return (axis("micro_m", *SIZES), faults, unrolls)

    def resources(self, config: Config, problem: Problem) -> Resources:
        return Resources(1, why_not="too small for any device" if config.micro_m == 2 else None)

    def lower(self, problem: Problem, device: Device, config: Config) -> Step:
        return Step(self.name, config, ())


def seconds(config: Mapping[str, int]) -> float:
    """The made-up time: faulty ones would be the fastest."""
    return 1e-3 * config.get("micro_m", 1) / config.get("vector", 1) + 1e-6 * config.get(
        "unroll", 1
    )


def answer(request: Mapping[str, Any], log: Path) -> dict[str, Any]:
    if request["do"] == "hello":
        return {}
    if request["do"] == "duel":
        time.sleep(float(os.environ.get("PLANTED_DUEL_SECONDS", "0")))
        return {"seconds": [seconds(config) for config in request["configs"]]}
    config = request["config"]
    with log.open("a", encoding="utf-8") as file:
        file.write(json.dumps(config, sort_keys=True) + "\n")
    if len(log.read_text(encoding="utf-8").splitlines()) == int(
        os.environ.get("PLANTED_HOLDS", "0")
    ):
        while not (log.parent / "go").exists():
            time.sleep(0.02)
    match config.get("vector", 1):
        case 2:  # HANGS
            time.sleep(600)
        case 3:
            ctypes.string_at(0)
        case 4:
            return {"failure": "wrong numbers: error 1 where 1e-6 is rounding"}
        case 5:
            np.ones(1 << 50)
        case 6:
            os.kill(os.getpid(), signal.SIGKILL)
    return {"seconds": [seconds(config) for _ in request["shapes"]]}


class Near(Workshop):
    """Answers in this process, for candidates that end none."""

    def __init__(self, log: Path) -> None:
        super().__init__()
        self.log = log

    def greet(self, hello: Mapping[str, Any]) -> dict[str, Any]:
        """A worker that is always there."""
        return answer(hello, self.log)

    def ask(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """At once."""
        return answer(request, self.log)


class Patient(Workshop):
    """Waits for a candidate, however busy the machine is, unless it is one that never answers."""

    def ask(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """By the workshop's own timeout for proofs, and what never answers."""
        if request["do"] == "measure" and request["config"].get("vector") != HANGS:
            request = {**request, "timeout": 600.0}
        return super().ask(request)


def command(log: Path) -> tuple[str, ...]:
    return (sys.executable, "-m", "tests.support.planted", "worker", str(log))


def task(kernel: Planted, shape_class: str = "large") -> Task:
    return Task(kernel, shape_class, SHAPES)


def tuner(workshop: Workshop, budget: float, *, resume: bool = False) -> Tuner:
    return Tuner(DEVICE, PRIORS, workshop, budget, resume)


def main() -> None:
    what, name = sys.argv[1], sys.argv[2]
    if what == "worker":
        from tilewright.tuning.worker import serve

        serve(lambda request: answer(request, Path(name)))
        return
    # A suite that `nohup` or a shell's `&` started ignores Ctrl-C, and so would this process.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    log = Path(os.environ["TILEWRIGHT_CACHE"]) / f"{name}-{os.getpid()}.log"
    with Patient(command(log)) as workshop:
        tuner(workshop, float(sys.argv[3])).run([task(Planted(name))])


if __name__ == "__main__":
    main()
