"""What every target shares: drawing inputs, the memory that a reader may take, the command line.

hypothesis draws an input by its structure, from a seed; it is fed as it is, and nine times more
with its bytes damaged. `--seed` with the number that a failure prints brings the failure back,
shrunk. A reader may give a result or raise one of the errors that its target names. Anything else
is a failure, and so is

- a peak of memory during one input above 64 MiB and 64 times the input (tracemalloc, which also
  counts what was asked for and never touched),
- a MemoryError that was turned into a refusal: sizes are to be compared before memory is asked for,
- a process that has grown by more than 512 MiB at the end of a slice (resource.getrusage).

atheris would guide its bytes by coverage; it has no build for every Python that is supported here.
"""

from __future__ import annotations

import argparse
import os
import resource
import sys
import tempfile
import tracemalloc
import warnings
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random

import hypothesis
from hypothesis.strategies import SearchStrategy, integers

from fuzz.inputs import damaged
from tilewright.errors import CacheWarning, FileError, TilewrightError

SLICE = 1000  # inputs of one seed
VARIANTS = 10  # of each that is drawn: itself, and damaged ones
FLOOR, TIMES = 64 << 20, 64
GROWTH = 512 << 20
ADDRESSES = 8 << 30  # above what the process has at the start: a reader that runs away ends


@dataclass(frozen=True)
class Target:
    """A reader, the inputs to draw, the suffix of its files and the errors that refuse one."""

    name: str
    suffix: str
    inputs: SearchStrategy[bytes]
    read: Callable[[Path], object]
    refusals: tuple[type[TilewrightError], ...] = (FileError,)
    ready: Callable[[], object] = lambda: None  # what a process does once, as compiling a kernel


def run(target: Target, inputs: int, seed: int = 0) -> Counter[str]:
    """Feed that many inputs to a reader; how many it read and how many it refused."""
    counts: Counter[str] = Counter()
    target.ready()
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore", CacheWarning)
        path = Path(folder, f"input{target.suffix}")
        while counts.total() < inputs:
            _slice(target, path, min(SLICE, inputs - counts.total()), seed, counts)
            seed += 1
    return counts


def _slice(target: Target, path: Path, inputs: int, seed: int, counts: Counter[str]) -> None:
    before = _grown()

    @hypothesis.seed(seed)
    @hypothesis.settings(
        max_examples=max(1, inputs // VARIANTS),
        deadline=None,
        database=None,
        derandomize=False,
        phases=(hypothesis.Phase.generate, hypothesis.Phase.shrink),
        suppress_health_check=list(hypothesis.HealthCheck),
    )
    @hypothesis.given(target.inputs, integers(0, 2**32))
    def feed(drawn: bytes, dice: int) -> None:
        random, content = Random(dice), drawn
        for _ in range(VARIANTS):
            counts[fed(target, path, content)] += 1
            content = damaged(drawn, random)

    try:
        feed()
    except BaseException:
        print(f"{target.name}: failed with --seed {seed}", file=sys.stderr)
        raise
    grown = _grown() - before
    assert grown <= GROWTH, f"{target.name}, --seed {seed}: the process grew by {grown >> 20} MiB"


def fed(target: Target, path: Path, content: bytes) -> str:
    """What a reader made of one input: "read" or "refused". Raises for all that it must not do."""
    path.write_bytes(content)
    outcome, cause = "read", None
    tracemalloc.start()
    try:
        target.read(path)
    except target.refusals as error:
        outcome, cause = "refused", error.__context__
    finally:
        taken = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert not isinstance(cause, MemoryError), "memory was asked for before sizes were compared"
    assert taken <= FLOOR + TIMES * len(content), (
        f"an input of {len(content)} bytes took {taken >> 20} MiB"
    )
    return outcome


def _grown() -> int:
    """The most bytes that this process has held so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def main(*targets: Target) -> None:
    """The command line of one target, or of several."""
    parser = argparse.ArgumentParser(description="Feed damaged and hostile files to a reader.")
    parser.add_argument("--inputs", type=int, default=10_000, help="how many, of each target")
    parser.add_argument("--seed", type=int, default=0, help="of the first slice")
    options = parser.parse_args()
    os.environ["TILEWRIGHT_CACHE"] = "off"
    _limit_addresses()
    for target in targets:
        counts = run(target, options.inputs, options.seed)
        shown = ", ".join(f"{number} {outcome}" for outcome, number in sorted(counts.items()))
        print(f"{target.name}: {counts.total()} inputs, {shown}", flush=True)


def _limit_addresses() -> None:
    pages = int(Path("/proc/self/statm").read_text().split()[0]) if sys.platform == "linux" else 0
    most = pages * resource.getpagesize() + ADDRESSES
    resource.setrlimit(resource.RLIMIT_AS, (most, resource.getrlimit(resource.RLIMIT_AS)[1]))
