"""Runs a proof of this folder in Triton's interpreter, in a process of its own.

    TRITON_INTERPRET=1 python -m tests.support.interpreter ragged_proof

The interpreter is chosen when Triton is first imported. It replaces Triton's builtins before each
function that a kernel calls, and looks for them among all members of four modules and classes each
time. Here it looks once, which saves a fifth of the proofs' time.
"""

from __future__ import annotations

import inspect
import os
import subprocess
import sys
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.support import paths

ROOT = Path(__file__).parents[2]


def interpreted(script: str) -> str:
    """What a script of tests/support prints with Triton interpreted; it must end well."""
    for package in ("torch", "triton"):
        if find_spec(package) is None:
            pytest.skip(f"{package} is not installed: pip install 'tilewright[cuda]'")
    environment = {**os.environ, "TRITON_INTERPRET": "1", "PYTHONPATH": paths.first(ROOT)}
    command = [sys.executable, "-m", "tests.support.interpreter", script]
    ran = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=600)
    assert ran.returncode == 0, ran.stderr[-3000:]
    return ran.stdout


def list_once() -> None:
    """From now on members of a module that are no builtins are not looked at again."""
    from triton.runtime import interpreter

    found: dict[int, list[str]] = {}

    def getmembers(place: Any) -> list[tuple[str, Any]]:
        if id(place) not in found:
            members = inspect.getmembers(place)
            builtins = [name for name, one in members if getattr(one, "__triton_builtin__", False)]
            found[id(place)] = builtins
        return [(name, getattr(place, name)) for name in found[id(place)]]

    interpreter.inspect = SimpleNamespace(**{**vars(inspect), "getmembers": getmembers})


if __name__ == "__main__":
    list_once()
    import_module(f"tests.support.{sys.argv[1]}").main()
