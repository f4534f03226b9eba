"""How many small faults the tests find: mutants of the code, each against the tests that run it.

    COVERED=folder python -m pytest -p bench.covered -n 2                    # once, minutes
    python -m bench.mutations --covered folder --count 120 --seed 11 --jobs 2 --results found.jsonl

A mutant changes one thing (bench/mutants.py). It counts as killed where a test fails that passes
without it, or where the tests take five times as long (an endless loop). The tests are those that
call the changed function, as `bench.covered` saw: three cases of each test of the target's own
files, one of each other, then further cases, quick ones before slow ones, until one fails or
`--seconds` of them have passed. Of what no test was seen to call (it runs in a process of its own),
the target's files decide. Results are written as they come; the same command goes on where it was
ended. What survives is to be looked at: some change nothing all the same (an equivalent), some wait
for a test that there was no time for (`--again NUMBER --seconds 300`), the others ask for one.
"""

from __future__ import annotations

import argparse
import ast
import compileall
import contextlib
import importlib.util
import json
import multiprocessing
import os
import py_compile
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.connection import Connection
from pathlib import Path
from queue import Queue
from typing import Any

import pytest

from bench.covered import Covered, Test
from bench.mutants import ROOT, TARGETS, Mutant, sample

_LEAST = 60.0  # seconds that a mutant's tests may always take
_SLOWER = 5.0  # times as long as without a mutant: an endless loop, whatever else the machine does
_FIRST = 8.0  # seconds of tests that begin, before files of other subjects are loaded
_LATE = "late"
_UNKNOWN = "exit status 4"  # of pytest: a test that is not there, or a file that cannot be loaded
# Tests run in children of a process that has loaded what is large and none of the project: pytest
# by itself takes 3 to 5 seconds until its first test, a child half a second. Neither drivers, which
# work in no child, nor what reads its settings when it is loaded: the tests make those.
_PROCESSES = multiprocessing.get_context("forkserver")
_LOADED = ("pytest", "numpy", "hypothesis", "torch", "onnx", "onnxruntime")


def in_order(tests: Iterable[Test], own: tuple[str, ...], most: float) -> list[Test]:
    """Which tests to run and in which order: at most so many seconds of them, one at least."""
    seen: Counter[str] = Counter()
    ranked = []
    for test in sorted(tests, key=lambda test: test.seconds):
        function = test.name.partition("[")[0]
        is_own = Path(test.name.partition("::")[0]).stem in own
        # Three cases of a function of the target's own files come before a second of any other.
        rank = max(min(seen[function], 3) - 2 * is_own, 0)
        ranked.append((rank, not is_own, test.seconds, test))
        seen[function] += 1
    chosen: list[Test] = []
    spent = 0.0
    for *_, test in sorted(ranked, key=lambda one: one[:3]):
        if chosen and spent + test.seconds > most:
            continue
        chosen.append(test)
        spent += test.seconds
    return chosen


def first_failure(names: list[str], tree: Path, seconds: float) -> str | None:
    """The first test that fails in a copy of the project, "late" beyond the time, None for none."""
    ours, theirs = _PROCESSES.Pipe(duplex=False)
    running = _PROCESSES.Process(target=_run, args=(names, tree, theirs))
    running.start()
    theirs.close()
    try:
        found: str | None = ours.recv() if ours.poll(seconds) else _LATE
    except EOFError:  # the process died under its tests
        running.join()
        found = f"exit status {running.exitcode}"
    # A session of their own, ended whole: what a killed test run has started does not linger.
    with contextlib.suppress(ProcessLookupError):
        os.killpg(running.pid or 0, signal.SIGKILL)
    running.join()
    ours.close()
    return found


def _run(names: list[str], tree: Path, answer: Connection) -> None:
    """Tests of a copy of the project, in a process that has loaded libraries and none of it."""
    os.setsid()
    silence = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silence, 1)
    os.dup2(silence, 2)
    os.chdir(tree)
    os.environ |= {"PYTHONPATH": str(tree), "PYTHONDONTWRITEBYTECODE": "1"}
    sys.dont_write_bytecode = True
    sys.path[:] = [str(tree), *(path for path in sys.path if path not in ("", str(ROOT)))]
    for name in [name for name in sys.modules if name.partition(".")[0] == "bench"]:
        del sys.modules[name]
    first = _First()
    options = ["-x", "-q", "--tb=no", "--no-header", "-p", "no:cacheprovider"]
    status = int(pytest.main([*options, *names], plugins=[first]))
    answer.send(first.name or (f"exit status {status}" if status else None))


class _First:
    """Hooks of pytest: the first test that failed, or the file that could not be loaded."""

    name = ""

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """A test's setup, call or teardown."""
        if report.failed:
            self.name = self.name or report.nodeid

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """A file's tests, listed."""
        if report.failed:
            self.name = self.name or report.nodeid


class Judge:
    """Runs mutants in copies of the project, each of which serves one at a time."""

    def __init__(self, folder: Path, jobs: int, covered: Covered, most: float) -> None:
        self.covered, self.most = covered, most
        self.trees: Queue[Path] = Queue()
        self.clean = _copy(folder / "clean")
        for job in range(jobs):
            self.trees.put(Path(shutil.copytree(self.clean, folder / str(job))))
        self.unsteady: dict[str, bool] = {}

    def __call__(self, one: Mutant) -> dict[str, Any]:
        """The verdict with the test that failed, and the seconds that it took."""
        began = time.perf_counter()
        tree = self.trees.get()
        place = tree / one.path.relative_to(ROOT)
        original = place.read_text()
        place.write_text(one.source)
        try:
            by = self._killer(one, tree)
        finally:
            place.write_text(original)
            self.trees.put(tree)
        return {
            "where": one.where,
            "change": one.change,
            "target": one.target,
            "killed": by is not None,
            "by": by,
            "seconds": round(time.perf_counter() - began, 1),
        }

    def _killer(self, one: Mutant, tree: Path) -> str | None:
        tests = self.covered.calling(one.path, one.function)
        chosen = in_order(tests, one.tests, self.most)
        if not chosen:
            found = [next((tree / "tests").rglob(f"{name}.py")) for name in one.tests]
            names = [str(path.relative_to(tree)) for path in found]
            return self._confirmed(names, tree, _SLOWER * self.most + _LEAST)
        early = 1
        while early < len(chosen) and sum(test.seconds for test in chosen[: early + 1]) < _FIRST:
            early += 1
        for some in (chosen[:early], chosen[early:]):
            limit = _LEAST + _SLOWER * sum(test.seconds for test in some)
            if some and (by := self._confirmed([test.name for test in some], tree, limit)):
                return by
        return None

    def _confirmed(self, names: list[str], tree: Path, limit: float) -> str | None:
        """The first failure of a test that passes without a mutant."""
        while (by := first_failure(names, tree, limit)) is not None:
            if by == _UNKNOWN and first_failure(names, self.clean, limit) == _UNKNOWN:
                # Tests that are called otherwise since they were written down: all cases, then.
                found = dict.fromkeys(name.partition("[")[0] for name in names)
                known = [name for name in found if _is_there(name)]
                if not known or known == names:
                    return None
                names = known
                continue
            if "::" not in by:  # a file that cannot be loaded, or a process that died
                if first_failure(names, self.clean, limit) != by:
                    return by
                rest = [name for name in names if not name.startswith(by)]
                if by == _LATE or len(rest) in (0, len(names)):
                    print(f"! {by} without a mutant too", flush=True)
                    return None
                names = rest
                continue
            if by not in self.unsteady:
                self.unsteady[by] = first_failure([by], self.clean, limit) is not None
            if not self.unsteady[by]:
                return by
            print(f"! {by} fails without a mutant too", flush=True)
            if by not in names:
                return None
            names = [name for name in names if name != by]
        return None


def _is_there(test: str) -> bool:
    path, _, function = test.partition("::")
    return (ROOT / path).exists() and f"def {function}(" in (ROOT / path).read_text()


def _copy(tree: Path) -> Path:
    """The project, its targets written as mutants are, so that a lost comment kills none."""
    for name in ("tilewright", "tests", "bench", "docs", "fuzz", "examples"):
        shutil.copytree(ROOT / name, tree / name)
    for name in ("pyproject.toml", "README.md", "ARCHITECTURE.md", "Makefile"):
        shutil.copy(ROOT / name, tree)
    for path in {path for pattern, _ in TARGETS for path in (tree / "tilewright").glob(pattern)}:
        path.write_text(ast.unparse(ast.parse(path.read_text())) + "\n")
    # Compiled once, by content: a mutant is as long and as old as what it stands for.
    by_content = py_compile.PycInvalidationMode.CHECKED_HASH
    compileall.compile_dir(tree / "tilewright", quiet=2, invalidation_mode=by_content)
    return tree


def show(found: list[dict[str, Any]]) -> None:
    """The score of every target, and of all."""
    all_of = Counter(one["target"] for one in found)
    killed = Counter(one["target"] for one in found if one["killed"])
    for target, count in sorted(all_of.items()):
        print(f"{target}: {killed[target]} of {count} killed")
    dead, count = killed.total(), len(found)
    print(f"{dead} of {count} killed, {dead / max(1, count):.1%}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--covered", type=Path, required=True, metavar="FOLDER")
    parser.add_argument("--results", type=Path, required=True, metavar="FILE")
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=60.0, help="of tests for a mutant")
    parser.add_argument("--most", type=int, metavar="COUNT", help="of mutants in this run")
    parser.add_argument("--again", type=int, nargs="+", metavar="NUMBER", default=[])
    given = parser.parse_args()
    done: dict[int, dict[str, Any]] = {}
    if given.results.exists():
        lines = map(json.loads, given.results.read_text().splitlines())
        done = {line["number"]: line for line in lines}
    numbered = list(enumerate(sample(given.count, given.seed), 1))
    if given.again:
        wanted = [numbered[number - 1] for number in given.again]
    else:
        wanted = [pair for pair in numbered if pair[0] not in done][: given.most]
    os.environ |= {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}  # as tests/conftest.py does
    _PROCESSES.set_forkserver_preload([name for name in _LOADED if importlib.util.find_spec(name)])
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(given.jobs) as pool:
        judge = Judge(Path(folder), given.jobs, Covered(given.covered), given.seconds)

        def run(pair: tuple[int, Mutant]) -> None:
            number, one = pair
            done[number] = {"number": number, **judge(one)}
            with given.results.open("a") as file:
                print(json.dumps(done[number]), file=file)
            line = done[number]
            verdict = f"killed by {line['by']}" if line["killed"] else "SURVIVES"
            print(f"{number} {one.where} {one.change[:160]!r}: {verdict}", flush=True)

        list(pool.map(run, wanted))
    show(list(done.values()))


if __name__ == "__main__":
    main()
