"""Ways to draw inputs: .npy and .npz that lie, JSON with parts replaced, and damage to bytes."""

from __future__ import annotations

import copy
import io
import json
import struct
import zipfile
from collections.abc import Sequence
from random import Random
from typing import Any

import numpy as np
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

# Numbers that sizes are confused by, at widths of 1, 2, 4 and 8 bytes.
ODD_NUMBERS = (0, 1, 7, 127, 255, 2**15, 2**16 - 1, 2**31 - 1, 2**31, 2**32 - 1, 2**62, 2**63 - 1)
SIZES = st.one_of(st.integers(0, 9), st.sampled_from((*ODD_NUMBERS, -1, 10**30)))
JUNK: SearchStrategy[Any] = st.one_of(
    SIZES,
    st.none(),
    st.booleans(),
    st.floats(),
    st.sampled_from(("", "a", "auto", "float32", "\ud800", "x" * 300, [], {}, [[]], {"": None})),
    st.lists(SIZES, max_size=5),
)


def damaged(content: bytes, dice: Random) -> bytes:
    """`content` after one to four places were flipped, cut, dropped, repeated or written over."""
    for _ in range(dice.randint(1, 4)):
        at, amount = dice.randint(0, len(content)), dice.choice((1, 2, 4, 8, 40, 300))
        before, after = content[:at], content[at:]
        raw = struct.pack("<Q", dice.choice(ODD_NUMBERS))[: dice.choice((1, 2, 4, 8))]
        flipped = bytes([after[0] ^ 1 << dice.randint(0, 7)]) if after else b""
        content = dice.choice(
            (
                before,
                before + flipped + after[1:],
                before + after[amount:],
                before + after[:amount] + after,
                before + raw + after[len(raw) :],
                before + bytes([dice.randint(0, 255)]) * amount + after,
                before + dice.choice(_WORDS) + after,
            )
        )
    return content


_WORDS = (b"0", b"-", b"9" * 20, b"[", b"{", b'"', b",", b"\n", b"\0", b"nan", b"1e999", b"PK\5\6")


@st.composite
def npy(draw: st.DrawFn, dtypes: Sequence[str] = ("<f4", "<i8")) -> bytes:
    """An .npy of a few elements whose header may lie, and may be of another length or version."""
    dtype = draw(st.sampled_from((*dtypes, *_OTHER_DTYPES)))
    shape = tuple(draw(st.lists(st.integers(0, 5), max_size=3)))
    content = np.random.default_rng(0).bytes(min(_bytes(dtype, shape), 4096))
    claimed = tuple(draw(st.one_of(st.just(shape), st.lists(SIZES, max_size=4))))
    order = draw(st.booleans())
    header = draw(
        st.sampled_from(
            (
                f"{{'descr': {dtype!r}, 'fortran_order': {order}, 'shape': {claimed}}}",
                f"{{'descr': {dtype!r}, 'shape': {claimed}}}",
                "(" * 990,
                "-" * 990 + "1",
                "{'descr': [('a', '<f4', (2**31, 2**31))], 'fortran_order': False, 'shape': (1,)}",
                " " * 9999,
            )[: draw(st.sampled_from((1, 1, 1, 6)))]
        )
    )
    version = draw(st.sampled_from((1, 1, 1, 2, 3, 255)))
    length = draw(st.one_of(st.just(len(header)), st.sampled_from(ODD_NUMBERS)))
    packed = struct.pack(
        "<I" if version == 2 else "<H", length % (2**32 if version == 2 else 2**16)
    )
    return b"\x93NUMPY" + bytes([version, 0]) + packed + header.encode() + content


_OTHER_DTYPES = ("<f8", ">f4", "<f2", "|u1", "|O", "<c8", "<U9", "|V0", "<M8[s]", "nonsense")


def _bytes(dtype: str, shape: tuple[int, ...]) -> int:
    try:
        return int(np.prod(shape, dtype=np.int64)) * np.dtype(dtype).itemsize
    except TypeError:
        return 8


def npy_of(array: Any) -> bytes:
    """An honest .npy."""
    stream = io.BytesIO()
    np.save(stream, np.asarray(array), allow_pickle=False)
    return stream.getvalue()


@st.composite
def npz(draw: st.DrawFn, honest: dict[str, Any], compressed: bool = True) -> bytes:
    """An archive of honest members, some of them left out, replaced or added to.

    Some members unpack to a thousand times what they take.
    """
    members = {name: npy_of(array) for name, array in honest.items()}
    for name in draw(st.lists(st.sampled_from((*honest, "other")), max_size=2)):
        members[name] = draw(st.one_of(npy(), st.just(b""), st.sampled_from(_BOMBS)))
    for name in draw(st.lists(st.sampled_from(tuple(honest)), max_size=1)):
        members.pop(name, None)
    ways = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
    way = draw(st.sampled_from(ways if compressed else (*ways[:1] * 5, *ways)))
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", way) as archive:
        for name, content in members.items():
            archive.writestr(zipfile.ZipInfo(f"{name}.npy"), content, way)
    return stream.getvalue()


def _bomb(kind: str, count: int) -> bytes:
    stream = io.BytesIO()
    header = {"descr": kind, "fortran_order": False, "shape": (count,)}
    np.lib.format.write_array_header_1_0(stream, header)
    return stream.getvalue() + bytes(count * np.dtype(kind).itemsize)


def _long_header(length: int) -> bytes:
    return b"\x93NUMPY\x02\x00" + struct.pack("<I", length) + b" " * length


_BOMBS = (_bomb("<i8", 1 << 14), _bomb("<f4", 1 << 15), _long_header(1 << 17))


@st.composite
def json_text(draw: st.DrawFn, honest: Any) -> bytes:
    """A document of JSON with parts replaced or left out."""
    document = copy.deepcopy(honest)
    for _ in range(draw(st.integers(0, 3))):
        document = _changed(draw, document)
    text = json.dumps(document).encode("utf-8", "surrogatepass")
    if draw(st.integers(0, 20)) == 0:
        text = draw(st.sampled_from((b"[" * 100_000, b'{"a":' * 50_000, b"9" * 10_000, b"\xff")))
    return text


def _changed(draw: st.DrawFn, document: Any) -> Any:
    """One place, some levels down, holds something else."""
    if isinstance(document, dict) and document and draw(st.integers(0, 4)):
        name = draw(st.sampled_from(tuple(document)))
        if draw(st.integers(0, 9)) == 0:
            return {key: value for key, value in document.items() if key != name}
        return {**document, name: _changed(draw, document[name])}
    if isinstance(document, list) and document and draw(st.integers(0, 4)):
        at = draw(st.integers(0, len(document) - 1))
        return [*document[:at], _changed(draw, document[at]), *document[at + 1 :]]
    return draw(JUNK)
