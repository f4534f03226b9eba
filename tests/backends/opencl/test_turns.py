"""A handler that multiplies on the device whose product it interrupts is told so."""

from __future__ import annotations

import faulthandler
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tests.support.handlers import interrupted
from tilewright.errors import OperandError
from tilewright.facts.device import Device

PRODUCTS = ("one", "arrays", "batch", "bits")


def products(kind: str, device: Device) -> list[Callable[[], bool]]:
    """Products of several sizes on the device, each of which says whether it was right."""
    draw, made = np.random.default_rng(1), []
    for size in (30, 47, 64):
        a, b = (draw.standard_normal((size, size)).astype("f") for _ in "ab")
        signs = np.where(a > 0, 1, -1)
        right = signs @ signs.T if kind == "bits" else a @ b
        bits = tw.onebit.pack(signs)
        there = [tw.asarray(one, device=device) for one in (a, b)]
        calls: dict[str, Callable[..., Any]] = {
            "one": lambda a, b, _, there: tw.matmul(a, b, device=device, kernel="naive"),
            "arrays": lambda a, b, _, there: np.asarray(tw.matmul(*there)),
            "batch": lambda a, b, _, there: tw.grouped_matmul([a] * 9, [b] * 9, device=device)[8],
            "bits": lambda a, b, bits, there: tw.onebit.matmul(bits, bits, device=device),
        }

        def product(
            call: Any = calls[kind], given: Any = (a, b, bits, there), c: Any = right
        ) -> bool:
            return bool(np.allclose(call(*given), c, atol=1e-3))

        made.append(product)
    return made


@pytest.mark.parametrize("kind", PRODUCTS)
def test_a_handler_gets_its_product_or_is_told_and_the_one_beneath_is_right(
    kind: str, intel: Device
) -> None:
    """Kernels' arguments and scratch are of the product beneath; another would change them.

    At every call and return within a product, where signals and finalizers are heard too.
    """
    runs = products(kind, intel)
    assert all(run() for run in runs)
    said: list[object] = []

    def handler() -> bool:
        try:
            said.append(runs[len(said) % 3]())
        except OperandError as error:
            said.append(str(error))
        return True

    faulthandler.dump_traceback_later(600, exit=True)  # of old a handler waited for its own thread
    for run in runs:
        assert interrupted(run, handler)
    faulthandler.cancel_dump_traceback_later()
    assert {True} < {*said}
    assert all(one is True or "in the middle of a product on it" in str(one) for one in said)
