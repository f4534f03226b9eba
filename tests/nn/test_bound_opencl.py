"""Bound networks on OpenCL devices give what the definitions give, by OpenCL's own engines."""

from __future__ import annotations

import linecache
from typing import Any

import numpy as np
import pytest

from tests.support.nets import (
    ONE,
    attention,
    picture,
    plain_net,
    residual_blocks,
    upscaler,
    weights_of,
)
from tilewright import Device
from tilewright.calls import network_opencl
from tilewright.nn.net import Network
from tilewright.planning.cost import Curve, Measured

pytest.importorskip("array_api_compat")


def agrees(net: Network, x: Any, device: Device) -> str:
    """The run is right, and says which engines it took."""
    bound, wanted = net.bind(x.shape, device.id), net.run(x)
    assert np.abs(bound(x) - wanted).max() < 2e-5 * np.abs(wanted).max(), bound.explain()
    return str(bound.explain())


def test_a_chain_is_one_kernel(device: Device) -> None:
    told = agrees(plain_net(*upscaler(32, 4, shuffle=True)), picture(1, 1, 61, 83), device)
    if device.kind == "cpu":
        assert "conv_chain, " in told
        # More cores would have more strips than so small a picture gives.
        assert "1 step" in told or device.compute_units > 4


def test_residuals(device: Device) -> None:
    agrees(plain_net(*residual_blocks()), picture(2, 3, 30, 41), device)


def test_strides_groups_and_odd_windows(device: Device) -> None:
    nodes = (
        ("Conv", ("x", "a"), ("p",), {"strides": [2, 2], **ONE}),
        ("Relu", ("p",), ("q",), {}),
        ("Conv", ("q", "b"), ("r",), {"group": 12, **ONE}),
        ("Conv", ("r", "c"), ("y",), {"pads": [0, 0, 0, 0]}),
    )
    weights = weights_of(a=(12, 3, 3, 3), b=(12, 1, 3, 3), c=(5, 12, 1, 1))
    agrees(plain_net(nodes, {"x": (1, 3, "h", "w")}, weights), picture(1, 3, 21, 26), device)


def test_products_are_the_devices_where_it_is_measured_to_be_faster(
    device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    net, x = plain_net(*attention()), picture(2, 19, 24)
    assert "not measured on this device yet" in " ".join(agrees(net, x, device).split())
    fast = Curve(((1e3, 1e-9), (1e12, 1e-6)))
    measured = Measured(fast, (("local", fast), ("naive", fast)), 1e15, None)
    monkeypatch.setattr(network_opencl, "measured_for", lambda *given: measured)
    monkeypatch.setattr("tilewright.engines.dense.CALL", 0.0)
    monkeypatch.setattr("tilewright.planning.cost.CALL", 0.0)
    told = agrees(net, x, device)
    # Seven products, of which the one that ends in gelu is the device's where it has many cores.
    assert told.count("      local, ") + told.count("      naive, ") >= 6


def test_networks_that_are_dropped_leave_nothing(device: Device) -> None:
    """pyopencl keeps a text of two KiB for every kernel object, were it not for us."""
    net = plain_net(*residual_blocks())
    before = 0
    for bind in range(12):
        net.bind((2, 3, 9, 11), device.id)
        if bind == 1:
            before = len(linecache.cache)
    assert len(linecache.cache) <= before
