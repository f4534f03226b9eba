"""One-bit matrices are laid out once, and never taken for others."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright
from tilewright import onebit, remember
from tilewright.backends.host import compiled

pytestmark = pytest.mark.skipif(not compiled.available(), reason="Numba is not installed")


def test_a_matrix_is_never_taken_for_a_dead_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Panels are known by the matrix's number, and Ctrl-C may keep a dead one's entry alive."""
    monkeypatch.setattr(remember.Shelf, "_drop", lambda *_: None)
    rng = np.random.default_rng(5)
    for _ in range(50):
        x = np.sign(rng.standard_normal((40, 130)))
        a = onebit.pack(x)
        found = onebit.matmul(a, a, device="host", kernel="numba")
        np.testing.assert_array_equal(found, (x @ x.T).astype(int))
    tilewright.forget()


def test_words_that_change_under_a_view_are_read_again() -> None:
    """That a view is read-only says nothing of the memory: whose it is writes on."""
    rng = np.random.default_rng(6)
    a = onebit.pack(rng.standard_normal((20, 130)))
    store = np.array(a.words)
    view = store.view()
    view.flags.writeable = False
    for turn in range(3):
        store[...] = onebit.pack(rng.standard_normal((20, 130)) + turn).words
        b = onebit.BitMatrix(view, 130)
        wanted = onebit.matmul(a, b, device="host", kernel="numpy")
        np.testing.assert_array_equal(onebit.matmul(a, b, device="host", kernel="numba"), wanted)


def test_packed_matrices_are_laid_out_once(monkeypatch: pytest.MonkeyPatch) -> None:
    b = onebit.pack(np.random.default_rng(7).standard_normal((100, 200)))
    shelf = next(one for one in remember.shelves() if one.name == "one-bit matrices laid out")
    shelf.clear()
    onebit.matmul(b, b, device="host", kernel="numba")
    assert len(shelf) == 1
