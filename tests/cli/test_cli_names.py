"""Options are called what the documentation calls them, whichever typer is installed."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import tilewright.cli

FOLDER = Path(tilewright.cli.__file__).parent


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.py")), ids=lambda path: path.stem)
def test_every_option_is_named_where_it_is_declared(path: Path) -> None:
    """typer 0.27 takes the metavar for the name of one that is not: `--ORDER`, not `--order`."""
    for call in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(call, ast.Call) and ast.unparse(call.func) == "typer.Option":
            first = call.args[0] if call.args else None
            assert isinstance(first, ast.Constant), f"line {call.lineno}"
            assert str(first.value).startswith("-")
