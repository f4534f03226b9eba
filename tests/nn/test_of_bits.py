"""Networks of bits as networks of any operators: the same bits, by the same program."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.support.onebit_networks import NETWORKS, image
from tilewright.errors import ShapeError
from tilewright.nn.network_of_bits import bits_of, of_bits
from tilewright.nn.profile import parameters


@pytest.mark.parametrize("make", NETWORKS)
def test_bound_layers_of_bits_give_the_same_bits(make: Any) -> None:
    network = make()
    net = of_bits(network)
    x = image(network, 3)
    wanted = network.run(x)
    bound = net.bind(x.shape, device="host")
    np.testing.assert_array_equal(bound(x).reshape(wanted.shape), wanted)
    passes = [step for step in bound.steps if step.node.operator == "PassOfBits"]
    assert len(passes) <= len(network.layers)
    assert {step.engine for step in passes} == {"bits"}
    assert all(0 < step.seconds < 0.1 for step in passes)  # under an emulator slowly
    done = {name for step in passes for name in step.covers}
    work = [row.flops for row in net.profile(x.shape) if row.name in done]
    assert sum(step.flops for step in passes) == sum(work)
    np.testing.assert_array_equal(net.run(x).reshape(wanted.shape), wanted)
    assert bits_of(net) is network


@pytest.mark.parametrize("make", NETWORKS)
def test_each_layer_can_be_run_alone(make: Any) -> None:
    network = make()
    x = image(network, 2)
    bound = of_bits(network).bind(x.shape, device="host", fuse=False)
    assert len(bound.steps) >= 2
    np.testing.assert_array_equal(bound(x).ravel(), network.run(x).ravel())


def test_weights_of_bits_count_as_parameters_and_as_bytes() -> None:
    network = NETWORKS[0]()
    net = of_bits(network)
    count, size = parameters(net.graph)
    assert size == sum(layer.bytes for layer in network.layers)
    assert 8 * size > count > sum(layer.outputs * layer.terms for layer in network.layers[2:3]) > 0
    held = sum(row.bytes for row in net.profile((1, *network.input_shape)))
    assert held > size


def test_sizes_are_those_of_the_network() -> None:
    network = NETWORKS[0]()
    net = of_bits(network)
    assert net.inputs[0].shape == ("N", *network.input_shape)
    with pytest.raises(ShapeError, match="input 'input'"):
        net.bind((1, 2, 3, 4), device="host")
