"""Weights as kernels read them, made once for each content: remembered, and large ones on disk.

    packed(("winograd", 4), weights, make)     by way and content: shelf -> file -> make()

Two networks, or one bound for two sizes, share what they have in common. Laying out a 512 x 512
convolution for Winograd's transforms took 0.2 s on a Xeon, its file 0.05 s, the digest among it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path

import numpy as np

from tilewright import settings
from tilewright.arrays.array import NDArray
from tilewright.files import cache as cache_files
from tilewright.remember import Shelf

_LINE = 64  # bytes of a line of the cache: where packed weights begin
_LEAST = 1 << 20  # bytes of weights that are worth a file
_ROOM = 1 << 30  # bytes of all files: the oldest go
_MAGIC = b"tilewright packed weights 1\n"
_shelf: Shelf[bytes, NDArray] = Shelf("packed weights", most=1 << 30)


def packed(way: tuple[object, ...], weights: NDArray, make: Callable[[], NDArray]) -> NDArray:
    """What `make` gives of float32 weights: flat float32, aligned, not to be written.

    way: what decides beside the weights how they are laid out, in words and numbers; it changes
    with every layout.
    """
    digest = hashlib.blake2b(repr((way, weights.shape)).encode(), digest_size=32)
    digest.update(np.ascontiguousarray(weights).view(np.uint8).reshape(-1).data)
    key = digest.digest()
    known = _shelf.get(key)
    if known is not None:
        return known
    path = _path(key) if weights.nbytes >= _LEAST else None
    content = None if path is None else cache_files.read_sealed(path, _MAGIC)
    made = _aligned(make() if content is None else np.frombuffer(content, np.float32))
    if path is not None and content is None:
        _write(path, made)
    return _shelf.keep(key, made, size=made.nbytes)


def _aligned(array: NDArray) -> NDArray:
    """A copy that begins on a line of the cache and cannot be written."""
    room = np.empty(array.nbytes + _LINE, np.uint8)
    start = -room.ctypes.data % _LINE
    copy: NDArray = room[start : start + array.nbytes].view(np.float32)
    copy[:] = array
    copy.flags.writeable = False
    return copy


def _path(key: bytes) -> Path | None:
    folder = settings.cache_part("weights")
    return None if folder is None else folder / f"{key.hex()}.bin"


def _write(path: Path, array: NDArray) -> None:
    if len(_MAGIC) + 32 + array.nbytes <= cache_files.MOST:
        cache_files.write_sealed(path, _MAGIC, array.tobytes())
        _drop_oldest(path.parent)


def _drop_oldest(folder: Path) -> None:
    """Remove the files that were written first until the others fit."""
    found = []
    for path in folder.glob("*.bin"):
        try:
            status = path.stat()
        except OSError:  # another process removed it
            continue
        found.append((status.st_mtime, status.st_size, path))
    room = _ROOM
    for _, size, path in sorted(found, reverse=True):
        room -= size
        if room < 0:
            path.unlink(missing_ok=True)
