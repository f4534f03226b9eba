"""What is no number becomes the least whole one, on every library alike."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

from tilewright.nn.operators.quantise import saturated

RATIOS = [np.nan, -np.inf, np.inf, -1e30, 1e30, -0.0, 3.0, 300.0, -300.0]


@pytest.mark.parametrize(
    ("name", "zero", "wanted"),
    [
        ("int8", -5, [-128, -128, 127, -128, 127, -5, -2, 127, -128]),
        ("uint8", 7, [0, 0, 255, 0, 255, 7, 10, 255, 0]),
        ("int16", 0, [-32768, -32768, 32767, -32768, 32767, 0, 3, 300, -300]),
    ],
)
@pytest.mark.parametrize("library", ["numpy", "torch"])
def test_what_is_beyond_a_type_is_at_its_ends_and_nan_at_the_least(
    library: str, name: str, zero: int, wanted: list[int]
) -> None:
    xp: Any = np
    if library == "torch":
        pytest.importorskip("torch")
        xp = pytest.importorskip("array_api_compat.torch")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ratios = xp.asarray(RATIOS * 9, dtype=xp.float32)  # more than a vector of any processor
        made = saturated(xp, ratios, xp.asarray(zero, dtype=getattr(xp, name)), name)
    assert made.tolist() == wanted * 9
