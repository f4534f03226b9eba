"""1 x 1 convolutions and the depthwise ones after them in one step, beside float64."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.support.conv_chains import drawn, layer, reference
from tilewright.backends.host.conv_expand import ExpandDepthwise
from tilewright.backends.host.native import host
from tilewright.engines.conv import ACTIVATIONS, Activation, ConvOperands, ConvWork

pytest.importorskip("numba")
pytest.importorskip("torch")

ENGINE = ExpandDepthwise()
RELU6 = Activation("clip", 0.0, 6.0)


def work(
    inputs: int, outputs: int, size: tuple[int, int, int], how: Activation = RELU6, **facts: Any
) -> ConvWork:
    """Both layers; `facts` are the depthwise one's."""
    rng = np.random.default_rng(7)
    facts.setdefault("pads", (facts.get("kernel", (3, 3))[0] // 2,) * 4)
    wide = layer(rng, inputs, outputs, kernel=(1, 1), pads=(0,) * 4, activation=how)
    deep = layer(rng, outputs, outputs, groups=outputs, activation=how, **facts)
    return ConvWork((wide, deep), *size, source="channels_last", result="channels_last")


def check(one: ConvWork, cores: int = 2) -> None:
    """Right, and twice the same bits."""
    x, out, _ = drawn(one)
    device = replace(host(), compute_units=cores)
    assert ENGINE.why_not(one, device) is None
    program = ENGINE.bind(ENGINE.propose(one, device), ConvOperands(x.numpy(), out.numpy()))
    right = reference(one, x).numpy()
    for _ in range(2):
        out[...] = np.nan
        program()
        np.testing.assert_allclose(out.numpy(), right, rtol=0, atol=3e-6 * np.abs(right).max())


WORKS = {
    "as phones have it": work(24, 144, (1, 28, 28)),
    "steps of two": work(16, 96, (1, 28, 28), strides=(2, 2)),
    "odd sizes": work(17, 33, (1, 13, 11)),
    "odd sizes, steps of two": work(9, 50, (2, 15, 13), strides=(2, 2)),
    "5x5": work(16, 40, (1, 14, 14), kernel=(5, 5)),
    "5x5, steps of two": work(16, 40, (1, 15, 17), kernel=(5, 5), strides=(2, 2)),
    "seven pixels": work(64, 96, (3, 7, 7)),
    "one row": work(8, 16, (1, 1, 9)),
    "few channels": work(3, 5, (1, 9, 8)),
    "no pads": work(8, 20, (1, 12, 9), pads=(0, 0, 0, 0)),
    "pads that differ": work(8, 20, (1, 12, 9), pads=(0, 2, 2, 1), strides=(2, 2)),
    "an empty row below": work(8, 20, (1, 12, 9), pads=(2, 1, 2, 0)),
}


@pytest.mark.parametrize("name", WORKS)
def test_both_layers_are_right_in_one_step(name: str) -> None:
    check(WORKS[name])


@pytest.mark.parametrize("cores", [1, 3, 8])
def test_any_number_of_cores_gives_the_same(cores: int) -> None:
    check(work(24, 144, (1, 29, 28)), cores)


@pytest.mark.parametrize("kind", ACTIVATIONS)
def test_every_activation_is_right_after_both_layers(kind: str) -> None:
    slopes = np.linspace(-1, 1, 40, dtype=np.float32) if kind == "prelu" else None
    numbers = {"leaky": (0.1, 0.0), "clip": (-0.3, 0.6), "hard_sigmoid": (0.2, 0.5)}
    check(work(12, 40, (1, 9, 8), Activation(kind, *numbers.get(kind, (0.0, 0.0)), slopes)))


def test_what_is_no_number_stays_in_its_field() -> None:
    one = work(16, 16, (1, 9, 10))
    x, out, _ = drawn(one)
    x[0, 3, 4, 5] = np.nan
    ENGINE.bind(ENGINE.propose(one, host()), ConvOperands(x.numpy(), out.numpy()))()
    field = np.zeros((9, 10), bool)
    field[3:6, 4:7] = True
    assert np.isnan(out.numpy()[:, :, field]).all()
    assert not np.isnan(out.numpy()[:, :, ~field]).any()


def test_refusals_say_which_layer_and_what_is_taken() -> None:
    one = work(16, 16, (1, 9, 9))
    wide, deep = one.layers
    assert "layer 2: groups=1" in str(ENGINE.why_not(replace(one, layers=(wide, wide)), host()))
    assert "layer 1: computes" in str(ENGINE.why_not(replace(one, layers=(deep, deep)), host()))
    assert "takes two" in str(ENGINE.why_not(replace(one, layers=(wide,)), host()))
    assert "float32" in str(ENGINE.why_not(replace(one, dtype="float16"), host()))
    assert "channels last" in str(ENGINE.why_not(replace(one, source="channels_first"), host()))
    assert "7 pixels" in str(ENGINE.why_not(replace(one, width=6), host()))
