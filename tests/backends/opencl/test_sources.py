"""What drivers' compilers taught about how kernels must be written: it holds in all of them."""

from __future__ import annotations

import re

import pytest

from tilewright.backends.opencl.program import KERNELS

SUMMED = re.compile(r"get_local_id\(\d\)\s*[*+]|[*+]\s*get_local_id\(\d\)")
WIDE = ("sum_parts.cl",)  # a sum that stays 64 bits wide


@pytest.mark.parametrize("name", sorted(path.name for path in KERNELS.rglob("*.cl*")))
def test_numbers_of_work_items_are_ints_before_they_are_added(name: str) -> None:
    # PoCL 5.0 gives all of a group the first one's, where their 64-bit sum is cut to an int.
    (path,) = KERNELS.rglob(name)
    assert name in WIDE or not SUMMED.search(path.read_text(encoding="utf-8"))
