"""Which tiles convolutions in Triton get, and what layers are predicted to take: planned alone."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.support.conv_chains import layer, whole_layer
from tests.support.triton_proof import CUDA_H200
from tilewright.backends.cuda.conv import cost, tiles
from tilewright.backends.cuda.conv.cudnn import Cudnn
from tilewright.backends.cuda.conv.engines import CONV_ENGINES
from tilewright.backends.cuda.conv.triton import TritonConv
from tilewright.engines.choose import choose
from tilewright.engines.conv import Activation, Conv, ConvWork, Whole

RELU = Activation("relu")
WIDTH = {"float16": 2, "float32": 4}
# Inputs, outputs, window, stride, size, and microseconds of the fastest tile and of cuDNN with bias
# and ReLU, as an H200 took them in a CUDA graph.
MEASURED = [
    ("float16", (64, 64, 3, 1, 56), 5.0, 6.3),
    ("float16", (128, 128, 3, 1, 28), 6.1, 6.3),
    ("float16", (256, 256, 3, 1, 14), 6.5, 7.9),
    ("float16", (512, 512, 3, 1, 7), 6.9, 11.9),
    ("float16", (64, 384, 1, 1, 14), 2.3, 4.1),
    ("float16", (960, 160, 1, 1, 7), 4.6, 5.6),
    ("float16", (256, 256, 3, 1, 56), 18.8, 11.3),
    ("float32", (64, 64, 3, 1, 56), 13.3, 25.4),
    ("float32", (256, 256, 3, 1, 14), 13.8, 67.7),
    ("float32", (512, 512, 3, 1, 7), 14.8, 132.9),
]


def work_of(dtype: str, facts: tuple[int, int, int, int, int], **more: Any) -> ConvWork:
    inputs, outputs, window, stride, size = facts
    pads = (window // 2,) * 4
    rng = np.random.default_rng(0)
    one = layer(
        rng, inputs, outputs, kernel=(window, window), strides=(stride, stride), pads=pads,
        activation=RELU, **more,
    )  # fmt: skip
    memory: Any = {"source": "channels_last", "result": "channels_last"}
    return ConvWork((one,), 1, size, size, dtype, **memory)


@pytest.mark.parametrize(("dtype", "facts", "ours", "theirs"), MEASURED)
def test_predictions_are_within_a_third_of_what_was_measured(
    dtype: str, facts: Any, ours: float, theirs: float
) -> None:
    work = work_of(dtype, facts)
    for engine, measured in ((TritonConv(), ours), (Cudnn(), theirs)):
        predicted = engine.propose(work, CUDA_H200).seconds
        assert predicted is not None
        assert 0.7 < 1e6 * predicted / measured < 1.35, engine.name
    chosen = choose(work, CUDA_H200, CONV_ENGINES).best.engine
    if max(ours, theirs) > 1.1 * min(ours, theirs):
        assert chosen == ("triton" if ours < theirs else "cudnn")


def tile(one: Conv, pixels: int, width: int = 2) -> tiles.Tile:
    work = ConvWork((one,), 1, 8, 8, "float32" if width == 4 else "float16")
    return tiles.tile_of(one, pixels, 132, width, cost.tile_rates(work, CUDA_H200))


def test_layers_of_few_results_share_their_k() -> None:
    rng = np.random.default_rng(0)
    deep = layer(rng, 512, 512)
    assert tile(deep, 49).splits > 1
    assert tile(deep, 49, 4).splits > 1
    assert tile(deep, 500_000).splits == 1
    assert tile(layer(rng, 16, 16), 49).splits == 1


@pytest.mark.parametrize("width", [1, 2, 4])
@pytest.mark.parametrize(
    "facts", [(1, 32, 3), (3, 64, 7), (20, 24, 3), (32, 4, 3), (64, 64, 1), (96, 1000, 1)]
)
@pytest.mark.parametrize("pixels", [1, 49, 12544, 1 << 21])
def test_tiles_cover_every_result_and_all_of_k_once(width: int, facts: Any, pixels: int) -> None:
    inputs, outputs, window = facts
    rng = np.random.default_rng(0)
    one = layer(rng, inputs, outputs, kernel=(window, window), pads=(window // 2,) * 4)
    if width == 1:
        one = whole_layer(rng, inputs, outputs, Whole(0, np.ones(outputs, np.float32)))
    found = tile(one, pixels, width)
    depth, share = one.weights[0].size, tiles.share(one, found)
    assert found.n <= max(16, tiles.power(outputs))
    assert found.k >= (32 if width == 1 else 16)
    assert share % found.k == 0
    assert share * found.splits >= depth
    count = tiles.programs(one, pixels, found)
    assert count == -(-pixels // found.m) * -(-outputs // found.n) * found.splits
    assert tiles.resident(found, width) >= 1


@pytest.mark.parametrize("pixels", [1, 49, 12544, 1 << 21])
@pytest.mark.parametrize("channels", [2, 20, 96, 1152])
@pytest.mark.parametrize("window", [(3, 3), (7, 7), (8, 8), (16, 16), (31, 31), (1, 65), (300, 1)])
def test_windows_of_many_taps_are_not_written_out(
    window: tuple[int, int], channels: int, pixels: int
) -> None:
    """A mean's 16 x 16 took minutes to compile, EfficientNet's bind with it."""
    rng, taps = np.random.default_rng(0), window[0] * window[1]
    found = tile(layer(rng, channels, channels, groups=channels, kernel=window), pixels, 4)
    assert found.n <= max(2, tiles.power(channels))
    if taps <= 49:
        assert found.m > 1
    else:
        assert found.m == 1
        assert found.n * found.k <= 2048
        assert 64 <= found.k < 2 * taps


def test_more_multiprocessors_take_less_time() -> None:
    work = work_of("float16", (64, 64, 3, 1, 224))
    small = replace(CUDA_H200, compute_units=46)
    engine = TritonConv()
    ours, theirs = (engine.propose(work, one).seconds for one in (CUDA_H200, small))
    assert ours is not None
    assert theirs is not None
    assert theirs > 1.5 * ours
