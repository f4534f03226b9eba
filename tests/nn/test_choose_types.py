"""Types by layer: what saves most for its error first, within the loss that is allowed."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.nn.test_quantise import chain, pictures
from tests.support import nets
from tests.support.peak_probes import made_up
from tilewright import nn
from tilewright.errors import ArgumentError
from tilewright.facts.ceilings import Rate
from tilewright.inputs.devices import host
from tilewright.nn import choosing
from tilewright.nn.choosing import picked
from tilewright.nn.net import Network

pytest.importorskip("onnx")


@pytest.fixture(scope="module")
def net() -> Network:
    return nn.import_onnx(chain(channels=8))


def test_a_greater_loss_takes_more_layers_out_of_float32(net: Network) -> None:
    samples = pictures(2, 12)
    little = nn.choose_types(net, samples, loss=1e-4, device="host")
    much = nn.choose_types(net, samples, loss=0.05, device="host")
    assert {layer.chosen for layer in little.layers} <= {"float32", "float16"}
    assert "int8" in {layer.chosen for layer in much.layers}
    assert little.error <= 1e-4 < much.error <= 0.05
    for layer in much.layers:
        assert layer.errors["float16"] < layer.errors["int8"]


def test_the_network_that_comes_of_it_has_the_error_that_is_said(net: Network) -> None:
    samples = pictures(2, 12)
    found = nn.choose_types(net, samples, loss=0.01, device="host")
    wanted = np.asarray(net.run(samples), np.float64)
    made = np.asarray(found.network.run(samples), np.float64)
    error = np.sqrt(((made - wanted) ** 2).sum() / (wanted**2).sum())
    assert error == pytest.approx(found.error, rel=1e-3)
    bound = found.network.bind(samples.shape, "host")(samples)
    assert np.sqrt(((bound - wanted) ** 2).sum() / (wanted**2).sum()) < 0.02


def test_times_are_what_engines_predict_of_the_network_in_each_type(net: Network) -> None:
    """The host computes halves in float32, which gains nothing, so that they are never chosen."""
    samples = pictures(1, 12)
    found = nn.choose_types(net, samples, loss=0.05, shape=(1, 1, 90, 160), device="host")
    plain = net.planned((1, 1, 90, 160), host())
    whole = nn.quantise(net, samples, method="squares").planned((1, 1, 90, 160), host())
    for kind, plan in (("float32", plain), ("int8", whole)):
        total = sum(layer.seconds[kind] for layer in found.layers)
        assert total == pytest.approx(plan.seconds, rel=1e-6), kind
    for layer in found.layers:
        assert layer.seconds["float16"] == pytest.approx(layer.seconds["float32"], rel=1e-6)
    chosen = found.network.planned((1, 1, 90, 160), host()).seconds
    assert found.seconds == pytest.approx((plain.seconds, chosen), rel=1e-6)


def test_a_mix_that_cuts_chains_gives_way_to_one_type_where_that_is_faster(
    net: Network, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bargains are planned as they come out: here all but the first layer, which is slower."""
    monkeypatch.setattr(choosing, "picked", lambda errors, seconds, loss: {"c1": "int8"})
    found = nn.choose_types(net, pictures(1, 12), loss=0.05, shape=(1, 1, 360, 640), device="host")
    assert len({layer.chosen for layer in found.layers}) == 1
    assert found.seconds[1] <= found.seconds[0]
    assert found.error <= 0.05


def test_layers_that_no_engine_takes_go_by_measured_ceilings() -> None:
    weights = np.random.default_rng(0).standard_normal((6, 4, 3)).astype(np.float32)
    model = nets.model([("Conv", ["x", "w"], ["y"], {})], {"x": (1, 4, 8)}, {"w": weights})
    net, known = nn.import_onnx(model), made_up(host().key)
    fast = (*known.rates, Rate("int8", "dot", value=1e30))
    device = replace(host(), ceilings=replace(known, rates=fast))
    samples = np.random.default_rng(1).random((1, 1, 4, 8), np.float32)
    found = nn.choose_types(net, list(samples), device=device)
    (row,) = (row for row in net.profile() if row.operator == "Conv")
    (layer,) = found.layers
    assert layer.seconds["float32"] == device.ceilings.seconds(row.flops, row.bytes, "float32")
    assert layer.seconds["int8"] == device.ceilings.seconds(row.flops, row.bytes / 4, "int8")


def test_the_table_has_a_line_for_each_layer_and_the_sum(net: Network) -> None:
    found = nn.choose_types(
        net, pictures(1, 12), loss=0.05, device=replace(host(), compute_units=2)
    )
    *lines, total, legend = found.table().splitlines()
    assert [line.split()[0] for line in lines[1:]] == [f"c{at}" for at in range(5)]
    assert total.startswith("predicted ")
    assert legend.startswith("~ a share")
    assert all(layer.shares == set(layer.seconds) for layer in found.layers)
    assert all(line.count("~") == 3 for line in lines[1:])


def test_a_layer_that_is_predicted_by_itself_has_no_mark() -> None:
    weights = np.random.default_rng(0).standard_normal((6, 4, 5, 5)).astype(np.float32)
    model = nets.model([("Conv", ["x", "w"], ["y"], {})], {"x": (1, 4, 9, 9)}, {"w": weights})
    samples = np.random.default_rng(1).random((1, 4, 9, 9), np.float32)
    found = nn.choose_types(nn.import_onnx(model), samples, loss=0.05, device="host")
    assert found.layers[0].shares == frozenset()
    assert "~" not in found.table()
    assert "µs" in found.table(), "tens of microseconds are not shown as 0.0 ms"


def test_bargains_are_picked_by_seconds_saved_for_their_error() -> None:
    errors = {
        "a": {"float32": 0.0, "float16": 1e-3, "int8": 3e-2},
        "b": {"float32": 0.0, "float16": 1e-3, "int8": 5e-3},
    }
    seconds = {key: {"float32": 4.0, "float16": 2.0, "int8": 1.0} for key in "ab"}
    assert picked(errors, seconds, 1e-2) == {"a": "float16", "b": "int8"}
    assert picked(errors, seconds, 1e-4) == {}
    assert picked(errors, seconds, 1.0) == {"a": "int8", "b": "int8"}
    slow = {key: {"float32": 1.0, "float16": 1.0, "int8": 2.0} for key in "ab"}
    assert picked(errors, slow, 1.0) == {}


def test_a_loss_that_is_none_is_named(net: Network) -> None:
    with pytest.raises(ArgumentError, match="loss=0: accepted are numbers above 0"):
        nn.choose_types(net, pictures(1, 12), loss=0)
