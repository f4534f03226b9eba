"""What a finaliser does to a list that is being read changes nothing of what is multiplied."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tilewright.inputs.as_tuple import as_tuple

SPOILS = """
import gc, sys
import numpy as np

a, b = [], []

class Last:
    def __del__(self):
        for one in (a, b):
            one.clear()
            one.extend([None] * 3)

def read(way, make):
    for count in (5, 40, 2000):
        for _ in range(20):
            read_one(way, make, count)
    print("read")

def read_one(way, make, count):
    gc.disable()
    a[:], b[:] = [make() for _ in range(count)], [make() for _ in range(count)]
    last = Last()
    last.itself = last
    del last
    gc.set_threshold(1)
    gc.enable()
    try:
        found = way(a, b)
    except Exception:
        return
    finally:
        gc.set_threshold(700)
    if found is not None:
        for one in found:
            assert type(one) is type(found[0]) and len(found) in (3, count)
"""
WAYS = {
    "a tuple": """
from tilewright.inputs.as_tuple import as_tuple
read(lambda a, b: as_tuple(a), object)
""",
    "arrays": """
from tilewright.calls import grouped_quick_host as quick
read(quick._many, lambda: np.ones((2, 2), np.float32))
""",
    "arrays into others": """
from tilewright.calls import grouped_quick_ended_host as quick
read(lambda a, b: quick.ended_at_once(a, b, b, None, None), lambda: np.ones((2, 2), np.float32))
""",
    "tensors": """
import torch
from tilewright.calls import grouped_quick_tensors as quick
read(quick.few, lambda: torch.ones(2, 2))
""",
    "tensors by storage": """
import torch
from tilewright.calls import grouped_quick_tensors as quick
read(lambda a, b: quick.loop(a, b, None), lambda: torch.ones(2, 2))
""",
    "tensors in machine code": """
import torch
from tilewright.backends.host import compiled
from tilewright.calls import grouped_listed_tensors as listed
if compiled.available():
    read(listed.products_by(torch.mm), lambda: torch.ones(2, 2))
else:
    print("read")
""",
}


@pytest.mark.parametrize("way", WAYS)
def test_a_list_that_a_finaliser_changes_is_read_before_or_after(way: str) -> None:
    """A collection begins wherever an object is made: in the middle of Python's own `tuple`."""
    if "torch" in WAYS[way]:
        pytest.importorskip("torch")
    told = subprocess.run(
        [sys.executable, "-c", SPOILS + WAYS[way]], capture_output=True, text=True, check=False
    )
    assert (told.stdout, told.returncode) == ("read\n", 0), told.stderr


def test_a_tuple_stays_the_same() -> None:
    some = (1, 2)
    assert as_tuple(some) is some
    assert as_tuple([1, 2]) == some
