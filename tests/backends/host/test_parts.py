"""Functions that become part of their callers: right there, kept in words, without an entry."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

numba = pytest.importorskip("numba")

from tilewright.backends.host.kernels.helpers import helper, kept_helper  # noqa: E402

SUM = sum(one * one for one in range(17))


@helper
def squares(count: Any) -> Any:
    total = 0
    for one in range(count):
        total += one * one
    return total


def rest(x: Any, y: Any) -> Any:
    return x % y + squares(x)


def caller(part: Any) -> Any:
    return numba.njit(lambda x, y: part(x, y))


@pytest.mark.parametrize("way", [helper, kept_helper])
def test_a_part_is_right_within_its_caller_and_has_no_machine_code(
    way: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path))
    part = way(rest)
    outer = caller(part)
    assert outer(17, 5) == 2 + SUM
    with pytest.raises(ZeroDivisionError):
        outer(17, 0)
    for inner in (part, squares):
        (made,) = inner.overloads.values()
        assert made.library.get_pointer_to_function(made.fndesc.llvm_func_name) == 0


def test_a_kept_part_is_read_from_disk_and_becomes_part_of_a_new_caller(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path))
    for read in (False, True):
        part = kept_helper(rest)
        part.compile((numba.int64, numba.int64))
        assert bool(part.stats.cache_hits) is read
        assert caller(part)(17, 5) == 2 + SUM


def test_a_part_that_needs_objects_of_python_is_refused() -> None:
    @helper
    def talks(x: Any, y: Any) -> Any:
        print(x)
        return y

    with pytest.raises(NotImplementedError, match="needs Python's objects"):
        caller(talks)(1, 2)
