"""The look of every table: bold title at the left, a line under the heads, grey notes below."""

from __future__ import annotations

from collections.abc import Iterable

from rich import box
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

_WIDEST = 10_000  # columns, more than any table has


class _Sheet(Table):
    """A table that never takes less room than its figures need.

    Rich puts `…` for what a narrow terminal has no room for, which leaves a table of dots on a
    phone. So lines become longer than the terminal, which wraps them, and nothing is lost.
    """

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        roomy = options.update(width=_WIDEST)
        for column in self.columns:
            if column.no_wrap:
                cells = (column.header, *column.cells)
                column.min_width = max(_width(console, roomy, cell) for cell in cells)
        least = self.__rich_measure__(console, roomy).minimum
        if least > options.max_width:
            options = options.update(width=least)
        yield from super().__rich_console__(console, options)


def _width(console: Console, options: ConsoleOptions, cell: RenderableType) -> int:
    return Measurement.get(console, options, cell).maximum


def sheet(title: str, heads: Iterable[str], *left: str, gap: int = 1, wrap: bool = False) -> Table:
    """An empty table; the first column and those in `left` are text, the others figures."""
    table = _Sheet(
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
