"""Tensor maps: 128 bytes that tell Hopper's copy engine where a matrix lies; the driver makes them.

matrix of `sizes` elements, rows `pitch` bytes apart      a copy moves a box into shared memory
+-----------------------------+                           or out of it, its rows of 128 bytes
|        +-------+            |                           swizzled: chunk c of 16 bytes of row r
|        |  box  |            |                           lies at c xor (r mod 8)
|        +-------+            |
+-----------------------------+   what lies outside is read as zero and not written
"""

from __future__ import annotations

import ctypes
from functools import cache

from tilewright.backends.cuda.machine import nvrtc
from tilewright.errors import DeviceError

BYTES = 128
ALIGNMENT = 64  # of a map in the host's memory, in bytes: the driver demands it
_WORDS = range(0, BYTES, 4)


def encoded(
    kind: str,
    address: int,
    sizes: tuple[int, int],
    pitch: int,
    box: tuple[int, int],
    *,
    fetch: int = 256,
) -> bytes:
    """The map of a matrix. Raises DeviceError where the driver refuses it.

    Args:
        kind: of the elements, as the driver calls it: "BFLOAT16".
        address: in bytes, a multiple of 16, as is `pitch`.
        sizes: columns and rows.
        pitch: bytes from one row to the next.
        box: columns and rows that a copy moves, 128 bytes wide.
        fetch: how many bytes L2 fetches at once, 128 or 256.
    """
    from cuda.bindings import driver

    long, short = driver.cuuint64_t, driver.cuuint32_t
    found = nvrtc.check(
        driver.cuTensorMapEncodeTiled(
            getattr(driver.CUtensorMapDataType, f"CU_TENSOR_MAP_DATA_TYPE_{kind}"),
            2,
            address,
            [long(size) for size in sizes],
            [long(pitch)],
            [short(size) for size in box],
            [short(1), short(1)],
            driver.CUtensorMapInterleave.CU_TENSOR_MAP_INTERLEAVE_NONE,
            driver.CUtensorMapSwizzle.CU_TENSOR_MAP_SWIZZLE_128B,
            getattr(driver.CUtensorMapL2promotion, f"CU_TENSOR_MAP_L2_PROMOTION_L2_{fetch}B"),
            driver.CUtensorMapFloatOOBfill.CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE,
        ),
        f"tensor map of {sizes[1]} x {sizes[0]} {kind} at {address}, pitch {pitch}",
    )
    return ctypes.string_at(int(found.getPtr()), BYTES)


@cache
def begins_with_address() -> bool:
    """Whether a map is 8 bytes of address and then what does not depend on it."""
    places = (1 << 40, (1 << 40) + 256 * 977, (1 << 45) + 256 * 12345)
    made = [encoded("FLOAT16", at, (200, 300), 512, (64, 64)) for at in places]
    heads = tuple(int.from_bytes(one[:8], "little") for one in made)
    return heads == places and len({one[8:] for one in made}) == 1


@cache
def place_of_rows() -> int | None:
    """Where a map says how many rows its matrix has, less one, in 4 bytes; None if nowhere so.

    No manual says it: maps that differ in their rows alone are compared.
    """
    counts = (1, 300, 70_000, 2**31 - 1)
    try:
        made = [encoded("FLOAT16", 1 << 40, (200, rows), 512, (64, 64)) for rows in counts]
    except DeviceError:
        return None
    words = [tuple(int.from_bytes(one[at : at + 4], "little") for one in made) for at in _WORDS]
    differ = [at for at, word in zip(_WORDS, words, strict=True) if len(set(word)) > 1]
    if len(differ) != 1 or words[differ[0] // 4] != tuple(rows - 1 for rows in counts):
        return None
    return differ[0]


def differs_in_rows(one: bytes, other: bytes, place: int, rows: int) -> bool:
    """Whether `other`, of so many rows, is `one` but for these, at `place`, and for the address."""
    told = (rows - 1).to_bytes(4, "little")
    return one[8:place] + told + one[place + 4 :] == other[8:]
