"""Places: every kind of memory offers the same, and says the same of a call that is wrong."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tilewright import Device
from tilewright.errors import OperandError, TilewrightError
from tilewright.inputs import place_host

SINGLE, HALF = np.float32, np.float16
A, B = np.ones((3, 4), SINGLE), np.ones((4, 5), SINGLE)

WRONG: dict[str, tuple[tuple[Any, Any], dict[str, Any]]] = {
    "sizes": ((A, A), {}),
    "shape of out": ((A, B), {"out": np.ones((3, 4), SINGLE)}),
    "dtype of out": ((A, B), {"out": np.ones((3, 5), HALF)}),
    "dtype of b": ((A, B.astype(HALF)), {}),
    "shape of bias": ((A, B), {"bias": np.ones(4, SINGLE)}),
    "dtype of bias": ((A, B), {"bias": np.ones(5, HALF)}),
    "leading dimensions": ((np.ones((2, 3, 4), SINGLE), np.ones((5, 4, 6), SINGLE)), {}),
    "a flag": ((A, B), {"transpose_a": 1}),
    "sums": ((A, B), {"accumulate": "fp16"}),
    "a precision": ((A, B), {"precision": "tf32"}),
}


def kinds(device: Device) -> dict[str, Callable[[Any], Any]]:
    """How NumPy's arrays become those of each place."""
    import pyopencl
    from pyopencl import array

    from tilewright.backends.opencl.runtime import session

    queue = pyopencl.CommandQueue(session(device).context)
    return {
        "host": lambda one: one,
        "tilewright's on the host": lambda one: tw.asarray(one, device="host"),
        "tilewright's": lambda one: tw.asarray(one, device=device),
        "pyopencl's": lambda one: array.to_device(queue, one),
    }


def said(convert: Callable[[Any], Any], name: str) -> str:
    (a, b), options = WRONG[name]
    given = {k: convert(v) if isinstance(v, np.ndarray) else v for k, v in options.items()}
    with pytest.raises(TilewrightError) as caught:
        tw.matmul(convert(a), convert(b), **given)
    return str(caught.value)


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_call_is_refused_in_the_same_words_wherever_its_arrays_lie(
    name: str, opencl_device: Device
) -> None:
    found = {kind: said(convert, name) for kind, convert in kinds(opencl_device).items()}
    assert set(found.values()) == {found["host"]}


def test_results_come_to_the_place_of_the_first_operand(opencl_device: Device) -> None:
    for convert in kinds(opencl_device).values():
        a, b = convert(A), convert(B)
        place, views = place_host.place_and_views({"a": a, "b": b})
        made, hand = place.new((3, 5), (3, 5), "float32")
        assert made.shape == hand().shape == views["a"].shape[:1] + views["b"].shape[1:]
        assert type(hand()) is type(a)
        assert type(tw.matmul(a, b)) is type(a)


def test_operands_of_two_places_are_refused_by_name(opencl_device: Device) -> None:
    converts = kinds(opencl_device)
    converts.pop("tilewright's on the host")  # that is the host's memory too
    for first, one in converts.items():
        for second, other in converts.items():
            if first != second:
                with pytest.raises(OperandError, match=r"^b="):
                    tw.matmul(one(A), other(B))
