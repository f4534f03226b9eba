"""conv_int8 gives the definition's bits: windows, groups, rounding at ties, long sums."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.support import made_up
from tests.support.conv_chains import drawn_whole, whole_layer, whole_reference
from tests.support.conv_opencl import bound, takes
from tests.support.nets import picture, plain_net, upscaler
from tilewright import Device
from tilewright.backends.opencl.conv.int8 import edges
from tilewright.engines.conv import Conv, ConvOperands, ConvWork, Format, Whole
from tilewright.nn import quantise

EVERY = np.full(1, 1e-4, np.float32)
TO_BYTES: dict[str, Any] = {"step": 0.02, "shift": 120, "dtype": "uint8"}
SIZE = (2, 7, 19)


def one(
    inputs: int, outputs: int, facts: Whole, memory: Format = "channels_last", **more: Any
) -> ConvWork:
    made = whole_layer(np.random.default_rng(8), inputs, outputs, facts, **more)
    return ConvWork((made,), *SIZE, facts.source, source=memory, result=memory)


def chain() -> ConvWork:
    layers: list[Conv] = []
    for work in (
        one(3, 20, Whole(9, EVERY, taken=0.01, **TO_BYTES)),
        one(20, 12, Whole(120, EVERY, 0.0, **TO_BYTES), shuffle=2),
        one(3, 24, Whole(120, EVERY, step=0.03, shift=-7, dtype="int8")),
        one(24, 4, Whole(-7, EVERY, source="int8"), shuffle=2),
    ):
        layers += work.layers
    return ConvWork(tuple(layers), *SIZE, "uint8")


WORKS = {
    "limits": one(5, 20, Whole(128, EVERY, 0.0, **TO_BYTES)),
    "rounded x": one(1, 18, Whole(3, EVERY, taken=0.0123, **TO_BYTES), kernel=(5, 3)),
    "float result": one(
        32, 18, Whole(-5, EVERY, low=-0.3, high=0.6, source="int8"), strides=(2, 1)
    ),
    "1x1": one(64, 40, Whole(0, EVERY, step=0.03, shift=-7, dtype="int8"), kernel=(1, 1)),
    "groups": one(8, 16, Whole(255, EVERY, **TO_BYTES), groups=2, pads=(0, 1, 2, 0)),
    "whole groups": one(32, 32, Whole(31, EVERY, **TO_BYTES), groups=2),
    "depthwise": one(40, 40, Whole(77, EVERY, **TO_BYTES), groups=40, dilations=(2, 1)),
    "shuffled": one(4, 16, Whole(17, EVERY), memory="channels_first", shuffle=2),
    "chain": chain(),
}


def check(work: ConvWork, device: Device, x: Any = None) -> None:
    x = drawn_whole(work) if x is None else x
    wanted = whole_reference(work, x)
    out = np.full_like(wanted, 99)
    if work.result == "channels_last":
        out = np.ascontiguousarray(out.transpose(0, 2, 3, 1)).transpose(0, 3, 1, 2)
    run = bound(work, device, "conv_int8", ConvOperands(x, out))
    run()
    np.testing.assert_array_equal(out, wanted)


@pytest.mark.parametrize("name", WORKS)
def test_bits_are_the_definitions(name: str, device: Device) -> None:
    check(WORKS[name], device)


def test_devices_that_do_not_reach_the_hosts_memory_give_them_too(intel: Device) -> None:
    near = {"svm_system", "svm_fine", "svm_coarse", "unified_memory"}
    check(WORKS["chain"], replace(intel, features=intel.features - near))


def test_gpus_blocks_of_halves_give_them_too(device: Device) -> None:
    for work in WORKS.values():
        check(work, replace(device, kind="gpu"))


def test_sums_past_2_to_the_24_are_exact(device: Device) -> None:
    for most in (127, -128):
        work = one(300, 17, Whole(0, EVERY / 50, **TO_BYTES))
        (layer,) = work.layers
        layer = replace(layer, weights=np.full_like(layer.weights, most))
        layer.weights[:, ::2, 0, 0] = 3
        x = np.full((2, 300, 7, 19), 255, np.uint8)
        x[:, ::7] -= 100
        check(replace(work, layers=(layer,)), device, x)


@pytest.mark.filterwarnings("ignore:overflow encountered in divide")
@pytest.mark.parametrize("step", [0.1, 0.0123, 3.0])
@pytest.mark.parametrize("dtype", ["uint8", "int8"])
def test_ties_are_rounded_as_numpy_does(dtype: str, step: float, device: Device) -> None:
    """Every half and its neighbours, what is beyond the type, and what is no number."""
    ends = np.iinfo(dtype)
    whole = Whole(int(ends.min) + 100, np.ones(1, np.float32), source=dtype, taken=step)
    layer = Conv(np.ones((1, 1, 1, 1), np.int8), whole=whole)
    at = np.float32(np.arange(-400, 400) / 2) * np.float32(step)
    near = [at, np.nextafter(at, np.float32(np.inf)), np.nextafter(at, np.float32(-np.inf))]
    x = np.concatenate([*near, np.float32([np.inf, -np.inf, 3e38, -1e-40, 0])]).reshape(1, 1, 1, -1)
    check(ConvWork((layer,), 1, 1, x.shape[-1], dtype), device, x)


def test_edges_are_where_the_definition_turns() -> None:
    found = edges(0.0123, 7, "int8")
    below = np.nextafter(found[1:], np.float32(-np.inf))
    for y, wanted in ((found[1:], np.arange(-127, 128)), (below, np.arange(-128, 127))):
        ratio = np.round(y / np.float32(0.0123)) + np.float32(7)
        assert np.array_equal(np.clip(ratio, -128, 127), wanted)


def test_what_it_does_not_take_is_refused() -> None:
    floats = ConvWork((Conv(np.ones((4, 4, 3, 3), np.float32)),), 1, 9, 9)
    assert not takes(floats, made_up.ADRENO_650, "conv_int8")
    assert takes(WORKS["chain"], made_up.ADRENO_650, "conv_int8")
    assert not takes(WORKS["chain"], made_up.ADRENO_650, "conv_direct")
    adds = replace(WORKS["limits"].layers[0], adds=True)
    assert not takes(replace(WORKS["limits"], layers=(adds,)), made_up.ADRENO_650, "conv_int8")


def test_a_quantised_network_runs_by_it(device: Device) -> None:
    text = upscaler(16, 3, shuffle=True)
    x = picture(1, 1, 37, 52)
    net = quantise(plain_net(*text), [x])
    wanted = net.bind(x.shape, "host")(x)
    run = net.bind(x.shape, device.id)
    assert "conv_int8, " in run.explain()
    np.testing.assert_array_equal(run(x), wanted)
