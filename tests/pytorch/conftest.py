"""What tests of compiled products share."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from typing import Any

import pytest


@pytest.fixture
def fresh_compiler() -> Iterator[None]:
    """Nothing that a test compiles is found by those after it."""
    yield
    import torch

    torch._dynamo.reset()


@pytest.fixture
def unread(monkeypatch: pytest.MonkeyPatch) -> None:
    """A compiler that reads every loaded module fails where another thread imports one then.

    As after a product on a GPU, whose plans every later call asks first.
    """
    from torch._dynamo.variables.builder import VariableBuilder as Builder

    importlib.import_module("tilewright.calls.dense_plans_gpu")

    def checked(self: Any, read: Any, wrap: Any = Builder._wrap) -> Any:
        assert read is not sys.modules
        return wrap(self, read)

    monkeypatch.setattr(Builder, "_wrap", checked)
