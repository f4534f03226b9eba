"""Commands in files of their own: a start loads the one that it calls, no other.

Loading all of them took three quarters of a start, whatever it was for. What a list of commands
shows of each is its docstring: that is read from the file's code, which is not run for it.
"""

from __future__ import annotations

import copy
import importlib
import inspect
from collections.abc import Iterator, Mapping
from importlib.abc import InspectLoader
from importlib.util import find_spec
from types import CodeType, FunctionType
from typing import Any

import typer

from tilewright.cli.optional import Command, Group


class Commands(Mapping[str, Any]):
    """By name, in order: a file each, with a function of its name; of `groups`, which are said
    here what they are for, with an `app` of several. Loaded when somebody takes one.
    """

    def __init__(self, package: str, commands: tuple[str, ...], groups: Mapping[str, str]) -> None:
        self._package, self._commands, self._groups = package, commands, groups
        self._names = (*commands, *groups)
        self._loaded: dict[str, Any] = {}

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)

    def __contains__(self, name: object) -> bool:
        return name in self._names

    def __getitem__(self, name: str) -> Any:
        if name not in self:
            raise KeyError(name)
        if name not in self._loaded:
            self._loaded[name] = self._made(name)
        return self._loaded[name]

    def _made(self, name: str) -> Any:
        """What Typer makes of it as a part of one that has no other."""
        module = importlib.import_module(f"{self._package}.{name}")
        alone = typer.Typer(rich_markup_mode="markdown")
        if name in self._groups:
            alone.add_typer(module.app, help=self._groups[name])
        else:
            alone.command(cls=Command)(getattr(module, name))
        return typer.main.get_group(alone).commands[name]

    def listed(self) -> dict[str, Command]:
        """Their names and what they are for, without loading any: nothing that could be called."""
        said = {name: docstring(f"{self._package}.{name}", name) for name in self._commands}
        every = {**said, **self._groups}
        return {name: Command(name=name, help=text) for name, text in every.items()}


def docstring(module: str, function: str) -> str | None:
    """`inspect.getdoc` of a module's function, from code that is not run; where a loader has none
    to show, of the module.
    """
    spec = find_spec(module)
    loader = spec.loader if spec else None
    whole = loader.get_code(module) if isinstance(loader, InspectLoader) else None
    for code in whole.co_consts if whole else ():
        if isinstance(code, CodeType) and code.co_name == function:
            return inspect.getdoc(FunctionType(code, {}))
    return inspect.getdoc(getattr(importlib.import_module(module), function))


class LateGroup(Group):
    """A command of Commands, which lists them without loading them."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Their names in order; Typer's own takes every command for it."""
        return list(self.commands)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """As a group of what is listed."""
        Group.format_help(self._listing(), ctx, formatter)

    def shell_complete(self, ctx: Any, incomplete: str) -> list[Any]:
        """As a group of what is listed, which the context is asked for."""
        ctx.command = self._listing()
        return Group.shell_complete(ctx.command, ctx, incomplete)

    def _listing(self) -> Any:
        listing: Any = copy.copy(self)
        listing.commands = listing.commands.listed()
        return listing
