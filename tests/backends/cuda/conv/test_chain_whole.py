"""Chains of whole numbers by kernels of halves: which are taken, and the numbers that they get."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.support import conv_chains, whole_chains
from tests.support.triton_proof import CUDA_H200
from tilewright.backends.cuda.conv import chain_launch, chain_pack, chain_plan, chain_whole
from tilewright.backends.cuda.conv.chain import CHAIN, CHAIN_MMA, Chained
from tilewright.backends.cuda.conv.triton import TritonConv
from tilewright.engines.conv import Conv, ConvWork

torch: Any = pytest.importorskip("torch")
WORK = whole_chains.chain((1, 32, 32, 4), (1, 20, 30))


def changed(index: int, **facts: Any) -> ConvWork:
    """The chain with other facts of a layer's whole numbers."""
    layers = list(WORK.layers)
    layers[index] = replace(layers[index], whole=replace(layers[index].whole, **facts))
    return replace(WORK, layers=tuple(layers))


def test_a_chain_from_floats_to_floats_is_taken() -> None:
    assert chain_whole.unfit(WORK) is None
    assert CHAIN.propose(WORK, CUDA_H200).seconds


@pytest.mark.parametrize("engine", [CHAIN, CHAIN_MMA], ids=lambda one: one.name)
def test_they_are_predicted_to_take_longer_than_halves(engine: Chained) -> None:
    """And less than a launch a layer; types are chosen by it."""
    channels, size = (1, 32, 32, 32, 32, 32, 4), (1, 1080, 1920)
    work = whole_chains.chain(channels, size)
    seconds = engine.propose(work, CUDA_H200).seconds
    halves = engine.propose(conv_chains.chain(channels, size, shuffle=2), CUDA_H200).seconds
    assert halves < seconds < 2 * halves
    assert seconds < TritonConv().propose(work, CUDA_H200).seconds


def test_sums_that_float32_does_not_hold_are_refused() -> None:
    one = WORK.layers[1]
    large = replace(one, bias=np.full(32, 1 << 24, np.int32))
    work = replace(WORK, layers=(WORK.layers[0], large, WORK.layers[2]))
    assert "layers[1]: sums of up to" in str(chain_whole.unfit(work))
    least = 255 * np.abs(one.weights.astype(int)).sum(axis=(1, 2, 3)) + np.abs(one.bias)
    assert int(least.max()) < 1 << 24


def test_layers_that_do_not_follow_each_other_are_refused() -> None:
    assert "layers[1] takes other numbers" in str(chain_whole.unfit(changed(1, zero=9)))
    assert "layers[1] takes other" in str(chain_whole.unfit(changed(1, source="int8")))
    mixed = replace(
        WORK, layers=(*WORK.layers[:2], conv_chains.chain((32, 4), (1, 1, 1)).layers[0])
    )
    assert "layers[2]: float" in str(chain_whole.unfit(mixed))


def test_many_channels_of_bytes_are_left_to_others() -> None:
    rest = replace(WORK, layers=WORK.layers[1:])
    assert "32 channels of whole numbers at first" in str(chain_whole.unfit(rest))


def test_weights_are_exact_in_halves_and_scales_lie_where_slopes_do() -> None:
    (part,) = chain_plan.cut(WORK, CHAIN.machine(CUDA_H200))
    blob = chain_pack.packed(part, WORK.dtype)
    one: Conv = WORK.layers[1]
    at = part.places["SLOPES1"]
    scales = blob[at : at + 128].view(torch.float32).numpy()
    np.testing.assert_array_equal(scales, one.whole.scale)
    begin, width = part.places["WEIGHTS1"], 2 * 9 * 32 * 32
    packed = blob[begin : begin + width].view(torch.float16).numpy()
    assert sorted(packed.tolist()) == sorted(one.weights.ravel().tolist())


def test_limits_come_after_the_division_and_less_what_stands_for_0() -> None:
    filled = chain_launch.Chain()
    whole = replace(WORK.layers[1].whole, low=-0.3, high=0.9, step=0.1, shift=-3, dtype="int8")
    chain_whole.fill(filled, 1, whole)
    assert (filled.low[1], filled.high[1]) == pytest.approx((-3.0, 9.0))
    chain_whole.fill(filled, 2, replace(whole, low=-np.inf, high=np.inf))
    assert (filled.low[2], filled.high[2]) == (-125, 130)
    assert filled.inverse[2] == np.float32(1) / np.float32(0.1)
    chain_whole.fill_source(filled, WORK.layers[0].whole)
    assert (filled.zero, filled.least, filled.most) == (7, -7, 248)
