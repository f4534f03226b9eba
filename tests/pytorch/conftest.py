"""What tests of PyTorch share."""

from __future__ import annotations

import pytest

from tilewright.backends.host import compiled, ragged
from tilewright.inputs.devices import host


@pytest.fixture(scope="session")
def compiled_for_all() -> None:
    """The host's own kernels, which a call does not wait for: two calls would differ by roundings
    where they are ready between them."""
    if compiled.available():
        for dtype in ("float16", "bfloat16", "float32", "float64"):
            ragged.compile_for(host(), dtype)
