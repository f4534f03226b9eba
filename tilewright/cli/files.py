"""Matrices in files that others wrote: .npy, .npz, Matrix Market. Nothing is ever unpickled.

Reading never trusts a file: what is damaged, of another format, or of elements that no kernel takes
raises a FileError that names the file and what would be accepted. Results are written beside their
final name and renamed, so that nobody meets half a file.
"""

from __future__ import annotations

import math
import re
import zipfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tilewright.arrays.array import NDArray
from tilewright.arrays.views import DTYPES
from tilewright.cli import market
from tilewright.errors import FileError
from tilewright.files import reading
from tilewright.files.whole import replacing
from tilewright.inputs.devices import host

SUFFIXES = (".npy", ".npz", ".mtx")
_SHOWN = 20  # names of an archive that an error lists


@dataclass(frozen=True, slots=True)
class _Source:
    """A file that was named on the command line; `label` is how errors call it."""

    path: Path
    member: str | None
    label: str
    note: Callable[[str], None]
    most: int


def load(name: str, argument: str, note: Callable[[str], None], most: int | None = None) -> NDArray:
    """The matrix of a file, a .npy memory-mapped. `note` hears of conversions.

    `FILE.npz:NAME` is one array of several. An array that is made in memory may have `most` bytes;
    left out, half of what this machine has.
    """
    path, member = _split(name)
    limit = host().memory // 2 if most is None else most
    source = _Source(path, member, f"{argument}={name!r}", note, limit)
    read = reading.by_suffix(path, source.label, _READERS, _ACCEPTED)
    accepted = f"; accepted is a whole file of {', '.join(DTYPES)}"
    with reading.refusing(source.label, f"cannot be read as {path.suffix}", accepted):
        return _checked(read(source), source)


def check_output(path: Path) -> None:
    """Raise FileError for an output that no format is known for."""
    if path.suffix.lower() not in SUFFIXES:
        raise FileError(
            f"--output={str(path)!r}: suffix {path.suffix!r}; accepted are {', '.join(SUFFIXES)}"
        )


def check_no_input(path: Path, inputs: Iterable[str]) -> None:
    """Raise FileError for an output that is one of the operands' files, by whatever name."""
    for name in inputs:
        operand, _ = _split(name)
        if operand.exists() and path.exists() and operand.samefile(path):
            raise FileError(
                f"--output={str(path)!r}: is the operand {name!r}, which would be lost; accepted is"
                " another file, or --force"
            )


def check_result(operands: tuple[NDArray, NDArray], transposed: tuple[bool, bool]) -> None:
    """Raise FileError for a product beyond this machine: of empty matrices it can be any size."""
    sizes = [array.shape for array in operands]
    if min(map(len, sizes)) < 2:
        return
    rows = sizes[0][-1 if transposed[0] else -2]
    columns = sizes[1][-2 if transposed[1] else -1]
    stacked = max(math.prod(shape[:-2]) for shape in sizes)
    needed, there = stacked * rows * columns * operands[0].itemsize, host().memory
    if needed > there:
        raise FileError(
            f"A, B: their product has {needed} bytes; accepted are {there}, this machine's memory"
        )


def save(path: Path, compute: Callable[[], NDArray]) -> str:
    """Write what `compute` gives, in the format of the suffix; a line on what was written.

    A folder that cannot be written is found out before anything is computed.
    """
    with replacing(path, "--output") as temporary:
        array = np.asarray(compute())
        suffix = path.suffix.lower()
        if suffix == ".npy":
            np.save(temporary, array, allow_pickle=False)
        elif suffix == ".npz":
            np.savez(temporary, allow_pickle=False, c=array)
        else:
            _save_mtx(path, temporary, array)
    return f"{' × '.join(map(str, array.shape)) or 'one number'}, {array.dtype}"


def _split(name: str) -> tuple[Path, str | None]:
    """The file, and the array in it that is meant; a file that exists wins over the colon."""
    found = re.fullmatch(r"(.+\.npz):(.+)", name, re.IGNORECASE)
    if found and not Path(name).is_file():
        return Path(found[1]), found[2]
    return Path(name), None


def _load_npy(source: _Source) -> NDArray:
    if zipfile.is_zipfile(source.path):
        raise FileError(f"{source.label}: is an archive; accepted is one array, or suffix .npz")
    return reading.mapped_npy(source.path)


def _load_npz(source: _Source) -> NDArray:
    if not zipfile.is_zipfile(source.path):
        raise FileError(f"{source.label}: is no archive; accepted is what numpy.savez writes")
    with zipfile.ZipFile(source.path) as archive:
        names = reading.npz_names(archive)
        member = names[0] if source.member is None and len(names) == 1 else source.member
        if member is None or member not in names:
            shown = ", ".join(f"'{source.path}:{name}'" for name in names[:_SHOWN])
            more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
            raise FileError(
                f"{source.label}: names no array in it; accepted are"
                f" {shown or 'none: it is empty'}{more}"
            )
        return reading.npz_array(archive, member, source.most)


def _load_mtx(source: _Source) -> NDArray:
    array, header = market.read(source.path, source.most)
    if "integer" in header.field:
        source.note(f"{source.label}: integers, converted to float64")
    return array


_READERS = {".npy": _load_npy, ".npz": _load_npz, ".mtx": _load_mtx}
_ACCEPTED = "FILE.npy, FILE.npz, FILE.npz:NAME and FILE.mtx (Matrix Market)"


def _checked(array: NDArray, source: _Source) -> NDArray:
    """The array in an element type that a kernel takes, in this machine's byte order."""
    native = array.dtype.newbyteorder("=")
    if native.name not in DTYPES:
        raise FileError(f"{source.label}: holds {array.dtype}; accepted are {', '.join(DTYPES)}")
    if array.ndim == 0:
        raise FileError(f"{source.label}: holds one number; accepted is one dimension or more")
    if array.dtype.isnative:
        return array
    source.note(f"{source.label}: converted from {array.dtype.str} to this machine's byte order")
    return array.astype(native)


def _save_mtx(path: Path, temporary: Path, array: NDArray) -> None:
    if array.ndim != 2:
        raise FileError(
            f"--output={str(path)!r}: the product has {array.ndim} dimensions; a Matrix Market"
            " file holds two: accepted are .npy and .npz"
        )
    market.write(temporary, array)
