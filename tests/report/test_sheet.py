"""Tables lose nothing where they are shown in little room."""

from __future__ import annotations

import io

import pytest
from rich.console import Console, Group
from rich.text import Text

from tilewright.report.sheet import sheet

ROWS = (("loop of numpy.matmul", "0.010", "1234.5"), ("plan, longest-first", "372.2", "7.7"))


@pytest.mark.parametrize("width", [1, 20, 40, 100])
def test_every_figure_of_a_table_is_shown_however_narrow_the_terminal(width: int) -> None:
    table = sheet("a title that is longer than the table", ("way", "time\nms", "GFLOP/s"))
    for row in ROWS:
        table.add_row(*row)
    shown = io.StringIO()
    Console(file=shown, width=width).print(Group(table, Text("a note")), crop=False)
    lines = shown.getvalue().splitlines()
    assert "…" not in shown.getvalue()
    for row in ROWS:
        assert any(line.split() == " ".join(row).split() for line in lines)
