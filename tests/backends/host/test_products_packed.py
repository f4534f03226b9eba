"""Matrices packed in each run lie as the tiles of any processor read them."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright.backends.host import conv_constants
from tilewright.backends.host.products_packed import packing
from tilewright.engines.conv import Conv


@pytest.mark.parametrize("n", [1, 7, 8, 15, 16, 17, 19, 32, 33, 48, 49, 64, 70])
@pytest.mark.parametrize(("width", "lanes"), [(32, 16), (16, 16), (16, 8), (8, 8)])
def test_panels_are_the_weights_of_a_convolution(width: int, lanes: int, n: int) -> None:
    """With AVX-512 a panel has 32 columns, else 16: written as 32 all products were wrong there."""
    rng = np.random.default_rng(n)
    for turned in (False, True):
        b = rng.standard_normal((3, n, 5) if turned else (3, 5, n)).astype(np.float32)
        b = b.swapaxes(1, 2) if turned else b
        panels = np.zeros((3, -(-n // width), 5 * width), np.float32)
        for source, to in packing(b, panels, width, lanes):
            to[...] = source
        for matrix, panel in zip(b, panels, strict=True):
            wanted, _ = conv_constants.weights(Conv(matrix.T[:, :, None, None]), width, lanes)
            np.testing.assert_array_equal(panel, wanted[0])
