"""The look of every table: bold title at the left, a line under the heads, grey notes below."""

from __future__ import annotations

from collections.abc import Iterable

from rich import box
from rich.table import Table
from rich.text import Text


def sheet(title: str, heads: Iterable[str], *left: str, gap: int = 1, wrap: bool = False) -> Table:
    """An empty table; the first column and those in `left` are text, the others figures."""
    table = Table(
        title=title,
        title_justify="left",
        title_style="bold",
        box=box.SIMPLE_HEAD,
        padding=(0, gap, 0, 0),
        pad_edge=False,
    )
    for index, head in enumerate(heads):
        is_text = index == 0 or head in left
        table.add_column(head, justify="left" if is_text else "right", no_wrap=not wrap)
    return table


def grey(lines: Iterable[str]) -> Iterable[Text]:
    """Notes under a table."""
    return (Text(line, style="dim") for line in lines)
