"""What is no plain array in memory is refused by name, by `run` as by a bound network."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.support.nets import picture, plain_net
from tilewright.errors import OperandError

SHAPE = (1, 2, 3, 4)
X = picture(*SHAPE)


def masked() -> Any:
    return np.ma.masked_array(X.copy(), mask=X > 0)


def meta() -> Any:
    return pytest.importorskip("torch").empty(SHAPE, device="meta")


class Unit(np.ndarray):
    """An array whose functions mean something of their own."""

    def __array_ufunc__(self, *args: Any, **named: Any) -> Any:
        raise AssertionError("was used as if it were plain")


def unit() -> Any:
    return X.copy().view(Unit)


@pytest.mark.parametrize("kind", [masked, meta, unit])
def test_what_is_no_plain_array_is_refused(kind: Callable[[], Any]) -> None:
    net = plain_net([("Neg", ["x"], ["y"], {})], {"x": SHAPE}, {})
    bound, value = net.bind(device="host"), kind()
    for run in (net.run, bound, bound.profile):
        with pytest.raises(OperandError, match=r"input 'x'.*accepted are"):
            run(value)
    with pytest.raises(OperandError, match=r"^out.*accepted are"):
        bound(X, out=value)


def test_a_plain_subclass_is_taken_for_its_elements() -> None:
    net = plain_net([("Mul", ["x", "x"], ["y"], {})], {"x": (2, 2)}, {})
    x = np.ones((2, 2), np.float32).view(np.matrix) * np.float32(3)  # its product is another
    for run in (net.run, net.bind(device="host")):
        np.testing.assert_array_equal(run(x), np.full((2, 2), 9, np.float32))
