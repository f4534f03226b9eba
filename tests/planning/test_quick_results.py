"""Plain products into results that are there are NumPy's at once, all others are checked."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tests.planning.test_quick import calls_of
from tilewright.errors import TilewrightError


def test_a_plain_product_into_a_result_that_is_there_costs_three_functions_more() -> None:
    a, b, out = np.ones((3, 4), "f"), np.ones((4, 5), "f"), np.zeros((3, 5), "f")
    assert calls_of(lambda: tw.matmul(a, b, out=out)) <= calls_of(lambda: tw.matmul(a, b)) + 3
    assert (out == 4).all()


def _odd_results(a: Any, b: Any) -> dict[str, Any]:
    """Results that NumPy does not simply fill: ours have to be right, or refused, all the same."""
    read_only = np.zeros((4, 4), "f")
    read_only.flags.writeable = False
    shifted = np.zeros(4 * 4 * 4 + 1, np.uint8)[1:].view("f").reshape(4, 4)
    return {
        "columns": np.zeros((4, 4), "f").T,
        "every other": np.zeros((4, 8), "f")[:, ::2],
        "unaligned": shifted,
        "double": np.zeros((4, 4)),
        "read-only": read_only,
        "a itself": a,
        "b reversed": b[::-1],
        "flat": np.zeros(16, "f"),
        "one row for all": np.lib.stride_tricks.as_strided(np.zeros(4, "f"), (4, 4), (0, 4)),
    }


@pytest.mark.parametrize("which", _odd_results(np.ones((4, 4), "f"), np.ones((4, 4), "f")))
def test_a_result_that_is_not_plain_is_right_or_refused_and_untouched(which: str) -> None:
    a, b = np.random.default_rng(5).random((2, 4, 4), np.float32)
    want, out = a @ b, _odd_results(a, b)[which]
    if which in ("columns", "every other"):
        assert tw.matmul(a, b, out=out) is out
        np.testing.assert_allclose(out, want, rtol=1e-6)
        return
    before = out.copy()
    with pytest.raises(TilewrightError, match="out"):
        tw.matmul(a, b, out=out)
    np.testing.assert_array_equal(out, before)
