"""A small slice of what `python -m fuzz` feeds to readers of files, and that it finds failures."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import strategies as st

pytest.importorskip("resource")

from fuzz.__main__ import TARGETS
from fuzz.harness import Target, run
from tilewright.errors import FileError


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
def test_readers_refuse_hostile_files_in_bounded_memory(target: Target) -> None:
    assert run(target, 100).total() >= 100


def memory_first(path: Path) -> None:
    try:
        np.empty(2**56)
    except MemoryError:
        raise FileError("refused") from None


def much_memory(path: Path) -> None:
    np.empty(2**27)  # touched or not


def crash(path: Path) -> None:
    raise KeyError("name")


@pytest.mark.parametrize("read", [memory_first, much_memory, crash])
def test_a_reader_that_does_what_it_must_not_is_found(
    read: object, capsys: pytest.CaptureFixture[str]
) -> None:
    target = Target("bad", ".bin", st.binary(max_size=9), read)  # type: ignore[arg-type]
    with pytest.raises((AssertionError, KeyError)):
        run(target, 10, seed=7)
    assert "bad: failed with --seed 7" in capsys.readouterr().err


def test_the_same_seed_draws_the_same_inputs() -> None:
    drawn: list[list[bytes]] = []
    for _ in range(2):
        drawn.append([])
        target = Target(
            "seen", ".bin", st.binary(), lambda path: drawn[-1].append(path.read_bytes())
        )
        run(target, 50, seed=3)
    assert drawn[0] == drawn[1]
    assert len(set(drawn[0])) > 20
