"""Convolutions in Triton on a GPU: the cases of its interpreter once more."""

from __future__ import annotations

import pytest

from tests.support.conv_proof import CASES, SHARED, proven, proven_whole, shared, wholes
from tilewright.backends.cuda.machine import driver

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(driver.missing() is not None, reason=f"no GPU: {driver.missing()}"),
]


@pytest.mark.parametrize("name", CASES)
def test_every_case_is_right_on_a_gpu(name: str) -> None:
    for work in CASES[name]:
        proven(work, "cuda")


def test_shares_of_sums_are_added_up_on_a_gpu() -> None:
    for work, tile in SHARED:
        shared(work, tile, "cuda")


def test_whole_numbers_have_the_same_bits_on_a_gpu() -> None:
    for work, splits in wholes():
        proven_whole(work, splits, "cuda")
