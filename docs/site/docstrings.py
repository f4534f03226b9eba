"""Docstrings as this project writes them, made into what Sphinx reads.

They are plain text for `help()`: `code` in single marks, parts as "Args:" or "Returns: ..." on one
line with what follows, and columns of two spaces. Whatever else looks like markup is not meant so.
"""

from __future__ import annotations

import re
from typing import Any

from sphinx.ext.napoleon import Config
from sphinx.ext.napoleon.docstring import GoogleDocstring

PARTS: Any = Config(napoleon_use_param=False, napoleon_use_rtype=False, napoleon_use_ivar=True)
PART = re.compile(r"^(?P<part>Args|Returns|Raises|Yields|Attributes):\s*(?P<rest>.*)$")
MARKUP = re.compile(r"[*|\\]|(?<=\w)_(?=\W|$)")
COLUMN = re.compile(r"^(?P<name>[\w.,/ ]*[\w.])  +(?P<rest>\S.*)$")


def converted(lines: list[str]) -> list[str]:
    """The lines of a docstring, its parts on lines of their own, nothing taken for markup."""
    made: list[str] = []
    inside = columns = False
    for line in lines:
        found, column = PART.match(line), COLUMN.match(line)
        if found:
            made += ["", f"{found['part']}:"]
            made += [f"    {text(found['rest'])}"] if found["rest"] else []
            inside, columns = bool(found["rest"]), False
        elif column and not inside:
            made += [] if columns else [""]
            made += [f"* ``{column['name']}``: {text(column['rest'])}"]
            columns = True
        elif columns and line.startswith("  "):
            made.append(f"  {text(line.strip())}")
        elif inside and line and not line.startswith(" "):
            made.append(f"    {text(line)}")  # the part goes on, not indented
        else:
            made += [""] if columns and line else []
            inside, columns = inside and bool(line), False
            made.append(re.match(r" *", line)[0] + text(line.strip()))  # type: ignore[index]
    return made


def text(line: str) -> str:
    """One line: single marks become code, all else is itself."""
    parts = re.split(r"(`+[^`]+`+)", line)
    return "".join(
        f"``{part.strip('`')}``" if part.startswith("`") else MARKUP.sub(r"\\\g<0>", part)
        for part in parts
    )


def convert(app: Any, what: str, name: str, thing: Any, options: Any, lines: list[str]) -> None:
    """What autodoc calls for every docstring. Napoleon reads the parts.

    It is called here and not as an extension, which takes "word: more" of a property for its type.
    """
    lines[:] = GoogleDocstring(converted(lines), PARTS, None, "function", name, thing).lines()


def sign(
    app: Any, what: str, name: str, thing: Any, options: Any, arguments: str, result: str
) -> tuple[str, str] | None:
    """No arguments where a user does not make the object, as its docstring says."""
    made_elsewhere = what == "class" and "Made by" in (thing.__doc__ or "")
    return ("", "") if made_elsewhere else None
