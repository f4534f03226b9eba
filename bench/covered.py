"""Which functions every test calls, and how long it takes: what `bench.mutations` chooses tests by.

    COVERED=folder python -m pytest -p bench.covered -n 2

writes a file of JSON lines for each process. A function is named by its file and as Python names it
(`Class.method`), so that what was written serves until a function is renamed. What the setup of a
test calls stands apart, with the fixtures that it shares with other tests of its file, as those are
set up before the first of them only. Calls alone are traced, not lines: so the suite takes about a
third longer, not ten times.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import pytest

_PACKAGE = str(Path(__file__).resolve().parent.parent / "tilewright") + os.sep


class _Calls:
    """The code that was entered since `take`, in every thread."""

    def __init__(self) -> None:
        self.seen: dict[int, CodeType] = {}  # by number: some compilers' code cannot be hashed

    def __call__(self, frame: FrameType, event: str, argument: object) -> None:
        self.seen[id(frame.f_code)] = frame.f_code

    def take(self) -> list[str]:
        """`planning/quick.py:certain` of every function of the package, and forgets them."""
        found, self.seen = self.seen, {}
        return sorted(
            f"{code.co_filename.removeprefix(_PACKAGE)}:{code.co_qualname}"
            for code in found.values()
            if code.co_filename.startswith(_PACKAGE) and not code.co_name.startswith("<")
        )


_calls = _Calls()


@pytest.hookimpl(hookwrapper=True, tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> Iterator[None]:
    """Begins with nothing seen."""
    _calls.take()
    threading.settrace(_calls)
    sys.settrace(_calls)
    item.stash[_BEGAN] = time.perf_counter()
    yield
    item.stash[_SETUP] = _calls.take()


@pytest.hookimpl(hookwrapper=True, tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item) -> Iterator[None]:
    """Writes down what was seen."""
    yield
    sys.settrace(None)
    threading.settrace(None)
    line = {
        "test": item.nodeid,
        "seconds": round(time.perf_counter() - item.stash[_BEGAN], 3),
        "shared": _shared(item),
        "setup": item.stash.get(_SETUP, []),
        "calls": _calls.take(),
    }
    with (Path(os.environ["COVERED"]) / f"{os.getpid()}.jsonl").open("a") as file:
        print(json.dumps(line), file=file)


def _shared(item: pytest.Item) -> list[str]:
    """The fixtures of a test that others use after it as they are."""
    fixtures = getattr(item, "_fixtureinfo").name2fixturedefs  # noqa: B009
    return sorted(
        name for name, found in fixtures.items() if found and found[-1].scope != "function"
    )


_BEGAN = pytest.StashKey[float]()
_SETUP = pytest.StashKey[list[str]]()


@dataclass(frozen=True)
class Test:
    """One test by pytest's name for it, and how long it took."""

    name: str
    seconds: float


class Covered:
    """What a folder of such files says."""

    def __init__(self, folder: Path) -> None:
        self._callers: defaultdict[str, set[Test]] = defaultdict(set)
        lines: list[dict[str, Any]] = [
            json.loads(line)
            for path in sorted(folder.glob("*.jsonl"))
            for line in path.read_text().splitlines()
        ]
        if not lines:
            raise SystemExit(f"--covered {folder}: no *.jsonl; {__doc__}")
        sharing = _by_fixture(lines)
        for line in lines:
            test = Test(line["test"], line["seconds"])
            shared = (sharing[line["test"].partition("::")[0], name] for name in line["shared"])
            for function in {*line["calls"], *line["setup"], *(f for s in shared for f in s)}:
                self._callers[function].add(test)

    def calling(self, path: Path, function: str) -> set[Test]:
        """The tests that call a function, or anything of the file where `function` is ""."""
        name = str(path).removeprefix(_PACKAGE)
        if function:
            return self._callers.get(f"{name}:{function}", set())
        every = (tests for key, tests in self._callers.items() if key.startswith(f"{name}:"))
        return set().union(*every)


def _by_fixture(lines: list[dict[str, Any]]) -> defaultdict[tuple[str, str], set[str]]:
    """What was called to set up what the tests of a file share, by file and fixture."""
    found: defaultdict[tuple[str, str], set[str]] = defaultdict(set)
    for line in lines:
        for name in line["shared"]:
            found[line["test"].partition("::")[0], name] |= set(line["setup"])
    return found
