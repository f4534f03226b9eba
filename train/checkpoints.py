"""Checkpoints: a run's task, what its steps need to go on, and the averaged net, in one file."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from train.steps import Steps


def write(
    path: Path, task: dict[str, Any], steps: Steps, seconds: float, extra: dict[str, Any]
) -> None:
    """A whole file or the one that was there before."""
    beside = path.with_suffix(".part")
    kept = {"task": task, "steps": steps.state(), "seconds": seconds, **extra}
    torch.save(kept, beside)
    os.replace(beside, path)


def read(path: Path, task: dict[str, Any] | None = None) -> dict[str, Any]:
    """What `write` wrote, in the host's memory.

    Raises ValueError where it is of another task.
    """
    kept: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
    if task is not None and kept["task"] != task:
        other = [f"{k}={v!r}" for k, v in kept["task"].items() if task.get(k) != v]
        raise ValueError(f"{path} is of another run: {', '.join(other)}; name another --out")
    return kept


def net(path: Path) -> list[Tensor]:
    """Weights and biases of the plain net, averaged over the last steps."""
    return list(read(path)["steps"]["averages"])


def spent(kept: dict[str, Any]) -> dict[str, float]:
    """Steps and seconds of a run and of those that it began from, and what was largest in them.

    How many runs they are, their largest rate, and the largest share of a teacher.
    """
    nothing = {"steps": 0, "seconds": 0.0, "runs": 0, "rate": 0.0, "taught": 0.0}
    before = nothing | kept.get("before", {})
    task = kept["task"]
    return {
        "steps": before["steps"] + kept["steps"]["done"],
        "seconds": before["seconds"] + kept["seconds"],
        "runs": before["runs"] + 1,
        "rate": max(before["rate"], task["rate"]),
        "taught": max(before["taught"], task["taught"]),
    }
