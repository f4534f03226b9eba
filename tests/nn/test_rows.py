"""Softmax and normalisation on the host's kernels: near exact sums, NaN as definitions do."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.nn.test_products import exact
from tests.support.nets import NodeText, picture, plain_net, weights_of
from tilewright.nn.net import Network

pytest.importorskip("numba")
LAST = {"axis": -1}
LAYER = {"epsilon": 1e-5, "stash_type": 1}


def one(operator: str, shape: tuple[int, ...], fields: Any, ends: tuple[int, ...] = ()) -> Network:
    """A network of this node alone; `ends` are sizes of scale and bias."""
    held = weights_of(s=ends, b=ends) if ends else {}
    nodes: list[NodeText] = [(operator, ["x", *held], ["y"], fields)]
    return plain_net(nodes, {"x": shape}, held)


CASES = {
    "a row shorter than a vector": ("Softmax", (7, 5), LAST, ()),
    "a row of a vector and a bit": ("Softmax", (3, 4, 33), LAST, ()),
    "a row of many blocks": ("Softmax", (2, 5000), LAST, ()),
    "channels of a picture": ("Softmax", (2, 21, 9, 11), {"axis": 1}, ()),
    "the last axis of four": ("Softmax", (2, 3, 7, 19), {"axis": 3}, ()),
    "one number": ("Softmax", (4, 1), LAST, ()),
    "a layer": ("LayerNormalization", (3, 7, 40), {"axis": -1, **LAYER}, (40,)),
    "a layer of two axes": ("LayerNormalization", (5, 6, 7), {"axis": 1, **LAYER}, (6, 7)),
    "a layer of four axes": ("LayerNormalization", (2, 3, 4, 70), {"axis": 3, **LAYER}, (70,)),
    "instances of few channels": ("InstanceNormalization", (2, 3, 20, 31), {"epsilon": 1e-3}, (3,)),
    "instances of channels": ("InstanceNormalization", (2, 21, 20, 31), {"epsilon": 1e-5}, (21,)),
    "instances of signals": ("InstanceNormalization", (2, 18, 77), {"epsilon": 1e-5}, (18,)),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("offset", [0.0, 100.0])
def test_they_are_as_near_exact_sums_as_definitions_are(name: str, offset: float) -> None:
    operator, shape, fields, ends = CASES[name]
    net = one(operator, shape, fields, ends)
    x = (3 * picture(*shape) + np.float32(offset)).astype(np.float32)
    bound = net.bind(None, "host")
    wanted, defined = exact(net, x), net.run(x)
    largest = np.abs(wanted).max()
    allowed = 2 * np.abs(defined - wanted).max() + 1e-6 * largest
    for _ in range(2):
        assert np.abs(bound(x) - wanted).max() <= allowed
    assert "definition" not in {step.engine for step in bound.steps}


@pytest.mark.parametrize("name", CASES)
def test_nan_and_infinities_go_where_definitions_have_them(name: str) -> None:
    operator, shape, fields, ends = CASES[name]
    net = one(operator, shape, fields, ends)
    for bad in (np.nan, np.inf, -np.inf):
        x = picture(*shape)
        x.reshape(-1)[[0, x.size // 2]] = bad
        made, wanted = net.bind(None, "host")(x), net.run(x)
        np.testing.assert_array_equal(np.isnan(made), np.isnan(wanted))
        np.testing.assert_allclose(made, wanted, rtol=1e-4, atol=1e-5)


def test_a_row_of_minus_infinities_is_nan_and_others_are_masked() -> None:
    x = picture(3, 40)
    x[0], x[1, 5:] = -np.inf, -np.inf
    net = one("Softmax", (3, 40), LAST)
    made, wanted = net.bind(None, "host")(x), net.run(x)
    assert np.isnan(made[0]).all()
    np.testing.assert_array_equal(made[1, 5:], 0)
    np.testing.assert_allclose(made, wanted, rtol=1e-5, atol=1e-6)


def test_what_has_no_such_form_stays_a_definition() -> None:
    for operator, shape, fields in (
        ("Softmax", (2, 3, 4), {"axis": 1}),
        ("LogSoftmax", (2, 3), LAST),
    ):
        net, x = one(operator, shape, fields), picture(*shape)
        bound = net.bind(None, "host")
        assert [step.engine for step in bound.steps] == ["definition"]
        np.testing.assert_array_equal(bound(x), net.run(x))
