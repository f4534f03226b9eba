"""conv_gemm and conv_winograd are right: windows, groups, edges of tiles, types, activations."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.backends.opencl.conv.test_conv_direct import WINDOWS, single
from tests.support import made_up
from tests.support.conv_chains import chain, drawn
from tests.support.conv_opencl import check, run, takes
from tilewright import Device
from tilewright.engines.conv import Activation

BOTH = pytest.mark.parametrize("engine", ["conv_gemm", "conv_winograd"])
GEMM, WINOGRAD = "conv_gemm", "conv_winograd"


@pytest.mark.parametrize("window", WINDOWS)
def test_any_window_is_right(window: str, device: Device) -> None:
    check(single(5, 9, (2, 11, 17), **WINDOWS[window]), device, GEMM)


@pytest.mark.parametrize(
    ("inputs", "outputs", "groups"), [(28, 28, 28), (6, 9, 3), (8, 70, 2), (4, 8, 4)]
)
def test_groups_are_right(inputs: int, outputs: int, groups: int, device: Device) -> None:
    check(single(inputs, outputs, (2, 6, 19), groups=groups), device, GEMM)


@BOTH
@pytest.mark.parametrize(
    ("channels", "size"),
    [((3, 28, 5), (1, 9, 33)), ((33, 65, 1), (2, 5, 8)), ((1, 64, 64), (1, 1, 1))],
    ids=str,
)
def test_edges_of_tiles_are_right(
    channels: tuple[int, ...], size: tuple[int, int, int], engine: str, device: Device
) -> None:
    check(chain(channels, size, "float32"), device, engine, tolerance=1e-5)


@pytest.mark.parametrize("width", range(1, 10))
def test_narrow_pictures_are_right(width: int, device: Device) -> None:
    for exact in (False, True):
        work = replace(chain((3, 5, 4), (1, 3, width), "float32"), exact=exact)
        check(work, device, WINOGRAD, tolerance=1e-5)


@BOTH
def test_a_chain_with_residual_and_shuffle_is_right(engine: str, device: Device) -> None:
    work = chain((1, 28, 5, 12), (2, 9, 13), "float32", shuffle=2, adds=True)
    check(replace(work, result="channels_last"), device, engine, tolerance=1e-5)


@BOTH
def test_halves_are_right(engine: str, intel: Device) -> None:
    work = chain((1, 28, 5, 12), (2, 9, 13), "float16", shuffle=2, adds=True)
    check(work, intel, engine)


@BOTH
def test_a_shuffle_between_layers_and_pads_of_any_size_are_right(
    engine: str, device: Device
) -> None:
    work = chain((4, 12, 6), (1, 5, 6), "float32")
    first = replace(work.layers[0], shuffle=2, pads=(2, 0, 1, 3))
    second = single(3, 6, (1, 1, 1), pads=(0, 2, 2, 0)).layers[0]
    check(replace(work, layers=(first, second)), device, engine, tolerance=1e-5)


@BOTH
@pytest.mark.parametrize("kind", ["prelu", "clip", "gelu"])
def test_activations_are_right(kind: str, engine: str, intel: Device) -> None:
    slopes = np.linspace(-0.5, 0.5, 6).astype(np.float32) if kind == "prelu" else None
    how = Activation(kind, low=-0.25, high=0.5, slopes=slopes)
    check(single(3, 6, (1, 5, 6), activation=how), intel, engine, tolerance=1e-5)


@BOTH
@pytest.mark.parametrize("odd", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_stays_in_its_receptive_field(
    odd: float, engine: str, device: Device
) -> None:
    work = chain((3, 5, 7), (1, 12, 21), "float32")
    x: Any = drawn(work)[0]
    x[0, 1, 4, 9] = odd
    found, right = run(work, device, engine, x=x)
    np.testing.assert_array_equal(np.isfinite(found), np.isfinite(right))
    there = np.isfinite(right)
    np.testing.assert_allclose(found[there], right[there], rtol=1e-4, atol=1e-4)


def test_small_work_groups_and_other_windows_are_refused() -> None:
    small = replace(made_up.MALI_G77, max_work_group=128)
    assert not takes(chain((3, 5), (1, 9, 9), "float32"), small, GEMM)
    assert not takes(single(5, 9, (1, 9, 9), strides=(2, 2)), made_up.H200, WINOGRAD)
    assert not takes(single(6, 6, (1, 9, 9), groups=2), made_up.H200, WINOGRAD)
