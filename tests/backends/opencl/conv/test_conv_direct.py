"""conv_direct and conv_direct_image are right: any window, group, size, activation, memory."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.support.conv_chains import chain, layer
from tests.support.conv_opencl import check, run
from tilewright import Device
from tilewright.engines.conv import ACTIVATIONS, Activation, ConvWork

BOTH = pytest.mark.parametrize("engine", ["conv_direct", "conv_direct_image"])
RNG = np.random.default_rng(5)
WINDOWS: dict[str, Any] = {
    "3x3": {},
    "1x1": {"kernel": (1, 1), "pads": (0, 0, 0, 0)},
    "5x2, uneven pads": {"kernel": (5, 2), "pads": (2, 0, 1, 3)},
    "strides": {"strides": (2, 3)},
    "dilations": {"dilations": (2, 3), "pads": (2, 3, 2, 3)},
    "7x7 by 2": {"kernel": (7, 7), "strides": (2, 2), "pads": (3, 3, 3, 3)},
}


def single(inputs: int, outputs: int, size: tuple[int, int, int], **facts: Any) -> ConvWork:
    """A chain of one layer."""
    return ConvWork((layer(np.random.default_rng(3), inputs, outputs, **facts),), *size)


@BOTH
@pytest.mark.parametrize("window", WINDOWS)
def test_any_window_is_right(window: str, engine: str, device: Device) -> None:
    check(single(5, 9, (2, 11, 17), **WINDOWS[window]), device, engine)


@BOTH
@pytest.mark.parametrize(
    ("inputs", "outputs", "groups"), [(28, 28, 28), (5, 5, 5), (8, 16, 2), (64, 32, 2)]
)
def test_groups_are_right(
    inputs: int, outputs: int, groups: int, engine: str, device: Device
) -> None:
    check(single(inputs, outputs, (1, 6, 19), groups=groups), device, engine)


@pytest.mark.parametrize(("inputs", "outputs", "groups"), [(6, 9, 3), (4, 8, 4), (10, 4, 2)])
def test_groups_of_no_whole_blocks_are_right(
    inputs: int, outputs: int, groups: int, device: Device
) -> None:
    check(single(inputs, outputs, (2, 5, 7), groups=groups), device, "conv_direct")


@BOTH
@pytest.mark.parametrize("width", [1, 2, 3, 4, 5, 8, 9, 15])
def test_narrow_pictures_are_right(width: int, engine: str, device: Device) -> None:
    check(chain((3, 33, 1), (1, 1 if width == 1 else 3, width), "float32"), device, engine)


@BOTH
def test_a_chain_with_residual_and_shuffle_is_right(engine: str, device: Device) -> None:
    check(chain((1, 28, 5, 12), (2, 9, 13), "float32", shuffle=2, adds=True), device, engine)


@BOTH
def test_halves_are_right(engine: str, intel: Device) -> None:
    check(chain((1, 28, 5, 12), (2, 9, 13), "float16", shuffle=2, adds=True), intel, engine)


def test_halves_are_right_on_a_device_without_half_arithmetic(pocl: Device) -> None:
    assert not pocl.has("fp16")
    check(chain((3, 5, 4), (1, 6, 9), "float16"), pocl, "conv_direct")


def test_a_shuffle_before_the_last_layer_is_right(device: Device) -> None:
    work = chain((4, 12, 20, 6), (1, 5, 6), "float32")
    shuffled = replace(work.layers[1], shuffle=2)
    last = layer(np.random.default_rng(1), 5, 6)
    check(replace(work, layers=(work.layers[0], shuffled, last)), device, "conv_direct")


@BOTH
def test_channels_last_in_and_out_are_right(engine: str, device: Device) -> None:
    work = chain((3, 8, 16), (2, 7, 9), "float32")
    check(replace(work, source="channels_last", result="channels_last"), device, engine)


@pytest.mark.parametrize("kind", ACTIVATIONS)
def test_every_activation_is_right(kind: str, opencl_device: Device) -> None:
    slopes = np.linspace(-0.5, 0.5, 6).astype(np.float32) if kind == "prelu" else None
    low = -0.25 if kind == "clip" else 0.2
    how = Activation(kind, low=low, high=0.5, slopes=slopes)
    check(single(3, 6, (1, 5, 6), activation=how), opencl_device, "conv_direct")


@BOTH
@pytest.mark.parametrize("odd", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_stays_in_its_receptive_field(
    odd: float, engine: str, device: Device
) -> None:
    import torch

    x = torch.from_numpy(RNG.standard_normal((1, 3, 12, 21)).astype(np.float32))
    x[0, 1, 4, 9] = odd
    found, right = run(chain((3, 5, 7), (1, 12, 21), "float32"), device, engine, x=x)
    np.testing.assert_array_equal(np.isfinite(found), np.isfinite(right))
    there = np.isfinite(right)
    np.testing.assert_allclose(found[there], right[there], rtol=1e-4, atol=1e-4)
