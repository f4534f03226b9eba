"""Small files that ask for much memory: refused in words, before the memory is taken."""

from __future__ import annotations

import io
import tracemalloc
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from tilewright import GroupedPlan, RaggedBatch, onebit
from tilewright.cli import app, files, market, sizes
from tilewright.errors import FileError
from tilewright.files import reading
from tilewright.nn.window import Window
from tilewright.onebit import layers
from tilewright.tuning import exchange

MIB = 1 << 20
COLUMN = np.array([3])


@contextmanager
def within(most: int) -> Iterator[None]:
    """What is asked for inside, touched or not, stays below `most` bytes."""
    tracemalloc.start()
    try:
        yield
        assert tracemalloc.get_traced_memory()[1] < most
    finally:
        tracemalloc.stop()


def header(dtype: str, shape: tuple[int, ...]) -> bytes:
    stream = io.BytesIO()
    fields = {"descr": dtype, "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(stream, fields)
    return stream.getvalue()


def archive(path: Path, honest: dict[str, Any], hostile: dict[str, bytes], zeros: int) -> None:
    """An .npz of arrays and of members that begin so, and then unpack to that many zeros."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        for name, array in honest.items():
            stream = io.BytesIO()
            np.save(stream, array)
            file.writestr(zipfile.ZipInfo(f"{name}.npy"), stream.getvalue())
        for name, begin in hostile.items():
            with file.open(f"{name}.npy", "w", force_zip64=True) as member:
                member.write(begin)
                for _ in range(zeros // MIB):
                    member.write(bytes(MIB))


def bomb(name: str, dtype: str, *honest: str) -> Callable[[Path], None]:
    """64 MiB of zeros in a file of 64 KiB."""

    def write(path: Path) -> None:
        begin = header(dtype, (64 * MIB // np.dtype(dtype).itemsize,))
        archive(path, dict.fromkeys(honest, COLUMN), {name: begin}, 64 * MIB)

    return write


def packed_rows(path: Path) -> None:
    """A saved batch but for its rows, which claim to be many."""
    RaggedBatch.from_list([np.ones((2, 3), np.float32)]).save(path)
    with zipfile.ZipFile(path) as file:
        kept = {name: file.read(name) for name in file.namelist() if name != "rows.npy"}
    with zipfile.ZipFile(path, "w") as file:
        for name, content in kept.items():
            file.writestr(zipfile.ZipInfo(name), content)
        begin = header("<i8", (8 * MIB,))
        file.writestr("rows.npy", begin + bytes(64 * MIB), zipfile.ZIP_DEFLATED)


def long_header(path: Path) -> None:
    """A header that says that it has 12 MiB."""
    begin = b"\x93NUMPY\x02\x00" + (12 * MIB).to_bytes(4, "little")
    archive(path, {}, {"a": begin}, 12 * MIB)


def lying_shape(path: Path) -> None:
    archive(path, {}, {"a": header("<f4", (2**40, 2**20))}, 0)


def operand(path: Path) -> Any:
    return files.load(str(path), "A", lambda _: None)


BOMBS: list[tuple[str, str, Callable[[Path], None], Callable[[Path], Any], str]] = [
    ("an operand", "a.npz", bomb("a", "<f4"), operand, "more than 100 times the file"),
    ("a column", "a.npz", bomb("m", "<i8", "n", "k"), sizes.load, "more than 100 times the file"),
    ("a batch", "a.npz", bomb("flat", "<f4"), RaggedBatch.load, "lacks rows"),
    ("rows of a batch", "a.npz", packed_rows, RaggedBatch.load, "more than 100 times the file"),
    ("a header", "a.npz", long_header, operand, "more than 1000"),
    ("a shape", "a.npz", lying_shape, operand, "claims"),
    (
        "a shape of an .npy",
        "a.npy",
        lambda p: p.write_bytes(header("<f4", (2**50,))),
        operand,
        "cl",
    ),
]


@pytest.mark.parametrize(
    ("name", "write", "read", "said"), [b[1:] for b in BOMBS], ids=[b[0] for b in BOMBS]
)
def test_what_unpacks_to_far_more_than_its_file_is_refused(
    name: str,
    write: Callable[[Path], None],
    read: Callable[[Path], Any],
    said: str,
    tmp_path: Path,
) -> None:
    write(tmp_path / name)
    with within(8 * MIB), pytest.raises(FileError, match=said):
        read(tmp_path / name)


def honest_operand(path: Path) -> None:
    np.savez(path, np.ones((3, 4), np.float32))


def honest_batch(path: Path) -> None:
    RaggedBatch.from_list([np.ones((2, 3), np.float32)]).save(path)


def honest_sizes(path: Path) -> None:
    np.savez(path, m=COLUMN, n=COLUMN, k=COLUMN)


def honest_network(path: Path) -> None:
    weights = onebit.pack(np.ones((8, 3, 3, 8), np.int8))
    window = Window((3, 3), pads=(1, 1, 1, 1))
    sign = layers.Sign(name="sign", inputs=("input",))
    conv = layers.BitConv(name="conv", inputs=("sign",), weights=weights, window=window)
    onebit.save(onebit.Network((4, 4, 8), (sign, conv)), path)


READERS: list[tuple[Callable[[Path], None], Callable[[Path], Any]]] = [
    (honest_operand, operand),
    (honest_batch, RaggedBatch.load),
    (honest_sizes, sizes.load),
    (honest_network, onebit.load),
]


@pytest.mark.parametrize("claims", [(2**31 - 1, 0), (2**31 - 1, None), (2**30, 2**30), (0, None)])
@pytest.mark.parametrize(("write", "read"), READERS, ids=lambda one: one.__name__)
def test_a_directory_that_claims_other_sizes_is_refused_before_memory_is_asked_for(
    write: Callable[[Path], None],
    read: Callable[[Path], Any],
    claims: tuple[int, int | None],
    tmp_path: Path,
) -> None:
    """As much as is told to be stored, and to be read, in the directory at an archive's end."""
    path = tmp_path / "a.npz"
    write(path)
    read(path)
    content = bytearray(path.read_bytes())
    at = content.find(b"PK\x01\x02")
    while at >= 0:
        for place, claim in zip((20, 24), claims, strict=True):
            if claim is not None:
                content[at + place : at + place + 4] = claim.to_bytes(4, "little")
        at = content.find(b"PK\x01\x02", at + 1)
    path.write_bytes(bytes(content))
    with within(8 * MIB), pytest.raises(FileError):
        read(path)


def test_what_packs_well_is_read_where_the_file_is_not_small(tmp_path: Path) -> None:
    """Zeros pack a thousandfold, but a few MiB of them are no danger; numbers hardly pack."""
    np.savez_compressed(tmp_path / "zeros.npz", np.zeros((1000, 1000), np.float32))
    assert not operand(tmp_path / "zeros.npz").any()
    sparse = np.zeros((3000, 3000), np.float32)
    sparse[::7, ::11] = np.random.default_rng(0).standard_normal((429, 273), np.float32)
    np.savez_compressed(tmp_path / "sparse.npz", sparse)
    assert np.array_equal(operand(tmp_path / "sparse.npz"), sparse)


def test_an_array_beyond_what_the_reader_may_take_is_refused(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", np.ones(1000))
    with pytest.raises(FileError, match="has 8000 bytes; accepted are 7999"):
        files.load(str(tmp_path / "a.npz"), "A", lambda _: None, 7999)
    assert len(files.load(str(tmp_path / "a.npz"), "A", lambda _: None, 8000)) == 1000


@pytest.mark.parametrize("way", [zipfile.ZIP_LZMA, zipfile.ZIP_BZIP2])
def test_only_what_numpy_packs_is_unpacked(way: int, tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.npz", "w", way) as file:
        file.writestr("a.npy", header("<f4", (0,)))
    with pytest.raises(FileError, match=r"packed as numpy\.savez does not"):
        operand(tmp_path / "a.npz")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("coordinate real general\n3 3 99999999\n1 1 1\n", "99999999 entries, more than"),
        ("coordinate real general\n9999999 9999999 1\n1 1 1\n", "made dense is"),
        ("array real general\n5000 5000\n1\n", "25000000 entries, more than"),
        ("array real symmetric\n5000 5000\n1\n", "entries, more than"),
        ("array real general\n" + "1" * 70_000, "line of sizes|integer string"),
    ],
)
def test_a_matrix_market_header_is_not_believed(text: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "a.mtx").write_text(f"%%MatrixMarket matrix {text}")
    with within(8 * MIB), pytest.raises(ValueError, match=said):
        market.read(tmp_path / "a.mtx", 256 * MIB)


@pytest.mark.parametrize(
    "text", ["m,n,k\n1,2," + "3" * 100_000, "m,n,k\n" + "," * 100_000, "m" * 100_000]
)
def test_a_line_of_a_table_has_an_end(text: str, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(text)
    with within(8 * MIB), pytest.raises(FileError, match="of at most 65536 characters"):
        sizes.load(tmp_path / "a.csv")


def sparse(path: Path, size: int) -> None:
    with path.open("wb") as file:
        file.truncate(size)


@pytest.mark.parametrize(
    ("read", "size"),
    [
        (lambda path: GroupedPlan.load(path, device="host"), 1 << 30),
        (exchange.import_file, 1 << 30),
    ],
    ids=["a plan", "an export"],
)
def test_documents_are_read_up_to_a_limit(
    read: Callable[[Path], Any], size: int, tmp_path: Path, own_store: Path
) -> None:
    sparse(tmp_path / "a.json", size)
    with within(200 * MIB), pytest.raises(FileError, match="it has more than"):
        read(tmp_path / "a.json")


def test_a_product_beyond_this_machine_is_refused_before_it_is_begun(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two files of 128 bytes: matrices without an element, and a product of 400 terabytes."""
    monkeypatch.chdir(tmp_path)
    Path("a.npy").write_bytes(header("<f4", (10**7, 0)))
    Path("b.npy").write_bytes(header("<f4", (0, 10**7)))
    Path("bt.npy").write_bytes(header("<f4", (2, 10**7, 0)))
    for right, options in (("b.npy", ()), ("bt.npy", ("--transpose-b",))):
        done = CliRunner().invoke(app, ["matmul", "a.npy", right, "-o", "c.npy", *options])
        assert done.exit_code == 2
        assert "their product has" in done.stderr
    assert not Path("c.npy").exists()


def test_a_document_takes_what_it_holds_and_not_what_it_may_hold(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text("[1]")
    with within(MIB):
        assert reading.document(tmp_path / "a.json", 1 << 30) == [1]


def test_a_document_that_never_ends_is_given_up() -> None:
    with within(8 * MIB), pytest.raises(ValueError, match="more than"):
        reading.document(Path("/dev/zero"), MIB)
