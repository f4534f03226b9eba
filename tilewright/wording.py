"""How messages quote values and other errors: on one line and cut short, as both run to pages."""

from __future__ import annotations

import re
import textwrap
from typing import Any

PATH = 300  # characters of a path that a message shows


def short(value: Any, most: int = 60) -> str:
    """`value` as a message shows it: its repr on one line, cut to so many characters."""
    return _cut(" ".join(repr(value).split()), most)


def in_one_line(error: BaseException, most: int = 300) -> str:
    """An error's text without its line ends, or its name where it has none."""
    return _cut(" ".join(str(error).split()) or type(error).__name__, most)


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 3]}..."


def time_text(seconds: float) -> str:
    """`0.120 ms`, or `99.0 µs` below a tenth of a millisecond, `37 ns` below one of those."""
    if 0 < seconds < 1e-7:
        return f"{seconds * 1e9:.2g} ns"
    return f"{seconds * 1e3:.3f} ms" if seconds >= 1e-4 else f"{seconds * 1e6:.1f} µs"


def counted(count: int, noun: str) -> str:
    """`1 problem`, `2 problems`."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def wrapped(line: str, width: int = 80) -> list[str]:
    """A line of a report as lines of so many columns, those that follow set in behind the first.

    They begin below what follows its label (`because    ...`), else two columns further in.
    """
    label = re.match(r" *[a-z0-9]+ {2,}(?=\S)", line)
    inset = len(label[0]) if label else len(line) - len(line.lstrip()) + 2
    return textwrap.wrap(
        line,
        width,
        subsequent_indent=" " * inset,
        break_long_words=False,
        break_on_hyphens=False,
        drop_whitespace=True,
    ) or [line]
