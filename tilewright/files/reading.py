"""Arrays and documents in files that others wrote: every size is compared before memory is taken.

A file's own claims are never believed. What an array says of its shape must be what its bytes hold,
and what an archive unpacks to must be no more than 100 times the file: a megabyte of zeros packs a
gigabyte. Nothing is unpickled. What breaks a rule raises ValueError in words; what is damaged
raises what NumPy, zipfile and json do (whole.DAMAGED).
"""

from __future__ import annotations

import io
import json
import math
import os
import struct
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, TypeVar

import numpy as np
import numpy.typing as npt

from tilewright.errors import FileError
from tilewright.files.whole import DAMAGED
from tilewright.wording import in_one_line

NDArray = npt.NDArray[Any]
Header = tuple[tuple[int, ...], bool, np.dtype[Any]]
Reader = TypeVar("Reader")

MOST_TIMES = 100  # what an archive may unpack to, over its own size
SMALL = 16 << 20  # bytes below which nobody asks for that
# Characters; a plain array's takes 128. NumPy allows 10,000, which brackets keep busy for seconds.
_MOST_HEADER = 1000
_CHUNK = 1 << 16  # bytes
_NPY_MAGIC = b"\x93NUMPY"
# Of LZMA and bzip2 a few bytes can ask for gigabytes; NumPy writes neither.
_PACKED = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
_VERSIONS: dict[bytes, tuple[str, Any]] = {
    b"\x01\x00": ("<H", np.lib.format.read_array_header_1_0),
    b"\x02\x00": ("<I", np.lib.format.read_array_header_2_0),
}


@contextmanager
def refusing(label: str, what: str, accepted: str = "") -> Iterator[None]:
    """Say of a damaged file, `label`, `what` it is not and why, and what is accepted instead.

    Raises FileError; those raised within, and what is raised of an absent file, pass as they are.
    """
    try:
        yield
    except (FileError, FileNotFoundError):
        raise
    except DAMAGED as error:
        raise FileError(f"{label}: {what} ({in_one_line(error)}){accepted}") from None


def by_suffix(path: Path, label: str, readers: Mapping[str, Reader], accepted: str) -> Reader:
    """The reader of files that end as this one does. Raises FileError where there is none."""
    if not path.is_file():
        what = "a folder" if path.is_dir() else "no file" if path.exists() else "no such file"
        raise FileError(f"{label}: {what}; accepted are {accepted}")
    if path.suffix.lower() not in readers:
        raise FileError(f"{label}: suffix {path.suffix!r}; accepted are {accepted}")
    return readers[path.suffix.lower()]


def document(path: Path, most: int) -> Any:
    """A JSON document of at most `most` bytes. Raises OSError, ValueError, RecursionError."""
    return json.loads(content(path, most))


def content(path: Path, most: int) -> bytes:
    """The bytes of a file of at most `most`. Raises OSError, ValueError."""
    with path.open("rb") as file:
        chunks, size = [], 0  # not `read(most)`, which takes all that memory at once
        while chunk := file.read(_CHUNK):
            chunks.append(chunk)
            size += len(chunk)
            if size > most:
                raise ValueError(f"it has more than {most} bytes")
    return b"".join(chunks)


def npy_header(stream: IO[bytes]) -> Header:
    """Shape, whether it is column by column, and dtype of an .npy; the stream is then at its data.

    Raises ValueError for what is no .npy, or holds Python objects.
    """
    head = stream.read(8)
    if head[:6] != _NPY_MAGIC or head[6:] not in _VERSIONS:
        raise ValueError("it does not begin as an .npy of version 1 or 2 does")
    form, parse = _VERSIONS[head[6:]]
    size = stream.read(struct.calcsize(form))
    length = struct.unpack(form, size)[0] if len(size) == struct.calcsize(form) else 0
    if length > _MOST_HEADER:
        raise ValueError(f"its header has {length} characters, more than {_MOST_HEADER}")
    try:
        shape, by_column, dtype = parse(io.BytesIO(size + stream.read(length)))
    except (MemoryError, RecursionError):  # how Python's parser says that brackets nest too deep
        raise ValueError("its header nests too deep") from None
    if dtype.hasobject:
        raise ValueError("it holds Python objects; nothing is unpickled")
    if any(size < 0 for size in shape):
        raise ValueError(f"it claims {shape}")
    return tuple(shape), by_column, dtype


def npy_bytes(header: Header) -> int:
    """The bytes of an array's elements."""
    return math.prod(header[0]) * header[2].itemsize


def mapped_npy(path: Path) -> NDArray:
    """The array of an .npy, mapped from the file."""
    with path.open("rb") as file:
        header = npy_header(file)
        held = os.fstat(file.fileno()).st_size - file.tell()
    if npy_bytes(header) > held:
        raise ValueError(f"it claims {npy_bytes(header)} bytes and holds {held}")
    array: NDArray = np.load(path, mmap_mode="r", allow_pickle=False)
    return array


def npz_names(archive: zipfile.ZipFile) -> tuple[str, ...]:
    """Names of the arrays in an archive."""
    return tuple(name.removesuffix(".npy") for name in archive.namelist())


def npz_array(archive: zipfile.ZipFile, name: str, most: int) -> NDArray:
    """An array of an archive, of at most `most` bytes. Raises KeyError where it has none such."""
    member = _member(archive, name)
    with archive.open(member) as stream:
        header = npy_header(stream)
        held = member.file_size - stream.tell()
    if npy_bytes(header) != held:
        raise ValueError(f"{name!r} claims {npy_bytes(header)} bytes and holds {held}")
    if npy_bytes(header) > most:
        raise ValueError(f"{name!r} has {npy_bytes(header)} bytes; accepted are {most} here")
    with archive.open(member) as stream:
        array: NDArray = np.lib.format.read_array(stream, allow_pickle=False)
    return array


def mapped_npz_array(
    archive: zipfile.ZipFile, path: Path, name: str, dtypes: tuple[str, ...]
) -> NDArray:
    """An array of one dimension that an archive stores as it is, mapped instead of read.

    Raises FileError where it is compressed, cut off, of another shape or of none of these dtypes.
    """
    info = _member(archive, name)
    if info.compress_type != zipfile.ZIP_STORED:
        raise FileError(f"path={str(path)!r}: {name} is compressed; accepted is what save() wrote")
    with path.open("rb") as file:
        file.seek(info.header_offset)
        name_length, extra_length = struct.unpack("<26xHH", file.read(30))
        file.seek(info.header_offset + 30 + name_length + extra_length)
        shape, _, dtype = npy_header(file)
        start = file.tell()
    if dtype.name not in dtypes or len(shape) != 1:
        raise FileError(f"path={str(path)!r}: {name} is {dtype} {shape}; accepted are {dtypes}")
    end = start + shape[0] * dtype.itemsize
    if end > info.header_offset + info.file_size + 1024 or path.stat().st_size < end:
        raise FileError(f"path={str(path)!r}: is truncated")
    return np.memmap(path, dtype, "r", start, shape) if shape[0] else np.empty(0, dtype)


def _member(archive: zipfile.ZipFile, name: str) -> zipfile.ZipInfo:
    there = archive.NameToInfo
    member = there[f"{name}.npy"] if f"{name}.npy" in there else there[name]
    if member.compress_type not in _PACKED or member.flag_bits & 1:
        raise ValueError(f"{name!r} is encrypted or packed as numpy.savez does not")
    assert archive.fp is not None
    size = os.fstat(archive.fp.fileno()).st_size
    if member.compress_size > size:  # zipfile asks for as much memory as is told
        raise ValueError(f"{name!r} claims {member.compress_size} bytes of a file of {size}")
    if member.file_size > max(SMALL, MOST_TIMES * size):
        raise ValueError(
            f"{name!r} unpacks to {member.file_size} bytes, more than {MOST_TIMES} times the file;"
            " accepted is such an array from numpy.savez, which packs nothing"
        )
    return member
