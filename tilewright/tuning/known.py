"""Remembers how a tuner's candidates did: in this run, in earlier ones, in other processes.

Failures hold for ever (for this kernel source, space, device and driver), but for answers that did
not come in time: a busy machine looks like a candidate that hangs, so that each of the next tuners
asks once more, until it was late in `_MOST_LATE` of them. Times hold for a tuner that resumes, and
tell any other one where to look first.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any

from tilewright.facts.kernel import Config
from tilewright.tuning import store
from tilewright.tuning.search import Space
from tilewright.tuning.tasks import Task
from tilewright.tuning.tuned import config_from_json
from tilewright.tuning.workshop import LATE

_FINALISTS = 4
_MOST_LATE = 3
# Scores of candidates that lose somewhere, or were given up as hopeless, stand behind all others.
_LOSS = 1.02
_GIVEN_UP = 4.0

# Seconds on the task's shapes in order, fewer where it was hopeless; or why there are none.
Answer = list[float] | str


class Known:
    """Answers by candidate. With `fresh`, times are measured again and failures kept."""

    def __init__(self, name: str, task: Task, space: Space, *, fresh: bool) -> None:
        self._name, self._record, self._space = name, task.record, space
        self._shapes = [shape.as_dict() for shape in task.shapes]
        document = _record(store.read(store.TRIED, name), self._record)
        same = document.get("shapes") == self._shapes
        spent = document.get("spent", 0.0)
        self.spent = float(spent) if same and isinstance(spent, float) else 0.0
        stored = _answers(document, space)
        self._answers: dict[Config, Answer] = stored
        self.seeds = self._fastest()
        winner = _winner(store.read(store.TUNED, name), self._record)
        self._winner = winner if winner is not None and space.legal(winner) else None
        if fresh or not same:
            self._answers = {c: answer for c, answer in stored.items() if isinstance(answer, str)}
        for config in [c for c, answer in self._answers.items() if _is_late(answer)]:
            if _times_late(document, _text(config)) < _MOST_LATE:
                del self._answers[config]

    def answer(self, config: Config) -> Answer | None:
        """What is known of a candidate."""
        return self._answers.get(config)

    def add(self, config: Config, answer: Answer) -> None:
        """Remember it, on disk too, beside what other tuners have added meanwhile."""
        self._answers[config] = answer
        text, shapes = _text(config), self._shapes

        def change(record: dict[str, Any]) -> dict[str, Any]:
            if record.get("shapes") != shapes:  # times and effort were those of other shapes
                record = {"tried": store.failures(record), "late": record.get("late", {})}
            if _is_late(answer):
                late = _late(record)
                record = {**record, "late": {**late, text: _times_late(record, text) + 1}}
            tried = {**record.get("tried", {}), text: answer}
            return {**record, "shapes": shapes, "tried": tried}

        self._update(change)

    def finish(self, seconds: float) -> None:
        """Add to the seconds that the task was searched for, on disk; `spent` is what they were."""
        self._update(lambda record: {**record, "spent": self.spent + seconds})

    def score(self, config: Config) -> float | str:
        """How good a candidate is, less being better, or why it failed.

        The geometric mean over the shapes of its time over the default's; worse where it loses on
        one of them, as the proof would refuse it.
        """
        answer = self._answers[config]
        if isinstance(answer, str):
            return answer
        ratios = self._ratios(answer)
        mean, worst = math.prod(ratios) ** (1 / len(ratios)), max(ratios)
        if len(ratios) < len(self._shapes):
            return mean * _GIVEN_UP
        return mean if worst <= _LOSS else mean * worst**2

    def finalists(self) -> list[Config]:
        """The default, the best few, and what is stored as the winner; none if nothing ran."""
        best = self._fastest()
        if not best:
            return []
        winner = [] if self._winner is None else [self._winner]
        return list(dict.fromkeys((self._space.default, *best, *winner)))

    @property
    def best_seconds(self) -> list[float]:
        """Of the best candidate on every shape; empty before the first."""
        best = self._fastest()
        found = self._answers[best[0]] if best else []
        return found if isinstance(found, list) else []

    @property
    def ratio(self) -> float:
        """The best candidate's score; 1 before the first."""
        scores = [self.score(config) for config in self._fastest()[:1]]
        return next((score for score in scores if isinstance(score, float)), 1.0)

    @property
    def count(self) -> int:
        """Candidates known."""
        return len(self._answers)

    @property
    def timed(self) -> int:
        """Candidates with a time."""
        return sum(isinstance(answer, list) for answer in self._answers.values())

    @property
    def failed(self) -> int:
        """Candidates that failed."""
        return self.count - self.timed

    def _fastest(self) -> list[Config]:
        scores = {config: self.score(config) for config in self._answers}
        able = {config: score for config, score in scores.items() if isinstance(score, float)}
        return sorted(able, key=lambda config: able[config])[:_FINALISTS]

    def _ratios(self, seconds: list[float]) -> list[float]:
        default = self._answers.get(self._space.default)
        if not isinstance(default, list) or len(default) < len(seconds):
            return seconds  # the default itself fails: any order will do
        return [value / base for value, base in zip(seconds, default, strict=False)]

    def _update(self, change: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
        def whole(content: dict[str, Any]) -> dict[str, Any]:
            records = content.get("records")
            records = records if isinstance(records, dict) else {}
            mine = change(_record(content, self._record))
            return {**content, "records": {**records, self._record: mine}}

        store.update(store.TRIED, self._name, whole)


def _is_late(answer: Any) -> bool:
    return isinstance(answer, str) and answer.startswith(LATE)


def _times_late(record: dict[str, Any], text: str) -> int:
    """In how many tuners a candidate was late; 1 where it was and nobody counted."""
    count = _late(record).get(text, int(_is_late(record.get("tried", {}).get(text))))
    return count if isinstance(count, int) else 0


def _late(record: dict[str, Any]) -> dict[str, Any]:
    late = record.get("late")
    return late if isinstance(late, dict) else {}


def _record(content: dict[str, Any], name: str) -> dict[str, Any]:
    records = content.get("records")
    record = records.get(name) if isinstance(records, dict) else None
    if not isinstance(record, dict) or not isinstance(record.get("tried", {}), dict):
        return {}
    return record


def _answers(record: dict[str, Any], space: Space) -> dict[Config, Answer]:
    """Whatever in a record is a candidate of today's space; what is not is left out."""
    found: dict[Config, Answer] = {}
    for text, answer in record.get("tried", {}).items():
        try:
            config = config_from_json(json.loads(text))
        except (TypeError, ValueError):
            continue
        times = isinstance(answer, list) and answer and all(map(_is_time, answer))
        if (times or isinstance(answer, str)) and space.legal(config):
            found[config] = answer
    return found


def _is_time(value: Any) -> bool:
    return isinstance(value, float) and 0 < value < math.inf


def _winner(content: dict[str, Any], name: str) -> Config | None:
    try:
        return config_from_json(content["records"][name]["config"])
    except (KeyError, TypeError, ValueError):
        return None


def _text(config: Config) -> str:
    return json.dumps(config.changed, sort_keys=True)
