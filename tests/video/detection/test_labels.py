"""Tables of boxes: what is written is read again, what a person changes counts."""

from __future__ import annotations

from pathlib import Path

import pytest

from tilewright.errors import FileError
from tilewright.video.detection.labels import COLUMNS, Labelled, read, write
from tilewright.video.detection.things import Thing

BALL = Thing("ball", 0.91, 31.2, 40.5, 12.1, 11.8)
BIRD = Thing("bird, small", 0.4, 3.0, 4.0, 10.0, 6.0)
HEAD = ",".join(COLUMNS)


def table(tmp_path: Path, *rows: str, head: str = HEAD) -> Path:
    path = tmp_path / "labels.csv"
    path.write_text("\n".join([head, *rows]) + "\n")
    return path


def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    pictures = [Labelled(0, 0.0, (BALL, BIRD)), Labelled(12, 0.48, ()), Labelled(24, 0.96, (BIRD,))]
    assert write(tmp_path / "l.csv", pictures) == 3
    assert read(tmp_path / "l.csv") == pictures


def test_rows_that_are_not_kept_go_and_added_ones_come(tmp_path: Path) -> None:
    path = table(
        tmp_path, "3,0.12,ball,1,2,10,11,0.9,0", "3,0.12,sign,5,6,10,11,,1", "",
        "9,0.36,,,,,,,1", "1,0.04,bird,1,2,3,4,0.5,no",
    )  # fmt: skip
    assert read(path) == [
        Labelled(1, 0.04, ()),
        Labelled(3, 0.12, (Thing("sign", 1.0, 5, 6, 10, 11),)),
        Labelled(9, 0.36, ()),
    ]


def test_columns_in_another_order_as_a_spreadsheet_writes_them_are_read(tmp_path: Path) -> None:
    path = tmp_path / "labels.csv"
    order = ["keep", *COLUMNS[:-1]]
    path.write_bytes(f"﻿{','.join(order)}\r\n1,2,0.08,ball,1,2,3,4,0.5\r\n".encode())
    assert read(path) == [Labelled(2, 0.08, (Thing("ball", 0.5, 1, 2, 3, 4),))]


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ("1,0.04,ball,1,2,3,4,0.5,maybe", r"row 2: keep='maybe'; accepted are 1 and 0"),
        ("1.5,0.04,ball,1,2,3,4,0.5,1", r"row 2: frame='1.5'; accepted is a whole number from 0"),
        ("-1,0.04,ball,1,2,3,4,0.5,1", r"frame='-1'; accepted is a whole number from 0"),
        ("1,soon,ball,1,2,3,4,0.5,1", r"time='soon'; accepted is a number"),
        ("1,0.04,ball,nan,2,3,4,0.5,1", r"x='nan'; accepted is a number"),
        ("1,0.04,ball,1,2,0,4,0.5,1", r"w=0, h=4; accepted are more than 0"),
        ("1,0.04,ball,1,2,-3,4,0.5,1", r"w='-3'; accepted is a number from 0"),
        ("1,0.04,,1,2,3,4,0.5,1", r"class is empty; accepted is a name"),
        ("1,0.04,ball,1,2,3,4,0.5", r"row 2 has 8 values; accepted are 9"),
    ],
)
def test_a_wrong_row_is_said_in_one_line(tmp_path: Path, row: str, said: str) -> None:
    with pytest.raises(FileError, match=said) as raised:
        read(table(tmp_path, row))
    assert "\n" not in str(raised.value)
    assert "labels=" in str(raised.value)


@pytest.mark.parametrize("head", ["", "frame,time", HEAD + ",more", HEAD.replace("keep", "x")])
def test_wrong_columns_are_said_with_those_accepted(tmp_path: Path, head: str) -> None:
    with pytest.raises(FileError, match=f"accepted are {', '.join(COLUMNS)}"):
        read(table(tmp_path, head=head))


def test_what_is_no_table_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(b"\xff\xfe\x00\x81")
    for path in (tmp_path / "a.csv", tmp_path / "none.csv"):
        with pytest.raises(FileError, match="cannot be read"):
            read(path)
