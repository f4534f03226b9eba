"""Registers that a compiler put into memory, read from what it made for a GPU that is not here."""

from __future__ import annotations

import re
import struct
from typing import Any

_FRAME_SIZE = 0x11  # of .nv.info: a function, and the bytes of its stack
_WORDS = 4  # the form of entries that have contents; others are four bytes long


def spilled(asm: dict[str, Any]) -> int:
    """Bytes (AMD: registers) that a kernel of Triton keeps in memory for want of registers."""
    if "cubin" in asm:
        return max(stacks(asm["cubin"]), default=0)
    counts = r"\.(?:vgpr_spill_count|private_segment_fixed_size):\s+(\d+)"
    return max(map(int, re.findall(counts, asm["amdgcn"])))


def stacks(cubin: bytes) -> list[int]:
    """The bytes of stack of each function of a cubin, an ELF file of 64 bits."""
    frames: list[int] = []
    for name, contents in sections(cubin):
        if name == ".nv.info":
            frames += _frames(contents)
    return frames


def sections(cubin: bytes) -> list[tuple[str, bytes]]:
    """The parts of a cubin by name; `.text.NAME` are the instructions of a kernel."""
    (table,) = struct.unpack_from("<Q", cubin, 40)
    size, count, of_names = struct.unpack_from("<HHH", cubin, 58)
    found = [struct.unpack_from("<IIQQQQ", cubin, table + size * i) for i in range(count)]
    names = found[of_names][4]
    return [
        (cubin[names + name :].split(b"\0", 1)[0].decode(), cubin[at : at + length])
        for name, _, _, _, at, length in found
    ]


def _frames(entries: bytes) -> list[int]:
    at, found = 0, []
    while at < len(entries):
        form, kind, length = struct.unpack_from("<BBH", entries, at)
        if form == _WORDS and kind == _FRAME_SIZE:
            found.append(struct.unpack_from("<I", entries, at + 8)[0])
        at += 4 + (length if form == _WORDS else 0)
    return found
