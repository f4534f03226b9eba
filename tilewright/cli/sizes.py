"""Sizes of a batch from files: an .npz with columns m, n, k, or a CSV with the header m,n,k.

Whatever is not that raises a FileError with the file's name, the line where a CSV has one, and what
is accepted. Nothing is ever unpickled.
"""

from __future__ import annotations

import csv
import zipfile
from array import array
from collections.abc import Iterator
from itertools import chain, count
from pathlib import Path
from typing import Any, TextIO

import numpy as np
import numpy.typing as npt

from tilewright.errors import FileError
from tilewright.facts.limits import MOST
from tilewright.files import reading

Columns = tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], npt.NDArray[np.int64]]
MOST_PROBLEMS = 10_000_000
_MOST_LINE = 1 << 16  # characters of a line of CSV
_SHOWN = 20  # names that an error lists
_SIZES = f"whole numbers from 0 to {MOST}"
_ACCEPTED = "FILE.npz with integer columns m, n and k, and SHAPES.csv with the header m,n,k"


def load(path: Path) -> Columns:
    """The columns m, n, k of a file, at least one problem long."""
    readers = {".npz": _from_npz, ".csv": _from_csv}
    read = reading.by_suffix(path, _label(path), readers, _ACCEPTED)
    with reading.refusing(_label(path), "cannot be read", f"; accepted are {_ACCEPTED}"):
        columns = read(path)
    if not len(columns[0]):
        raise FileError(f"{_label(path)}: holds no problem; accepted is at least one")
    return columns


def _label(path: Path) -> str:
    return f"FILE={str(path)!r}"


def _from_npz(path: Path) -> Columns:
    if not zipfile.is_zipfile(path):
        raise FileError(f"{_label(path)}: is no archive; accepted is what numpy.savez writes")
    with zipfile.ZipFile(path) as archive:
        names = reading.npz_names(archive)
        missing = [name for name in "mnk" if name not in names]
        if missing:
            raise FileError(
                f"{_label(path)}: has no column {', '.join(missing)}, only"
                f" {', '.join(names[:_SHOWN]) or 'nothing'}; accepted are integer columns m, n and"
                " k"
            )
        m, n, k = (
            _column(reading.npz_array(archive, name, 8 * MOST_PROBLEMS), name, path)
            for name in "mnk"
        )
    if not len(m) == len(n) == len(k):
        raise FileError(
            f"{_label(path)}: m, n and k have {len(m)}, {len(n)} and {len(k)} entries; accepted"
            " is one each a problem"
        )
    return m, n, k


def _column(values: npt.NDArray[Any], name: str, path: Path) -> npt.NDArray[np.int64]:
    if values.ndim != 1 or values.dtype.kind not in "iu":
        raise FileError(
            f"{_label(path)}: {name} is {values.dtype} of shape {values.shape}; accepted is one"
            f" dimension of {_SIZES}"
        )
    wrong = (values < 0) | (values > MOST)
    if wrong.any():
        at = int(np.argmax(wrong))
        raise FileError(f"{_label(path)}: {name}[{at}]={values[at]}; accepted are {_SIZES}")
    return values.astype(np.int64)


def _from_csv(path: Path) -> Columns:
    with path.open(newline="", encoding="utf-8-sig") as file:
        rows = csv.reader(_lines(file, path), strict=True)
        head = [name.strip() for name in next(rows, [])]
        if not head:
            raise FileError(f"{_label(path)}: is empty; accepted is the header m,n,k and sizes")
        missing = [name for name in "mnk" if name not in head]
        if missing:
            raise FileError(
                f"{_label(path)}, line 1: has no column {', '.join(missing)}, only"
                f" {', '.join(head[:_SHOWN])}; accepted is the header m,n,k"
            )
        places = [head.index(name) for name in "mnk"]
        found = array("q", chain.from_iterable(_rows(path, rows, places, len(head))))
    m, n, k = np.frombuffer(found, np.int64).reshape(-1, 3).T.copy()
    return m, n, k


def _lines(file: TextIO, path: Path) -> Iterator[str]:
    """A file's lines, none of more fields than memory should be spent on."""
    for number in count(1):
        line = file.readline(_MOST_LINE + 1)
        if not line:
            return
        if len(line) > _MOST_LINE or number > MOST_PROBLEMS + 1:
            raise FileError(
                f"{_label(path)}, line {number}: accepted are {MOST_PROBLEMS} lines of at most"
                f" {_MOST_LINE} characters"
            )
        yield line


def _rows(
    path: Path, rows: Iterator[list[str]], places: list[int], width: int
) -> Iterator[list[int]]:
    for number, row in enumerate(rows, start=2):
        if not row:
            continue
        where = f"{_label(path)}, line {number}"
        if len(row) != width:
            raise FileError(f"{where}: has {len(row)} fields; accepted are {width}, as the header")
        yield [_size(row[place], name, where) for place, name in zip(places, "mnk", strict=True)]


def _size(text: str, name: str, where: str) -> int:
    try:
        size = int(text)
    except ValueError:
        size = -1
    if not 0 <= size <= MOST:
        raise FileError(f"{where}: {name}={text.strip()!r}; accepted are {_SIZES}")
    return size
