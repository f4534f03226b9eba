"""Commands whose options may be given without a value: `--low-light` is `--low-light 1`.

Click has these; Typer does not pass them on. So a value is put in before a line is parsed, where
what follows the option is none. Options that never have a value are shown without one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from typer.core import TyperCommand, TyperGroup

from tilewright.cli import ending

VALUES: Mapping[str, str] = {
    "--low-light": "1",
    "--dehaze": "0.9",
    "--contrast": "0.6",
    "--sharpen": "0.6",
    "--denoise": "auto",
    "--key": "auto",
    "--detect": "all",
}
# Suffixes of files that an option takes as its value; other paths are IN.
FILES: Mapping[str, tuple[str, ...]] = {"--detect": (".jsonl", ".ndjson")}


class Group(TyperGroup):
    """A command of commands whose help shows flags as they are typed."""

    def get_params(self, ctx: Any) -> list[Any]:
        """Its options, flags without a type."""
        return _without_types_of_flags(super().get_params(ctx))


class Command(TyperCommand):
    """A command that knows them."""

    def get_params(self, ctx: Any) -> list[Any]:
        """Its options and arguments, flags without a type."""
        return _without_types_of_flags(super().get_params(ctx))

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse a line with values where they were left out."""
        return super().parse_args(ctx, list(filled(args)))

    def invoke(self, ctx: Any) -> Any:
        """Run it; signals end it as it can be ended from now on."""
        ending.begun()
        return super().invoke(ctx)


def _without_types_of_flags(parameters: list[Any]) -> list[Any]:
    """Typer's help has `--force <bool>`, as if a value had to follow."""
    for parameter in parameters:
        if getattr(parameter, "is_flag", False) and parameter.metavar is None:
            parameter.metavar = ""
    return parameters


def filled(arguments: Sequence[str]) -> Iterator[str]:
    """A line's words, and after options without a value theirs; behind `--` nothing is one."""
    end = arguments.index("--") if "--" in arguments else len(arguments)
    for number, word in enumerate(arguments):
        yield word
        if word in VALUES and number < end and not _is_value(word, arguments[number + 1 : end]):
            yield VALUES[word]


def _is_value(option: str, following: Sequence[str]) -> bool:
    """Whether the next word is a number, a file for this option, or at least no option, no path."""
    if not following:
        return False
    if following[0].lower().endswith(FILES.get(option, ())):
        return not following[0].startswith("-")
    try:
        float(following[0])
    except ValueError:
        return not (following[0].startswith("-") or set(following[0]) & set("./\\*"))
    return True
