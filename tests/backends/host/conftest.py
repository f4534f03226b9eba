"""The host as a machine of another number of cores, on which plans depend."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tilewright.facts import machine
from tilewright.inputs import devices


@pytest.fixture
def two_cores(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What is planned is for two cores."""
    with monkeypatch.context() as patch:
        patch.setattr(machine, "cores", lambda: 2)
        devices.forget()
        yield
    devices.forget()
