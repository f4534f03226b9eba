"""Sizes of a batch from files: an .npz with columns m, n, k, or a CSV with the header m,n,k.

Whatever is not that raises a FileError with the file's name, the line where a CSV has one, and what
is accepted. Nothing is ever unpickled.
"""

from __future__ import annotations

import csv
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt

from tilewright.errors import FileError

Columns = tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], npt.NDArray[np.int64]]
LARGEST = 2**31 - 64
_SIZES = f"whole numbers from 0 to {LARGEST}"
_ACCEPTED = "FILE.npz with integer columns m, n and k, and SHAPES.csv with the header m,n,k"


def load(path: Path) -> Columns:
    """The columns m, n, k of a file, at least one problem long."""
    if not path.is_file():
        raise FileError(f"{_label(path)}: no such file; accepted are {_ACCEPTED}")
    reader = {".npz": _from_npz, ".csv": _from_csv}.get(path.suffix.lower())
    if reader is None:
        raise FileError(f"{_label(path)}: suffix {path.suffix!r}; accepted are {_ACCEPTED}")
    try:
        columns = reader(path)
    except FileError:
        raise
    except (
        OSError,
        ValueError,
        EOFError,
        RuntimeError,
        csv.Error,
        zipfile.BadZipFile,
        zlib.error,
    ) as error:
        why = " ".join(str(error).split()) or type(error).__name__
        raise FileError(
            f"{_label(path)}: cannot be read ({why}); accepted are {_ACCEPTED}"
        ) from None
    if not len(columns[0]):
        raise FileError(f"{_label(path)}: holds no problem; accepted is at least one")
    return columns


def _label(path: Path) -> str:
    return f"FILE={str(path)!r}"


def _from_npz(path: Path) -> Columns:
    if not zipfile.is_zipfile(path):
        raise FileError(f"{_label(path)}: is no archive; accepted is what numpy.savez writes")
    with np.load(path, allow_pickle=False) as archive:
        missing = [name for name in "mnk" if name not in archive.files]
        if missing:
            raise FileError(
                f"{_label(path)}: has no column {', '.join(missing)}, only"
                f" {', '.join(archive.files) or 'nothing'}; accepted are integer columns m, n and k"
            )
        m, n, k = (_column(archive[name], name, path) for name in "mnk")
    if not len(m) == len(n) == len(k):
        raise FileError(
            f"{_label(path)}: m, n and k have {len(m)}, {len(n)} and {len(k)} entries; accepted"
            " is one each a problem"
        )
    return m, n, k


def _column(array: npt.NDArray[np.generic], name: str, path: Path) -> npt.NDArray[np.int64]:
    if array.ndim != 1 or array.dtype.kind not in "iu":
        raise FileError(
            f"{_label(path)}: {name} is {array.dtype} of shape {array.shape}; accepted is one"
            f" dimension of {_SIZES}"
        )
    values = array.astype(np.float64)
    wrong = (values < 0) | (values > LARGEST)
    if wrong.any():
        at = int(np.argmax(wrong))
        raise FileError(f"{_label(path)}: {name}[{at}]={array[at]}; accepted are {_SIZES}")
    return array.astype(np.int64)


def _from_csv(path: Path) -> Columns:
    with path.open(newline="", encoding="utf-8-sig") as file:
        rows = csv.reader(file, strict=True)
        head = [name.strip() for name in next(rows, [])]
        if not head:
            raise FileError(f"{_label(path)}: is empty; accepted is the header m,n,k and sizes")
        missing = [name for name in "mnk" if name not in head]
        if missing:
            raise FileError(
                f"{_label(path)}, line 1: has no column {', '.join(missing)}, only"
                f" {', '.join(head)}; accepted is the header m,n,k"
            )
        places = [head.index(name) for name in "mnk"]
        found = list(_rows(path, rows, places, len(head)))
    m, n, k = np.array(found, np.int64).reshape(-1, 3).T.copy()
    return m, n, k


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
    if not 0 <= size <= LARGEST:
        raise FileError(f"{where}: {name}={text.strip()!r}; accepted are {_SIZES}")
    return size
