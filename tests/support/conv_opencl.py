"""Runs a work on an OpenCL engine of convolutions, poisoned outputs, beside float64."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.support.conv_chains import drawn, reference
from tilewright import Device
from tilewright.backends.opencl.conv.engines import CONV_ENGINES
from tilewright.engines.choose import named
from tilewright.engines.conv import ConvOperands, ConvWork

# Those of floats.
ENGINES = tuple(engine.name for engine in CONV_ENGINES if engine.name != "conv_int8")


def takes(work: ConvWork, device: Device, engine: str) -> bool:
    """Whether the engine has nothing against the work."""
    return named(CONV_ENGINES, engine, device).why_not(work, device) is None


def bound(work: ConvWork, device: Device, engine: str, operands: ConvOperands) -> Any:
    """What the engine makes of the work; it must take it."""
    found = named(CONV_ENGINES, engine, device)
    assert found.why_not(work, device) is None
    return found.bind(found.propose(work, device), operands)


def run(work: ConvWork, device: Device, engine: str, *, x: Any = None, seed: int = 1) -> Any:
    """`out` of one run, as NumPy, and what is right; a second run gives the same bits."""
    given, out, residuals = drawn(work, seed)
    x = given if x is None else x
    arrays = [one.numpy() for one in residuals]
    launch = bound(work, device, engine, ConvOperands(x.numpy(), out.numpy(), tuple(arrays)))
    launch()
    first = out.numpy().copy()
    out.fill_(float("nan"))
    launch()
    np.testing.assert_array_equal(out.numpy(), first)
    return first, reference(work, x, residuals).numpy()


def check(
    work: ConvWork, device: Device, engine: str, *, tolerance: float = 0.0, x: Any = None
) -> None:
    """The engine is right: largest difference beside the largest value."""
    found, right = run(work, device, engine, x=x)
    allowed = tolerance or (3e-6 if work.dtype == "float32" else 4e-3)
    largest = np.abs(right).max()
    np.testing.assert_allclose(found, right, rtol=0, atol=allowed * largest + 1e-6)
