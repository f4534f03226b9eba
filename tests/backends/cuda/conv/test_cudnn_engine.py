"""The vendor's convolutions take every layer: tested on tensors in the host's memory."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.support import conv_chains
from tests.support.conv_chains import layer
from tests.support.triton_proof import CUDA_H200
from tilewright.backends.cuda.conv.cudnn import Cudnn
from tilewright.engines.conv import ACTIVATIONS, Activation, ConvOperands, ConvWork

pytest.importorskip("torch")


def run(work: ConvWork) -> tuple[object, object]:
    x, out, residuals = conv_chains.drawn(work)
    engine = Cudnn()
    assert engine.why_not(work, CUDA_H200) is None
    engine.bind(engine.propose(work, CUDA_H200), ConvOperands(x, out, residuals))()
    return out, conv_chains.reference(work, x, residuals)


@pytest.mark.parametrize("kind", ACTIVATIONS)
def test_every_activation_is_onnxs(kind: str) -> None:
    slopes = np.linspace(-1, 1, 6, dtype=np.float32) if kind == "prelu" else None
    low, high = {"leaky": (0.1, 0), "clip": (-0.3, 0.6), "hard_sigmoid": (0.2, 0.5)}.get(
        kind, (0, 0)
    )
    rng = np.random.default_rng(3)
    one = layer(rng, 5, 6, activation=Activation(kind, low, high, slopes))
    found, exact = run(ConvWork((one,), 2, 7, 9, "float32"))
    assert conv_chains.error(found, exact) < 1e-6


@pytest.mark.parametrize("source", ["channels_first", "channels_last"])
def test_a_chain_with_strides_groups_odd_pads_a_residual_and_a_shuffle(source: str) -> None:
    rng = np.random.default_rng(4)
    layers = (
        layer(rng, 4, 8, strides=(2, 1), pads=(0, 1, 2, 0), groups=2),
        layer(rng, 8, 8, kernel=(5, 2), dilations=(1, 2), pads=(2, 1, 2, 1), groups=8),
        layer(rng, 8, 12, kernel=(1, 1), pads=(0, 0, 0, 0), adds=True, shuffle=2),
    )
    work = ConvWork(layers, 2, 15, 11, "float32", source=source, result=source)  # type: ignore[arg-type]
    found, exact = run(work)
    assert conv_chains.error(found, exact) < 1e-6


def test_a_device_without_the_element_type_is_told() -> None:
    work = conv_chains.chain((1, 8, 4), (1, 5, 5), "bfloat16")
    told = Cudnn().why_not(work, replace(CUDA_H200, features=frozenset()))
    assert "bfloat16" in str(told)
