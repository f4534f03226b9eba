"""Matrix Market files (NIST's exchange format): dense or sparse in, dense out.

A reader of our own, since SciPy 1.17's crashes the interpreter on some files that were cut off in
the middle of a number and on symmetric files that are not square. Numbers are NumPy's to parse.

    %%MatrixMarket matrix coordinate real symmetric     header: format, field, symmetry
    % any number of comments
    3 3 2                                               rows, columns, stored entries (sparse)
    1 1 4.0                                             row, column, value; counted from 1
    3 1 5.0                                             also stands for (1, 3)

    %%MatrixMarket matrix array real general            dense: one value a line, column by column
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

import numpy as np

from tilewright.arrays.array import NDArray

_FIELDS = ("real", "double", "integer", "unsigned-integer", "pattern")
_MOST_LINE = 1 << 16  # characters of the line of sizes
_MIRRORED = {"symmetric": 1.0, "hermitian": 1.0, "skew-symmetric": -1.0}
# Bytes of the shortest line of an entry, its end not counted, as the last may lack it.
_LEAST_LINE = {"array": 1, "coordinate": 3}
# Digits that bring the same number back.
_DIGITS = {"float16": 5, "float32": 9, "float64": 17}


@dataclass(frozen=True, slots=True)
class Header:
    """What stands before the numbers. `entries` counts the lines that must follow."""

    form: str
    field: str
    symmetry: str
    rows: int
    columns: int
    entries: int


def read(path: Path, limit: int) -> tuple[NDArray, Header]:
    """The matrix in float64, dense, and what its header said.

    Raises ValueError where the file breaks the format or takes more than `limit` bytes.
    """
    with path.open(encoding="latin-1") as file:
        header = _header(file)
        if header.rows * header.columns * 8 > limit:
            raise ValueError(
                f"{header.rows} × {header.columns} made dense is {header.rows * header.columns * 8}"
                f" bytes, more than the {limit} of this machine"
            )
        left = path.stat().st_size
        if header.entries * _LEAST_LINE[header.form] > left:
            raise ValueError(
                f"its header announces {header.entries} entries, more than {left} bytes can hold"
            )
        lines = _numbers(file, header)
    if len(lines) != header.entries:
        what = "more than" if len(lines) > header.entries else f"{len(lines)} of"
        raise ValueError(f"it holds {what} the {header.entries} entries that its header announces")
    dense = np.zeros((header.rows, header.columns))
    if header.form == "array":
        _fill(dense, lines["value"], header)
    else:
        _scatter(dense, lines, header)
    return dense, header


def write(path: Path, array: NDArray) -> None:
    """A matrix as a dense file, in as many digits as bring the same numbers back."""
    rows, columns = array.shape
    with path.open("w", encoding="ascii") as file:
        file.write(f"%%MatrixMarket matrix array real general\n{rows} {columns}\n")
        np.savetxt(file, array.T.reshape(-1), fmt=f"%.{_DIGITS[array.dtype.name]}g")


def _header(file: TextIO) -> Header:
    words = file.readline(1024).lower().split()
    if len(words) != 5 or words[:2] != ["%%matrixmarket", "matrix"]:
        raise ValueError("its first line is no '%%MatrixMarket matrix ...'")
    form, field, symmetry = words[2:]
    for name, value, known in (
        ("format", form, ("array", "coordinate")),
        ("field", field, _FIELDS[:-1] if form == "array" else _FIELDS),
        ("symmetry", symmetry, ("general", *_MIRRORED)),
    ):
        if value not in known:
            raise ValueError(f"its {name} is {value!r}; accepted are {', '.join(known)}")
    sizes = _sizes(file)
    if len(sizes) != (2 if form == "array" else 3) or min(sizes) < 0:
        raise ValueError("its line of sizes does not fit the format")
    rows, columns = sizes[:2]
    if symmetry in _MIRRORED and rows != columns:
        raise ValueError(f"it is {symmetry}, but {rows} × {columns} is not square")
    dense = {"general": rows * columns, "skew-symmetric": rows * (rows - 1) // 2}
    stored = dense.get(symmetry, rows * (rows + 1) // 2) if form == "array" else sizes[2]
    return Header(form, field, symmetry, rows, columns, stored)


def _sizes(file: TextIO) -> list[int]:
    """The first line that is neither blank nor a comment."""
    for line in iter(lambda: file.readline(_MOST_LINE), ""):
        if line.strip() and not line.startswith("%"):
            return [int(word) for word in line.split()]
    return []


def _numbers(file: TextIO, header: Header) -> NDArray:
    """The lines after the header as records; one more than announced at most."""
    columns: list[tuple[str, Any]] = []
    if header.form == "coordinate":
        columns = [("row", np.int64), ("column", np.int64)]
    if header.field != "pattern":
        columns.append(("value", np.float64))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a file without entries is no cause for a warning
        lines: NDArray = np.loadtxt(
            file, np.dtype(columns), comments="%", ndmin=1, max_rows=header.entries + 1
        )
    return lines


def _fill(dense: NDArray, values: NDArray, header: Header) -> None:
    """Column by column; of a mirrored matrix only the lower triangle is stored."""
    if header.symmetry == "general":
        dense[...] = values.reshape(dense.shape, order="F")
        return
    begin, skips = 0, int(header.symmetry == "skew-symmetric")
    for column in range(header.columns):
        first = column + skips
        stored = values[begin : begin + max(header.rows - first, 0)]
        dense[column, first:] = _MIRRORED[header.symmetry] * stored
        dense[first:, column] = stored
        begin += len(stored)


def _scatter(dense: NDArray, lines: NDArray, header: Header) -> None:
    """Entry by entry; an entry that is stored twice counts twice, as everywhere."""
    row, column = lines["row"] - 1, lines["column"] - 1
    for name, index, size in (("row", row, header.rows), ("column", column, header.columns)):
        if len(index) and (index.min() < 0 or index.max() >= size):
            raise ValueError(f"a {name} lies outside 1 to {size}")
    values = np.ones(len(lines)) if header.field == "pattern" else lines["value"]
    np.add.at(dense, (row, column), values)
    if header.symmetry in _MIRRORED:
        off = row != column
        mirrored = _MIRRORED[header.symmetry] * values[off]
        np.add.at(dense, (column[off], row[off]), mirrored)
