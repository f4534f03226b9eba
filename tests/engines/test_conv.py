"""What the record of a chain of convolutions says of sizes, operations and bytes."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright.engines.conv import Activation, Conv, ConvWork


def _conv(inputs: int, outputs: int, kernel: int = 3, **options: object) -> Conv:
    weights = np.zeros((outputs, inputs // options.get("groups", 1), kernel, kernel), np.float32)
    return Conv(weights, **options)


def test_sizes_follow_strides_pads_dilations_and_the_shuffle() -> None:
    chain = ConvWork(
        (
            _conv(3, 16, pads=(1, 1, 1, 1), activation=Activation("relu")),
            _conv(16, 8, 5, strides=(2, 1), pads=(0, 1, 2, 3), dilations=(2, 1), groups=2),
            _conv(8, 12, 1, shuffle=2),
        ),
        images=2,
        height=20,
        width=31,
    )
    assert chain.sizes == ((3, 20, 31), (16, 20, 31), (8, 7, 31), (3, 14, 62))


def test_flops_count_the_plain_sums_of_every_picture() -> None:
    layers = (_conv(4, 6, pads=(1, 1, 1, 1)), _conv(6, 6, groups=6, pads=(1, 1, 1, 1)))
    plain = 2 * 3 * 10 * 12 * (6 * 4 * 9 + 6 * 9)
    assert ConvWork(layers, 3, 10, 12).flops == plain


@pytest.mark.parametrize(("dtype", "width"), [("float32", 4), ("float16", 2)])
def test_bytes_count_ends_weights_and_residuals_but_nothing_between_the_layers(
    dtype: str, width: int
) -> None:
    layers = (_conv(1, 16, pads=(1, 1, 1, 1)), _conv(16, 2, pads=(1, 1, 1, 1), adds=True))
    weights = 16 * 9 + 2 * 16 * 9
    pictures = 5 * (6 * 7 * (1 + 2 + 2))
    assert ConvWork(layers, 5, 6, 7, dtype).bytes == width * (pictures + weights)
