"""Which BLAS is NumPy's is told by what is loaded, and by NumPy's build where nobody lists that."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import threadpoolctl

import tilewright as tw
from tilewright.backends.host.blas import Blas, blas

NUMPY = str(Path(np.__file__).resolve().parent)
OURS = {
    "user_api": "blas",
    "internal_api": "openblas",
    "version": "0.3.31",
    "architecture": "Zen",
    "num_threads": 4,
    "filepath": f"{NUMPY}.libs/libopenblas.so",
}
OTHER = {**OURS, "internal_api": "mkl", "filepath": "/opt/mkl.so", "num_threads": 1}
OPENMP = {"user_api": "openmp", "internal_api": "openmp", "num_threads": 9, "filepath": NUMPY}


@pytest.fixture(autouse=True)
def _asked_anew() -> Iterator[None]:
    blas.cache_clear()
    yield
    blas.cache_clear()


@pytest.mark.parametrize("order", list(itertools.permutations([OURS, OTHER, OPENMP])))
def test_of_several_the_one_beside_numpy_counts(
    order: tuple[dict[str, Any], ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(threadpoolctl, "threadpool_info", lambda: list(order))
    assert blas() == Blas("openblas", "0.3.31", "Zen", 4)
    assert str(blas()) == "openblas 0.3.31, Zen kernels, 4 threads"


def test_a_library_that_tells_little_is_told_of_in_fewer_words(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    little = {"user_api": "blas", "internal_api": "blis", "version": None, "num_threads": 1}
    monkeypatch.setattr(threadpoolctl, "threadpool_info", lambda: [little])
    assert str(blas()) == "blis, 1 thread"


@pytest.mark.parametrize("failure", [None, OSError("no list of libraries")])
def test_where_nobody_lists_it_numpy_s_build_says_which(
    failure: Exception | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def listed() -> list[dict[str, Any]]:
        if failure:
            raise failure
        return [OPENMP]

    monkeypatch.setattr(threadpoolctl, "threadpool_info", listed)
    built = np.show_config(mode="dicts")["Build Dependencies"]["blas"]
    assert str(blas()) == f"{built['name']} {built['version']}"


def test_devices_tell_it() -> None:
    host = next(device for device in tw.devices() if device.backend == "host")
    assert str(blas()) in host.driver
