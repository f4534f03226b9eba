"""The one-bit kernels in Oclgrind; run by under_oclgrind.py in a process of its own."""

from __future__ import annotations

from tests.onebit.test_onebit import OPENCL, assert_same, packed
from tests.support.onebit_cases import Case, expected, operands
from tilewright import Device, onebit

# Edges everywhere: a word and a bit, panels and rows that end early, every output.
CASES = (
    Case(1, 1, 1),
    Case(5, 17, 65),
    Case(3, 33, 130, form="and"),
    Case(2, 5, 64 * 21),
    Case(5, 65, 67, out="bits"),
    Case(6, 18, 100, out="float32", scale=True, shift=True),
    Case(3, 3, 9, out="float16", scale=True),
)


def multiply(device: Device) -> None:
    """Every case on every kernel."""
    for case in CASES:
        asked = operands(case)
        a, b = packed(asked)
        for name in OPENCL:
            result = onebit.matmul(a, b, device=device, kernel=name, **asked.options)
            assert_same(result, expected(asked))
