"""The search: a random start, then greedy neighbours, one tunable changed at a time.

    candidates   the default configuration with choices of the kernel's axes; constraints prune
                 first (`why_not` of planning/tiles.py), so that only legal ones cost time
    start        the default, what is already known, the default along the kernel's first axis, what
                 the kernel lists, and random candidates for a share of the time
    greedy       every neighbour of the best in random order; the first that is faster becomes the
                 best; where none is, a random candidate starts anew

Greedy iterated local search is one of the methods that Schoonhoven, van Werkhoven and Batenburg
compare ("Benchmarking optimization algorithms for auto-tuning GPU kernels", IEEE Trans. Evol.
Comput. 2022); pruning by constraints before anything is compiled is CLTune's (Nugteren and
Codreanu, MCSoC 2015).
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from tilewright.facts.device import Device
from tilewright.facts.kernel import Axis, Config, Kernel, Tunable
from tilewright.facts.problem import Problem
from tilewright.planning.tiles import legal_configs, why_not

# Seconds of a candidate, or why it has none; None where time is over.
Measure = Callable[[Config], float | str | None]
_RANDOM_SHARE = 0.3
# Draws that are illegal or known in a row before the space counts as exhausted.
_DRAWS = 200


@dataclass(frozen=True)
class Space:
    """What may be chosen for a kernel and a problem; `listed` where it declares no axes."""

    kernel: Kernel
    problem: Problem
    device: Device
    default: Config
    axes: tuple[Axis, ...] = ()
    listed: tuple[Config, ...] = ()

    @classmethod
    def of(cls, kernel: Kernel, problem: Problem, device: Device) -> Space | None:
        """The space; None where the device can run no configuration of the kernel."""
        if kernel.why_not(problem, device) is not None:
            return None
        legal = legal_configs(kernel, problem, device)
        if not legal:
            return None
        axes = kernel.space(problem, device) if isinstance(kernel, Tunable) else ()
        return cls(kernel, problem, device, legal[0], axes, legal)

    def legal(self, config: Config) -> bool:
        """Whether the device can run it."""
        return why_not(self.kernel, config, self.problem, self.device) is None

    def draw(self, random_: random.Random) -> Config:
        """Any candidate, legal or not."""
        if not self.axes:
            return random_.choice(self.listed)
        config = self.default
        for axis in self.axes:
            config = _with(config, random_.choice(axis.choices))
        return config

    def neighbours(self, config: Config) -> list[Config]:
        """Every legal candidate that differs in one axis; listed ones are all neighbours."""
        if not self.axes:
            return [other for other in self.listed if other != config]
        found = [_with(config, choice) for axis in self.axes for choice in axis.choices]
        return [other for other in dict.fromkeys(found) if other != config and self.legal(other)]

    def telling(self) -> list[Config]:
        """The default along the first axis: kernels name the one first that tells most, the way a
        multiply-add is written. It was 2.2x for `panel` on PoCL, and 1.0x on Intel's runtime."""
        choices = self.axes[0].choices if self.axes else ()
        found = (_with(self.default, choice) for choice in choices)
        return [config for config in found if self.legal(config)]

    @property
    def size(self) -> int:
        """Candidates, legal or not."""
        return math.prod(len(axis.choices) for axis in self.axes) if self.axes else len(self.listed)


def search(
    space: Space,
    measure: Measure,
    time_left: Callable[[], float],
    *,
    seeds: Sequence[Config] = (),
    seed: int = 0,
) -> tuple[Config, float] | None:
    """The fastest candidate and its seconds, None where not even one was right.

    `measure` is asked at most once for each candidate and may answer from memory; `time_left` is
    the share of the budget that is left, from 1 to 0. KeyboardInterrupt from `measure` passes
    through: what was found so far is then the caller's to know, as it saw every answer.
    """
    random_ = random.Random(seed)
    seen: dict[Config, float | str | None] = {}
    best: tuple[Config, float] | None = None

    def ask(config: Config) -> None:
        nonlocal best
        if config in seen:
            return
        seen[config] = answer = measure(config)
        if isinstance(answer, float) and (best is None or answer < best[1]):
            best = (config, answer)

    for config in (space.default, *seeds, *space.telling(), *space.listed):
        if time_left() > 0:
            ask(config)
    draws = _fresh(space, random_, seen)
    while time_left() > 1 - _RANDOM_SHARE and (drawn := next(draws, None)) is not None:
        ask(drawn)
    here = best
    while time_left() > 0 and here is not None:
        here = _climb(space, here, ask, seen, random_, time_left)
        if here is None and (drawn := next(draws, None)) is not None:
            ask(drawn)
            answer = seen[drawn]
            here = (drawn, answer) if isinstance(answer, float) else best
    return best


def _climb(
    space: Space,
    here: tuple[Config, float],
    ask: Callable[[Config], None],
    seen: dict[Config, float | str | None],
    random_: random.Random,
    time_left: Callable[[], float],
) -> tuple[Config, float] | None:
    """The first faster neighbour of `here`; None where there is none, or no time."""
    neighbours = space.neighbours(here[0])
    random_.shuffle(neighbours)
    for config in neighbours:
        if time_left() <= 0:
            return None
        ask(config)
        answer = seen[config]
        if isinstance(answer, float) and answer < here[1]:
            return config, answer
    return None


def _fresh(
    space: Space, random_: random.Random, seen: dict[Config, float | str | None]
) -> Iterator[Config]:
    """Legal candidates that were not asked yet, until none turns up."""
    misses = 0
    while misses < _DRAWS:
        config = space.draw(random_)
        if config in seen or not space.legal(config):
            misses += 1
            continue
        misses = 0
        yield config


def _with(config: Config, choice: tuple[tuple[str, int], ...]) -> Config:
    return replace(config, **dict(choice))
