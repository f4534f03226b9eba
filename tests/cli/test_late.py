"""A start of the command line loads what its command needs, and lists commands without them."""

from __future__ import annotations

import inspect
import json
import subprocess
import sys
from typing import Any

import pytest
import typer

from tilewright.cli import COMMANDS, GROUPS, app, ending
from tilewright.cli.late import docstring

EVERY = [*COMMANDS, *GROUPS]
# A command of `net` is one of the top too.
PARTS = {"net": {"profile"}}
STARTED = """
import json, sys
from tilewright.cli import app
try:
    app(sys.argv[1:], prog_name="tilewright")
finally:
    print(json.dumps(sorted(sys.modules)), file=sys.stderr)
"""
COMPLETED = """
import json, sys, typer
from tilewright.cli import app
group = typer.main.get_command(app)
answers = []
for begun in sys.argv[1:]:
    context = group.make_context("tilewright", ["x"], resilient_parsing=True)
    answers.append([(item.value, item.help) for item in group.shell_complete(context, begun)])
print(json.dumps([*answers, sorted(sys.modules)]))
"""


def started(*arguments: str) -> tuple[set[str], set[str]]:
    """The commands that a start loaded, and all modules that it did."""
    line = [sys.executable, "-c", STARTED, *arguments]
    done = subprocess.run(line, capture_output=True, text=True, check=False)
    modules = set(json.loads(done.stderr.splitlines()[-1]))
    return {name for name in EVERY if f"tilewright.cli.{name}" in modules}, modules


@pytest.mark.parametrize("name", EVERY)
def test_a_start_of_a_command_loads_no_other_command(name: str) -> None:
    loaded, _ = started(name, "--help")
    assert loaded == {name} | PARTS.get(name, set())


@pytest.mark.parametrize(
    "arguments", [(), ("--help",), ("--version",), ("nonsense",), ("matmull", "a.npy")], ids=str
)
def test_a_start_that_runs_no_command_loads_none_and_no_numpy(arguments: tuple[str, ...]) -> None:
    loaded, modules = started(*arguments)
    assert loaded == set()
    assert "numpy" not in modules


def test_completing_a_command_loads_none() -> None:
    line = [sys.executable, "-c", COMPLETED, "ma", ""]
    done = subprocess.run(line, capture_output=True, text=True, check=True)
    some, every, modules = json.loads(done.stdout)
    assert [name for name, _ in some] == ["matmul"]
    assert [name for name, _ in every] == EVERY
    assert all(text for _, text in every)
    assert not {f"tilewright.cli.{name}" for name in EVERY}.intersection(modules)
    assert "numpy" not in modules


def listed_and_loaded() -> list[Any]:
    group: Any = typer.main.get_command(app)
    listed = group.commands.listed()
    assert [*listed] == [*group.commands] == group.list_commands(None) == EVERY
    return [pytest.param(listed[name], group.commands[name], id=name) for name in EVERY]


@pytest.mark.parametrize(("listed", "loaded"), listed_and_loaded())
def test_a_command_is_listed_as_what_it_is(listed: Any, loaded: Any) -> None:
    """All that a list of commands shows of one or goes by."""
    for shown in ("name", "help", "short_help", "hidden", "deprecated"):
        assert getattr(listed, shown) == getattr(loaded, shown), shown
    panel = loaded.rich_help_panel
    assert listed.rich_help_panel == getattr(panel, "value", panel)
    assert listed.get_short_help_str() == loaded.get_short_help_str()
    assert listed.help


def test_a_docstring_is_read_as_python_reads_it() -> None:
    """From a file's code; of a module whose loader shows none, as pytest's own, from the module."""
    for function in (ending.heard_signals, ending.what_failed, started):
        name = function.__name__
        assert docstring(function.__module__, name) == inspect.getdoc(function), name


def test_a_name_that_is_no_command_is_none() -> None:
    group: Any = typer.main.get_command(app)
    assert "ending" not in group.commands
    assert group.get_command(None, "ending") is None
    assert len(group.commands) == len(EVERY)
