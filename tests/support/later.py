"""Libraries that few tests use are loaded by the first of them, not by every worker that collects.

Transformers, PyTorch Geometric and JAX take a process 1.4 s of 11.3 to collect all tests.
"""

from __future__ import annotations

import importlib
import importlib.util
from typing import Any

import pytest


class Later:
    """A module, loaded where a public part of it is asked for.

    To change a part a test names it whole, as `monkeypatch.setattr("jax.default_backend", ...)`.
    """

    __slots__ = ("_name",)

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, part: str) -> Any:
        if part.startswith("_"):  # pytest asks everything in a file whether it is wrapped
            raise AttributeError(part)
        return getattr(importlib.import_module(self._name), part)


def library(name: str, reason: str) -> Any:
    """A package, loaded later; tests of the file that asks are skipped where it is not installed.

    As pytest.importorskip does, which loads it.
    """
    if importlib.util.find_spec(name) is None:
        pytest.skip(reason, allow_module_level=True)
    return Later(name)
