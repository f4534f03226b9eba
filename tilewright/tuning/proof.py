"""The proof: finalists and the default in turns on several shapes, and what is kept of it.

Both sides of every ratio come from the same worker in the same seconds. A configuration is adopted
where it is faster by a margin on average and slower on no shape by more than the medians' noise;
otherwise the default is, and the store says so.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tilewright.device import Device
from tilewright.kernel import Config
from tilewright.planning.tiles import why_illegal
from tilewright.tuning import store
from tilewright.tuning.tasks import Task
from tilewright.tuning.tuned import config_from_json, config_to_json
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
    """The winner of `configs`, of which the first is the default; None where none could run."""
    rows = []
    # The timeout is one candidate's; here are several, for as long as the request lets them.
    timeout = len(configs) * workshop.timeout + request["seconds"]
    for shape in task.shapes:
        problem = shape.problem()
        if any(why_illegal(task.kernel, one, problem, device) is not None for one in configs):
            continue
        documents = [config_to_json(config) for config in configs]
        duel = {"shapes": [shape.as_dict()], "configs": documents, "rounds": _ROUNDS}
        answer = workshop.ask({**request, **duel, "timeout": timeout})
        if "seconds" in answer:
            rows.append([float(value) for value in answer["seconds"]])
    if not rows:
        return None
    ratios = [[row[index] / row[0] for row in rows] for index in range(len(configs))]
    means = [math.prod(one) ** (1 / len(one)) for one in ratios]
    able = [
        index
        for index, one in enumerate(ratios)
        if max(one) <= NO_LOSS and means[index] <= ADOPTION
    ]
    best = min(able, key=lambda index: means[index], default=0)
    return Proved(
        configs[best], means[best], rows[0][best], rows[0][0], tuple(configs), tuple(ratios[best])
    )


def keep(found: Proved, task: Task, name: str, head: Mapping[str, str]) -> None:
    """Store the winner, unless a better one that took no part was stored meanwhile."""
    record = {
        "config": config_to_json(found.config),
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
