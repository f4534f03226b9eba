"""Proves a tuner's winner: finalists and the default in turns, on several shapes, then stored.

Both sides of every ratio come from the same worker in the same seconds. A configuration is adopted
where it is faster by a margin on average and slower on no shape by more than the medians' noise;
otherwise the default is, and the store says so.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tilewright.facts.device import Device
from tilewright.facts.kernel import Config
from tilewright.planning.tiles import why_not
from tilewright.tuning import store
from tilewright.tuning.tasks import Task
from tilewright.tuning.trial import Shape
from tilewright.tuning.tuned import config_from_json
from tilewright.tuning.workshop import Workshop

ADOPTION = 0.97
NO_LOSS = 1.01
_ROUNDS = 9


@dataclass(frozen=True, slots=True)
class Proved:
    """Who won: seconds of it and of the default on the task's first shape that was run.

    `ratio` is the geometric mean of `ratios`: on each shape its time over the default's.
    """

    config: Config
    ratio: float
    seconds: float
    default_seconds: float
    dueled: tuple[Config, ...]
    ratios: tuple[float, ...]


def prove(
    task: Task,
    configs: Sequence[Config],
    device: Device,
    workshop: Workshop,
    request: Mapping[str, Any],
) -> Proved | None:
    """The winner of `configs`, of which the first is the default.

    Whoever fails on one shape is out: a winner was right, and timed, on all of them. None where the
    default itself could not be timed on some shape, as then nothing is known of the others either.
    """
    rows: list[dict[Config, float]] = []
    able = list(configs)
    for shape in task.shapes:
        problem = shape.problem()
        # What is not legal here leaves this shape to the default, as a look-up does.
        here = [one for one in able if why_not(task.kernel, one, problem, device) is None]
        if configs[0] not in here:
            continue
        found = _duel(shape, here, workshop, request)
        if found is None:
            return None
        rows.append(found)
        able = [one for one in able if one in found or one not in here]
    if not rows:
        return None
    default = configs[0]
    ratios = {one: tuple(row.get(one, row[default]) / row[default] for row in rows) for one in able}
    means = {one: math.prod(row) ** (1 / len(row)) for one, row in ratios.items()}
    winners = [one for one in able if max(ratios[one]) <= NO_LOSS and means[one] <= ADOPTION]
    best = min(winners, key=lambda one: means[one], default=default)
    seconds = rows[0].get(best, rows[0][default])
    return Proved(best, means[best], seconds, rows[0][default], tuple(configs), ratios[best])


def _duel(
    shape: Shape, configs: Sequence[Config], workshop: Workshop, request: Mapping[str, Any]
) -> dict[Config, float] | None:
    """Seconds of those that are right and alive on a shape; None where the first is not."""

    def ask(some: Sequence[Config]) -> dict[Config, float] | None:
        # The timeout is one candidate's; here are several, for as long as the request lets them.
        timeout = len(some) * workshop.timeout + request["seconds"]
        documents = [config.changed for config in some]
        duel = {"shapes": [shape.as_dict()], "configs": documents, "rounds": _ROUNDS}
        answer = workshop.ask({**request, **duel, "timeout": timeout})
        if "seconds" not in answer:
            return None
        return dict(zip(some, map(float, answer["seconds"]), strict=True))

    found = ask(configs)
    if found is not None:
        return found
    # Somebody of them fails, and who does may take the worker along: each alone with the default.
    default, *others = configs
    alive = [one for one in others if ask([default, one]) is not None]
    return ask([default, *alive]) or ask([default])


def keep(found: Proved, task: Task, name: str, head: Mapping[str, str]) -> None:
    """Store the winner, unless a better one that took no part was stored meanwhile."""
    record = {
        "config": found.config.changed,
        "ratio": found.ratio,
        "ratios": list(found.ratios),
        "seconds": found.seconds,
        "default_seconds": found.default_seconds,
        "shape": task.shapes[0].as_dict(),
    }

    def change(content: dict[str, Any]) -> dict[str, Any]:
        stored = content.get("records")
        records = dict(stored) if isinstance(stored, dict) else {}
        if not _outlives(records.get(task.record), found):
            records[task.record] = record
        return {**head, "records": records}

    store.update(store.TUNED, name, change)


def _outlives(current: Any, found: Proved) -> bool:
    try:
        config = config_from_json(current["config"])
        return config not in found.dueled and float(current["ratio"]) < found.ratio
    except (KeyError, TypeError, ValueError):
        return False
