"""The tuner: finds, proves and stores the best configuration of kernels for shape classes.

    tasks      one a kernel and shape class, each with a share of the budget
    search     every candidate in the workshop's worker; its time, or why it has none, is stored at
               once, so that a killed tuner loses nothing and a failure is never tried again
    proof      the best few and the default in turns on several shapes of the class (proof.py)

A configuration that did not win its proof is not stored: tuning cannot hurt by more than noise.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from tilewright import settings
from tilewright.errors import CacheError, DeviceError
from tilewright.facts.device import Device
from tilewright.facts.kernel import Config, Priors
from tilewright.tuning import proof, tuned
from tilewright.tuning.known import Known
from tilewright.tuning.search import Space, search
from tilewright.tuning.tasks import Task
from tilewright.tuning.workshop import Workshop

# A candidate this many times slower than the best on one shape is not run on the next.
_HOPELESS = 1.5
# The rest of a task's share goes to its proof.
_SEARCH_SHARE = 0.7
# A task that was searched for this much of its share is not searched again on resume.
_ENOUGH = 0.9
_ALL = 1e9


@dataclass(frozen=True, slots=True)
class Result:
    """What came of a task. `ratio` is the time of `config` over the default's; 1 for the default.

    `timed` counts candidates with a time, `failed` those without.
    """

    task: Task
    config: Config
    ratio: float
    seconds: float
    timed: int
    failed: int


@dataclass(frozen=True, slots=True)
class Progress:
    """What a tuner is doing, after every candidate; `ratio` is the best so far over the default."""

    task: Task
    candidate: Config
    ratio: float
    seconds_left: float


@dataclass
class Tuner:
    """A device, its worker and a budget in seconds; `run` does the work.

    With `resume`, times measured before are not measured again, and tasks that were searched for
    as long as this budget gives them are passed over.
    """

    device: Device
    priors: Priors
    workshop: Workshop
    budget: float
    resume: bool = False
    report: Callable[[Progress], None] = lambda progress: None
    interrupted: bool = False
    _began: float = field(default_factory=time.monotonic)

    def run(self, tasks: Sequence[Task]) -> list[Result]:
        """Every task within the budget. Ctrl-C ends the search; what was found is proved and kept.

        Ctrl-C once more ends the proof; what was proved before is kept.
        Raises CacheError where there is no store, DeviceError where no worker starts.
        """
        if settings.cache_folder() is None:
            raise CacheError(
                f"{settings.why_no_cache()}; tuning needs a folder to keep what it finds"
            )
        greeting = self.workshop.greet(self._request("hello"))
        if "failure" in greeting:
            raise DeviceError(f"device={self.device.id!r}: no worker: {greeting['failure']}")
        results: list[Result] = []
        for index, task in enumerate(tasks):
            weights = sum(later.weight for later in tasks[index:])
            share = self.seconds_left * task.weight / weights
            if share <= 0 or self.interrupted:
                break
            try:
                result = self._run_task(task, share)
            except KeyboardInterrupt:  # during the proof, which then adopts nothing
                self.interrupted = True
                break
            results += [result] if result is not None else []
        tuned.forget()
        return results

    @property
    def seconds_left(self) -> float:
        """Of the budget."""
        return max(0.0, self.budget - (time.monotonic() - self._began))

    def _run_task(self, task: Task, share: float) -> Result | None:
        problem = task.shapes[0].problem()
        space = Space.of(task.kernel, problem, self.device)
        if space is None:
            return None
        name = tuned.document_name(task.kernel, problem, self.device, self.priors)
        known = Known(name, task, space, fresh=not self.resume)
        wanted = share * _SEARCH_SHARE
        if self.resume and known.spent >= _ENOUGH * wanted:
            return None
        known.finish(self._search(task, space, known, wanted))
        return self._prove(task, known, name, share - wanted)

    def _search(self, task: Task, space: Space, known: Known, seconds: float) -> float:
        """Seconds it took, or what amounts to any budget where the space was exhausted."""
        began = time.monotonic()
        request = self._request("measure", task)

        def measure(config: Config) -> float | str:
            if known.answer(config) is None:
                cutoffs = [_HOPELESS * seconds for seconds in known.best_seconds]
                found = self.workshop.ask({**request, "config": config.changed, "cutoffs": cutoffs})
                known.add(config, found.get("failure") or list(map(float, found["seconds"])))
            self.report(Progress(task, config, known.ratio, self.seconds_left))
            return known.score(config)

        def time_left() -> float:
            return 1 - (time.monotonic() - began) / seconds

        try:
            search(space, measure, time_left, seeds=known.seeds, seed=known.count)
        except KeyboardInterrupt:
            self.interrupted = True
        ended_early = not self.interrupted and time_left() > 0
        return _ALL if ended_early else time.monotonic() - began

    def _prove(self, task: Task, known: Known, name: str, seconds: float) -> Result | None:
        finalists = known.finalists()
        if not finalists:
            return None
        request = {**self._request("duel", task), "seconds": seconds / len(task.shapes)}
        found = proof.prove(task, finalists, self.device, self.workshop, request)
        if found is None:
            return None
        head = tuned.head(task.kernel, self.device, self.priors)
        proof.keep(found, task, name, head)
        return Result(task, found.config, found.ratio, found.seconds, known.timed, known.failed)

    def _request(self, what: str, task: Task | None = None) -> dict[str, object]:
        request: dict[str, object] = {
            "do": what,
            "backend": self.device.backend,
            "device": f"{self.device.id}|{self.device.key}",
        }
        if task is not None:
            shapes = [shape.as_dict() for shape in task.shapes]
            request |= {"kernel": task.kernel.name, "shapes": shapes}
        return request
