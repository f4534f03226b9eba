"""What a bound network writes shares no element with anything else that it was given."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.lib.stride_tricks import as_strided

from tests.support.nets import picture, plain_net
from tilewright.errors import OverlapError
from tilewright.nn.bound import Bound

SHAPE = (1, 2, 3, 4)
X = picture(*SHAPE)


def bound(outputs: int) -> Bound:
    nodes = [("Neg", ["x"], ["y"], {}), ("Abs", ["x"], ["z"], {})]
    return plain_net(nodes[:outputs], {"x": SHAPE}, {}, ("y", "z")[:outputs]).bind(device="host")


def kinds() -> list[Any]:
    """Makers of arrays of several libraries from a NumPy array, on its memory."""
    import torch

    return [lambda array: array, torch.from_numpy]


KINDS = pytest.mark.parametrize("kind", range(2), ids=["numpy", "torch"])


def made(kind: int, array: Any) -> Any:
    pytest.importorskip("torch")
    return kinds()[kind](array)


@KINDS
@pytest.mark.parametrize("apart", [0, 1, 23, 24])
def test_several_outputs_overlap_by_not_one_element(kind: int, apart: int) -> None:
    room = np.full(60, np.nan, np.float32)
    both = (room[:24].reshape(SHAPE), room[apart : apart + 24].reshape(SHAPE))
    outs = tuple(made(kind, one) for one in both)
    if apart < 24:
        with pytest.raises(OverlapError, match=r"out\[0\] shares memory with out\[1\]"):
            bound(2)(X, out=outs)
        assert np.isnan(room).all()
    else:
        bound(2)(X, out=outs)
        np.testing.assert_array_equal(both[0], -X)
        np.testing.assert_array_equal(both[1], np.abs(X))


@KINDS
def test_outputs_that_alternate_are_apart(kind: int) -> None:
    room = np.full((*SHAPE, 2), np.nan, np.float32)
    bound(2)(X, out=tuple(made(kind, room[..., at]) for at in range(2)))
    np.testing.assert_array_equal(room[..., 0], -X)
    np.testing.assert_array_equal(room[..., 1], np.abs(X))


@KINDS
def test_an_output_on_an_input_is_refused_where_there_are_several(kind: int) -> None:
    x, other = X.copy(), np.full(SHAPE, np.nan, np.float32)
    with pytest.raises(OverlapError, match=r"out\[1\] shares memory with input 'x'"):
        bound(2)(made(kind, x), out=(made(kind, other), made(kind, x)))
    np.testing.assert_array_equal(x, X)
    assert np.isnan(other).all()


def test_arrays_of_two_libraries_on_one_memory_are_seen() -> None:
    torch = pytest.importorskip("torch")
    out = np.empty(SHAPE, np.float32)
    with pytest.raises(OverlapError, match=r"shares memory with"):
        bound(2)(X, out=(out, torch.from_numpy(out)))


@KINDS
@pytest.mark.parametrize("steps", [(0, 0, 0, 0), (24, 12, 4, 0), (96, 48, 4, 4)])
def test_an_output_that_overlaps_itself_is_refused(kind: int, steps: tuple[int, ...]) -> None:
    room = np.full(64, np.nan, np.float32)
    if kind:
        torch = pytest.importorskip("torch")
        out: Any = torch.from_numpy(room).as_strided(SHAPE, [step // 4 for step in steps])
    else:
        out = as_strided(room, SHAPE, steps)
    for outputs in (1, 2):
        outs = (np.empty(SHAPE, np.float32), out)[2 - outputs :]
        with pytest.raises(OverlapError, match="out: overlaps itself, in shape"):
            bound(outputs)(X, out=outs)
    assert np.isnan(room).all()


def test_elements_that_lie_in_records_have_places_of_their_own() -> None:
    room = np.zeros(SHAPE, np.dtype([("y", np.float32), ("tag", np.uint8)]))
    np.testing.assert_array_equal(bound(1)(X, out=room["y"]), -X)


def test_tilewrights_own_arrays_are_seen() -> None:
    from tilewright import empty

    out = empty(SHAPE, device="host")
    with pytest.raises(OverlapError, match=r"out\[0\] shares memory with out\[1\]"):
        bound(2)(X, out=(out, out))
