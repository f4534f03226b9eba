"""RaggedBatch: where its matrices lie, what it borrows, and files that are not what they say."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tilewright import Device, RaggedBatch
from tilewright.errors import ArgumentError, DtypeError, FileError, OperandError, ShapeError

SHAPES = [(2, 3), (0, 5), (4, 4), (1, 1), (7, 0), (17, 3)]
TYPES = ("float16", "float32", "float64")


def filled(dtype: str = "float32") -> RaggedBatch:
    generator = np.random.default_rng(0)
    return RaggedBatch.from_list([generator.standard_normal(s).astype(dtype) for s in SHAPES])


def assert_equal(one: RaggedBatch, other: RaggedBatch) -> None:
    assert one.shapes == other.shapes
    assert one.dtype == other.dtype
    for left, right in zip(one, other, strict=True):
        np.testing.assert_array_equal(left, right)


@pytest.mark.parametrize("dtype", TYPES)
def test_every_matrix_starts_on_a_cache_line(dtype: str) -> None:
    batch = RaggedBatch.empty(SHAPES, dtype)
    assert len(batch) == len(SHAPES)
    assert batch.shapes == SHAPES
    assert batch.dtype == dtype
    starts = [matrix.ctypes.data for matrix in batch if matrix.size]
    assert [start % 64 for start in starts] == [0] * len(starts)
    assert all(matrix.flags.c_contiguous for matrix in batch)


def test_the_worked_example_of_the_module_holds() -> None:
    batch = RaggedBatch.empty([(2, 3), (0, 5), (4, 4)])
    assert batch.offsets.tolist() == [0, 16, 16]
    assert batch.flat.size == 32


def test_matrices_do_not_share_memory() -> None:
    batch = RaggedBatch.empty(SHAPES)
    for index, matrix in enumerate(batch):
        matrix[...] = index
    for index, matrix in enumerate(batch):
        assert (matrix == index).all()


@pytest.mark.parametrize("dtype", TYPES)
def test_a_batch_of_a_list_is_a_copy_of_it(dtype: str) -> None:
    base = np.arange(48).reshape(6, 8).astype(dtype)
    given = [base, base.T, base[::-2, 1::3], base[2:2], np.asfortranarray(base)]
    kept = [x.copy() for x in given]
    batch = RaggedBatch.from_list(given)
    base[...] = -1
    assert batch.dtype == dtype
    for matrix, old in zip(batch, kept, strict=True):
        np.testing.assert_array_equal(matrix, old)


def test_an_empty_list_is_an_empty_batch(tmp_path: Path) -> None:
    batch = RaggedBatch.from_list([])
    assert len(batch) == 0
    assert list(batch) == []
    assert batch.shapes == []
    batch.save(tmp_path / "none.npz")
    assert len(RaggedBatch.load(tmp_path / "none.npz")) == 0


def test_indices_are_those_of_a_list() -> None:
    batch = filled()
    np.testing.assert_array_equal(batch[-1], batch[len(SHAPES) - 1])
    with pytest.raises(IndexError):
        batch[len(SHAPES)]
    batch[0][0, 0] = 7
    assert batch.flat[0] == 7


def test_rows_are_borrowed_not_copied() -> None:
    x = np.arange(40, dtype=np.float32).reshape(10, 4)
    batch = RaggedBatch.from_rows(x, [0, 3, 3, 9])
    assert batch.shapes == [(3, 4), (0, 4), (6, 4)]
    assert np.shares_memory(batch.flat, x)
    assert np.shares_memory(batch[2], x[3:9])
    x[3, 1] = -5
    assert batch[2][0, 1] == -5
    np.testing.assert_array_equal(batch[0], x[:3])


@pytest.mark.parametrize("count", [0, 1])
def test_one_offset_or_no_rows_make_batches_too(count: int) -> None:
    x = np.zeros((0, 4), np.float32)
    batch = RaggedBatch.from_rows(x, [0] * (count + 1))
    assert batch.shapes == [(0, 4)] * count


@pytest.mark.parametrize(
    ("offsets", "error", "words"),
    [
        ([0, 5, 3], ShapeError, r"offsets\[2\]: must not decrease"),
        ([0, 11], ShapeError, r"offsets\[-1\]=11: runs past the 10 rows"),
        ([-1, 5], ShapeError, r"offsets\[0\]=-1"),
        ([], ShapeError, "one at least"),
        ([0.0, 5.0], ArgumentError, "offsets of float64"),
        ([float("nan"), 5.0], ArgumentError, "offsets of float64"),
        ([[0, 5]], ArgumentError, "offsets of int64"),
        ([[0], [0, 5]], ArgumentError, "offsets"),
        ([0, 2**70], ArgumentError, "offsets of object"),
        (np.array([0, 2**63 + 5], np.uint64), ShapeError, r"offsets\[1\]=9223372036854775813"),
    ],
)
def test_offsets_that_are_none_are_refused(offsets: Any, error: Any, words: str) -> None:
    with pytest.raises(error, match=words):
        RaggedBatch.from_rows(np.zeros((10, 4), np.float32), offsets)


@pytest.mark.parametrize(
    "x",
    [
        np.zeros((10, 4), np.float32).T,
        np.zeros((10, 4), np.float32)[:, :2],
        np.zeros(10, np.float32),
        [[0.0, 1.0]],
        None,
    ],
)
def test_rows_that_would_have_to_be_copied_are_refused(x: Any) -> None:
    with pytest.raises(OperandError, match=r"x.*must be a C-ordered matrix"):
        RaggedBatch.from_rows(x, [0, 1])


def test_blocks_of_a_sparse_matrix_are_borrowed() -> None:
    sparse = pytest.importorskip("scipy.sparse")
    dense = np.zeros((6, 9), np.float32)
    dense[:2, 3:6], dense[4:, :3], dense[4:, 6:] = 1.5, 2.5, 3.5
    matrix = sparse.bsr_matrix(dense, blocksize=(2, 3))
    batch = RaggedBatch.from_bsr(matrix)
    assert batch.shapes == [(2, 3)] * 3
    assert np.shares_memory(batch.flat, matrix.data)
    for block, kept in zip(batch, matrix.data, strict=True):
        np.testing.assert_array_equal(block, kept)
    for other in (matrix.tocsr(), dense, None):
        with pytest.raises(OperandError, match="BSR"):
            RaggedBatch.from_bsr(other)


@pytest.mark.parametrize("dtype", TYPES)
def test_a_batch_comes_back_from_a_device_as_it_went(device: Device, dtype: str) -> None:
    if dtype not in device.dtypes:
        pytest.skip(f"{device.id} has no {dtype}")
    batch = filled(dtype)
    there = batch.to(device)
    with pytest.raises(OperandError, match="to\\('host'\\)"):
        there[0]
    assert_equal(there.to("host"), batch)


def test_at_of_two_batches_is_one_batch_of_their_products(opencl_device: Device) -> None:
    a = filled()
    ones = [np.ones((cols, i), np.float32) for i, (_, cols) in enumerate(SHAPES)]
    b = RaggedBatch.from_list(ones)
    for left, right in ((a, b), (a.to(opencl_device), b.to(opencl_device))):
        made = left @ right
        assert isinstance(made, RaggedBatch)
        for one, x, y in zip(made.to("host"), a, b, strict=True):
            np.testing.assert_allclose(one, x @ y, rtol=1e-5, atol=1e-6)
    assert len(RaggedBatch.from_list([]) @ RaggedBatch.from_list([])) == 0


def test_at_of_batches_that_do_not_fit_names_both() -> None:
    a = filled()
    few = RaggedBatch.from_list([np.ones((3, 2), np.float32)])
    with pytest.raises(ShapeError, match=r"b: has 1 matrices; must have 6, as many as a"):
        a @ few
    with pytest.raises(ShapeError, match=r"b\[0\]: has 2 rows; must have 3, the columns of a\[0\]"):
        a @ a
    with pytest.raises(DtypeError, match=r"b.dtype='float64'.*a.dtype='float32'"):
        few @ RaggedBatch.from_list([np.ones((2, 2))])
    for other in ([np.ones((3, 2))], None, np.ones((3, 2))):
        assert few.__matmul__(other) is NotImplemented
        with pytest.raises(TypeError):
            few @ other
        with pytest.raises(TypeError):
            other @ few


# What does not fit.


@pytest.mark.parametrize(
    ("rows", "cols", "offsets", "error", "words"),
    [
        ([2], [3], [5], ShapeError, r"offsets\[0\]=5.*2 x 3.*past the 10"),
        ([2, 11], [3, 1], [0, 0], ShapeError, r"offsets\[1\]=0"),
        ([2, 2], [3], [0], ShapeError, "2, 1 and 1"),
        ([-1], [3], [0], ShapeError, r"rows\[0\]=-1"),
        ([2], [3], [-1], ShapeError, r"offsets\[0\]=-1"),
        ([2**32], [2**32], [0], ShapeError, "past"),
        ([2**62], [4], [0], ShapeError, "past"),
        ([1], [1], [2**63 - 1], ShapeError, "past"),
        (np.array([2**63 + 1], np.uint64), [1], [0], ShapeError, r"rows\[0\]=9223372036854775809"),
        ([1.0], [1], [0], ArgumentError, "rows of float64"),
        ([True], [1], [0], ArgumentError, "rows of bool"),
        (["1"], [1], [0], ArgumentError, "rows of <U1"),
        ([[1], [1, 2]], [1], [0], ArgumentError, "rows"),
    ],
)
def test_sizes_that_do_not_fit_the_buffer_are_refused(
    rows: Any, cols: Any, offsets: Any, error: Any, words: str
) -> None:
    with pytest.raises(error, match=words):
        RaggedBatch(np.zeros(10, np.float32), rows, cols, offsets)


@pytest.mark.parametrize(
    "flat",
    [np.zeros(20, np.float32)[::2], np.zeros((2, 5), np.float32), [0.0] * 10, None],
    ids=["gaps", "2-D", "list", "None"],
)
def test_elements_that_do_not_follow_each_other_are_refused(flat: Any) -> None:
    with pytest.raises(OperandError, match="flat"):
        RaggedBatch(flat, [1], [1], [0])


@pytest.mark.parametrize("dtype", ["int64", "object", ">f4", ">c8"])
def test_other_elements_are_refused(dtype: str) -> None:
    with pytest.raises(DtypeError, match="float32"):
        RaggedBatch(np.zeros(10, dtype), [1], [1], [0])
    with pytest.raises(DtypeError, match="float32"):
        RaggedBatch.empty([(2, 2)], dtype)
    with pytest.raises(DtypeError, match="float32"):
        RaggedBatch.from_list([np.zeros((2, 2), dtype)])


@pytest.mark.parametrize(
    ("shapes", "error", "words"),
    [
        ([2, 3], ShapeError, r"\[count, 2\]"),
        ([(2, 3, 4)], ShapeError, r"\[count, 2\]"),
        ([(2, 3), (4,)], ShapeError, r"\[count, 2\]"),
        ([(2, -3)], ShapeError, "-3"),
        ([(2.0, 3.0)], ArgumentError, "float64"),
        ([(float("nan"), 3)], ArgumentError, "float64"),
        ([(2**40, 2**40)], ShapeError, r"2\^62"),
        ([(2**31, 2**30)] * 3, ShapeError, r"2\^62"),
        ([(2**62, 2)], ShapeError, r"2\^62"),
    ],
)
def test_shapes_that_cannot_be_are_refused(shapes: Any, error: Any, words: str) -> None:
    with pytest.raises(error, match=words):
        RaggedBatch.empty(shapes)


def test_more_memory_than_there_is_is_a_memory_error() -> None:
    with pytest.raises(MemoryError):
        RaggedBatch.empty([(2**30, 2**29)])


def test_lists_that_do_not_fit_together_are_refused() -> None:
    good = np.zeros((2, 2), np.float32)
    with pytest.raises(ShapeError, match=r"matrices\[1\]\.shape=\(2,\)"):
        RaggedBatch.from_list([good, good[0]])
    with pytest.raises(DtypeError, match=r"matrices\[2\]\.dtype=float64"):
        RaggedBatch.from_list([good, good, good.astype("f8")])


# Files.


@pytest.mark.parametrize("dtype", TYPES)
def test_a_saved_batch_loads_as_a_map_of_its_file(dtype: str, tmp_path: Path) -> None:
    batch = filled(dtype)
    batch.save(tmp_path / "batch.npz")
    loaded = RaggedBatch.load(tmp_path / "batch.npz")
    assert_equal(loaded, batch)
    assert isinstance(loaded.flat, np.memmap)
    assert not loaded.flat.flags.writeable
    assert loaded.offsets.tolist() == batch.offsets.tolist()


def test_a_batch_on_a_device_is_saved_from_there(opencl_device: Device, tmp_path: Path) -> None:
    filled().to(opencl_device).save(tmp_path / "batch")
    assert_equal(RaggedBatch.load(str(tmp_path / "batch")), filled())


def test_a_loaded_batch_may_be_saved_over_its_own_file(tmp_path: Path) -> None:
    path = tmp_path / "batch.npz"
    filled().save(path)
    loaded = RaggedBatch.load(path)
    loaded.save(path)
    assert_equal(loaded, filled())
    assert_equal(RaggedBatch.load(path), filled())
    assert [entry.name for entry in tmp_path.iterdir()] == ["batch.npz"]


def test_a_file_that_is_not_there_is_file_not_found(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        RaggedBatch.load(tmp_path / "none.npz")


@pytest.mark.parametrize("share", [0.0, 0.01, 0.3, 0.9, 0.999])
def test_a_truncated_file_is_a_file_error(share: float, tmp_path: Path) -> None:
    path = tmp_path / "batch.npz"
    filled().save(path)
    whole = path.read_bytes()
    path.write_bytes(whole[: int(len(whole) * share)])
    with pytest.raises(FileError, match=r"batch\.npz"):
        RaggedBatch.load(path)


def test_a_compressed_file_is_a_file_error(tmp_path: Path) -> None:
    path, batch = tmp_path / "batch.npz", filled()
    np.savez_compressed(path, **members(batch))
    with pytest.raises(FileError, match="compressed"):
        RaggedBatch.load(path)


def test_a_file_without_a_member_is_a_file_error(tmp_path: Path) -> None:
    path = tmp_path / "batch.npz"
    for name in ("flat", "rows", "cols", "offsets"):
        np.savez(path, **{key: value for key, value in members(filled()).items() if key != name})
        with pytest.raises(FileError, match=f"lacks {name}"):
            RaggedBatch.load(path)


def members(batch: RaggedBatch) -> dict[str, Any]:
    return {name: getattr(batch, name) for name in ("flat", "rows", "cols", "offsets")}


@pytest.mark.parametrize(
    "change",
    [
        {"rows": np.array([2**40])},
        {"rows": np.array([-2])},
        {"rows": np.array([2, 2])},
        {"rows": np.array([2.0])},
        {"rows": np.array([None], object)},
        {"rows": np.array([2**63 + 2], np.uint64)},
        {"offsets": np.array([5])},
        {"offsets": np.array([-(2**63)])},
        {"offsets": np.array([2**63 - 1])},
        {"cols": np.array([2**62])},
        {"flat": np.zeros(6, np.int32)},
        {"flat": np.zeros(6, ">f4")},
        {"flat": np.zeros(6, object)},
        {"flat": np.zeros((2, 3), np.float32)},
        {"flat": np.zeros((), np.float32)},
        {"flat": np.zeros(0, np.float32)},
    ],
    ids=lambda change: "-".join(f"{k}-{v.dtype}-{v.shape}-{v}" for k, v in change.items())[:60],
)
def test_a_file_of_hostile_sizes_is_a_file_error(change: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "batch.npz"
    flat, one = np.zeros(6, np.float32), np.array([2])
    honest = {"flat": flat, "rows": one, "cols": one + 1, "offsets": one - 2}
    np.savez(path, **honest)
    assert RaggedBatch.load(path).shapes == [(2, 3)]
    np.savez(path, **{**honest, **change})
    with pytest.raises(FileError, match=r"batch\.npz"):
        RaggedBatch.load(path)


@pytest.mark.parametrize("name", ["flat", "rows"])
@pytest.mark.parametrize("shape", ["(1000000,)", "(2305843009213693951,)", "(-5,)", "(2,", "()"])
def test_a_header_that_lies_is_a_file_error(name: str, shape: str, tmp_path: Path) -> None:
    path = tmp_path / "batch.npz"
    arrays = {
        "flat": np.zeros(6, np.float32),
        "rows": np.array([2]),
        "cols": np.array([3]),
        "offsets": np.array([0]),
    }
    with zipfile.ZipFile(path, "w") as archive:
        for key, array in arrays.items():
            file = io.BytesIO()
            np.save(file, array)
            content = file.getvalue()
            if key == name:
                content = content.replace(f"'shape': {array.shape}".encode(), b"'shape': ?")
                room = content.replace(b"?", shape.encode(), 1)
                # The header's length stays: the longer shape takes the place of padding.
                head = room.index(b"\n") + 1
                excess = len(room) - len(file.getvalue())
                cut = room[: head - 1].rstrip(b" ")
                content = cut + b" " * (head - 1 - excess - len(cut)) + room[head - 1 :]
            archive.writestr(f"{key}.npy", content)
    with pytest.raises(FileError, match=r"batch\.npz"):
        RaggedBatch.load(path)


@pytest.mark.parametrize("content", [b"", b"PK", b"\0" * 1000, b"\x93NUMPY" * 50])
def test_a_file_of_another_kind_is_a_file_error(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "batch.npz"
    path.write_bytes(content)
    with pytest.raises(FileError, match=r"batch\.npz"):
        RaggedBatch.load(path)


def test_a_folder_is_a_file_error(tmp_path: Path) -> None:
    with pytest.raises(FileError):
        RaggedBatch.load(tmp_path)
