"""Arrays in an .npz, read with distrust: nothing is unpickled, and no claim is believed.

Members are stored, not compressed, so every size can be compared with the file's own before memory
is taken. Written whole or not at all, the same bytes for the same arrays.
"""

from __future__ import annotations

import io
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tilewright.errors import FileError
from tilewright.files import reading
from tilewright.files.whole import DAMAGED, replacing

NDArray = npt.NDArray[Any]
_DTYPES = ("|u1", "<f2", "<f4", "<i4")
_WRITER = "`tilewright onebit convert`"


def write_arrays(
    path: Path, arrays: Mapping[str, NDArray], argument: str, dtypes: Sequence[str] = _DTYPES
) -> None:
    """Write an .npz of arrays of `dtypes` beside its final name and rename it. Raises FileError."""
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_STORED) as archive:
        for name, array in arrays.items():
            member = io.BytesIO()
            np.lib.format.write_array(member, _as_stored(array, name, dtypes), allow_pickle=False)
            archive.writestr(zipfile.ZipInfo(f"{name}.npy"), member.getvalue())
    with replacing(path, argument) as temporary:
        temporary.write_bytes(content.getvalue())


def _as_stored(array: NDArray, name: str, dtypes: Sequence[str]) -> NDArray:
    """Row by row and low byte first, whatever the caller's order: the one form that is read."""
    stored = np.asarray(array, array.dtype.newbyteorder("<"), order="C")
    if stored.dtype.str not in dtypes:
        raise FileError(f"array {name!r}: holds {array.dtype}; accepted are {', '.join(dtypes)}")
    return stored


def read_arrays(
    path: Path, argument: str, dtypes: Sequence[str] = _DTYPES, writer: str = _WRITER
) -> dict[str, NDArray]:
    """All arrays of a file that `write_arrays` wrote; `writer` is the command that makes such.

    Raises FileError for whatever else: absent, truncated, compressed, encrypted, pickled, arrays
    that claim more than their bytes, members that claim more than the file.
    """
    label = f"{argument}={str(path)!r}"
    try:
        size = path.stat().st_size
        with zipfile.ZipFile(path) as archive:
            return _members(archive, size, dtypes)
    except FileError as error:
        raise FileError(f"{label}: {error}") from None
    except DAMAGED as error:
        why = getattr(error, "strerror", None) or " ".join(str(error).split())
        raise FileError(
            f"{label}: cannot be read ({why or type(error).__name__}); accepted is a whole file"
            f" that {writer} wrote"
        ) from None


def _members(archive: zipfile.ZipFile, size: int, dtypes: Sequence[str]) -> dict[str, NDArray]:
    members = archive.infolist()
    names = [member.filename for member in members]
    if len(set(names)) < len(names):
        raise FileError("two members have one name")
    for member in members:
        if member.compress_type != zipfile.ZIP_STORED or member.flag_bits & 1:
            raise FileError(f"{member.filename!r} is compressed or encrypted; accepted is stored")
        if not member.filename.endswith(".npy"):
            raise FileError(f"{member.filename!r} is no array")
        if member.compress_size != member.file_size:  # zipfile asks for as much memory as is told
            told = f"{member.compress_size} bytes stored, {member.file_size} read"
            raise FileError(f"{member.filename!r} claims {told}; accepted is stored as it is")
    claimed = sum(member.file_size for member in members)
    if claimed > size:
        raise FileError(f"members claim {claimed} bytes; the file has {size}")
    return {
        member.filename.removesuffix(".npy"): _array(archive.read(member), member.filename, dtypes)
        for member in members
    }


def _array(content: bytes, name: str, dtypes: Sequence[str]) -> NDArray:
    """An array from the bytes of an .npy, its claims checked before it is made."""
    stream = io.BytesIO(content)
    header = shape, by_column, dtype = reading.npy_header(stream)
    if dtype.str not in dtypes:
        raise FileError(f"{name!r}: holds {dtype}; accepted are {', '.join(dtypes)}")
    start = stream.tell()
    needed = reading.npy_bytes(header)
    if by_column or needed != len(content) - start:
        raise FileError(
            f"{name!r}: claims {shape} of {dtype}, {needed} bytes; it holds {len(content) - start}"
        )
    array: NDArray = np.frombuffer(content, dtype, offset=start).reshape(shape)
    return array
