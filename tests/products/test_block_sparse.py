"""Block-sparse times block-sparse, beside SciPy's own and beside float64 of the filled matrices."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tilewright import Device
from tilewright.errors import DtypeError, OperandError, ShapeError
from tilewright.planning.block_sparse import Pattern, is_scipys
from tilewright.products import block_sparse

sparse: Any = pytest.importorskip("scipy.sparse")
KINDS = ("float32", "float64", "complex64", "complex128")


@pytest.fixture(autouse=True, params=["as one batch", "by SciPy"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both ways give what is asked, whichever is the faster."""
    by_scipy = request.param == "by SciPy"
    monkeypatch.setattr(block_sparse, "is_scipys", lambda *_: by_scipy)


# m, k, n in blocks, and the blocks' R, C, D.
SHAPES = [
    (9, 7, 8, 4, 4, 4),
    (6, 5, 7, 3, 8, 5),
    (5, 9, 4, 16, 1, 2),
    (1, 30, 1, 2, 3, 2),  # one sum of many
    (4, 1, 6, 1, 1, 1),
]


def drawn(
    rows: int, cols: int, block: tuple[int, int], dtype: str, *, filled: float = 0.4, seed: int = 0
) -> Any:
    """A bsr_array with an empty block row and an empty column where there are several."""
    draw = np.random.default_rng(seed)
    there = draw.random((rows, cols)) < filled
    there[rows // 2 : rows // 2 + (rows > 2)] = False
    there[:, cols // 3 : cols // 3 + (cols > 2)] = False
    values = draw.standard_normal((int(there.sum()), *block))
    if dtype.startswith("complex"):
        values = values + 1j * draw.standard_normal(values.shape)
    columns, starts = np.nonzero(there)[1], np.append(0, np.cumsum(there.sum(axis=1)))
    shape = (rows * block[0], cols * block[1])
    return sparse.bsr_array((values.astype(dtype), columns, starts), shape=shape, blocksize=block)


def assert_right(made: Any, a: Any, b: Any) -> None:
    """Twice SciPy's own error against 64 bits, and SciPy's pattern."""
    wide = np.complex128 if a.dtype.kind == "c" else np.float64
    exact = a.toarray().astype(wide) @ b.toarray().astype(wide)
    theirs = a @ b
    allowed = 2 * abs(theirs.toarray() - exact).max(initial=0) + 1e-6 * (a.dtype.itemsize < 16)
    assert abs(made.toarray() - exact).max(initial=0) <= allowed + 1e-12
    theirs.sort_indices()
    assert made.dtype == theirs.dtype
    assert made.shape == theirs.shape
    assert made.blocksize == (a.blocksize[0], b.blocksize[1])
    made.sort_indices()  # where SciPy multiplied they are as it left them
    assert made.has_canonical_format
    made.check_format(full_check=True)
    if made.blocksize != (1, 1):  # SciPy then goes by elements
        np.testing.assert_array_equal(made.indices, theirs.indices)
        np.testing.assert_array_equal(made.indptr, theirs.indptr)
        assert made.indices.dtype == theirs.indices.dtype


@pytest.mark.parametrize("dtype", KINDS)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_products_are_scipys(shape: tuple[int, ...], dtype: str) -> None:
    m, k, n, height, inner, width = shape
    a = drawn(m, k, (height, inner), dtype)
    b = drawn(k, n, (inner, width), dtype, seed=1)
    made = tw.bsr_matmul(a, b)
    assert isinstance(made, sparse.bsr_array)
    assert_right(made, a, b)


def test_the_device_may_be_named_and_gives_the_same_bits_again(opencl_device: Device) -> None:
    a, b = drawn(9, 7, (8, 8), "float32"), drawn(7, 8, (8, 4), "float32", seed=1)
    assert_right(tw.bsr_matmul(a, b, device="host"), a, b)
    made = tw.bsr_matmul(a, b, device=opencl_device)
    assert_right(made, a, b)
    assert tw.bsr_matmul(a, b, device=opencl_device).data.tobytes() == made.data.tobytes()


def test_the_result_is_of_the_operands_kind_and_the_wider_of_both_types() -> None:
    a, b = drawn(4, 5, (2, 3), "float32"), drawn(5, 4, (3, 2), "complex64", seed=1)
    matrix = sparse.bsr_matrix
    for left, right, kind in (
        (a, b, sparse.bsr_array),
        (matrix(a), matrix(b), sparse.bsr_matrix),
        (matrix(a), b, sparse.bsr_array),
        (a, matrix(b), sparse.bsr_array),
    ):
        made = tw.bsr_matmul(left, right)
        assert type(made) is kind
        assert made.dtype == np.complex64
        np.testing.assert_allclose(made.toarray(), (a @ b).toarray(), rtol=1e-4, atol=1e-5)


def test_unsorted_operands_and_blocks_stored_twice_count_as_their_sum() -> None:
    draw = np.random.default_rng(0)
    values = draw.standard_normal((4, 2, 2))
    a = sparse.bsr_array((values, [2, 0, 2, 1], [0, 3, 3, 4]), shape=(6, 6))
    b = sparse.bsr_array((values[::-1], [1, 0, 0, 2], [0, 2, 3, 4]), shape=(6, 6))
    kept = a.data.copy(), a.indices.copy()
    made = tw.bsr_matmul(a, b)
    np.testing.assert_allclose(made.toarray(), a.toarray() @ b.toarray(), rtol=1e-12, atol=1e-12)
    made.sort_indices()
    assert made.has_canonical_format
    np.testing.assert_array_equal(a.data, kept[0])
    np.testing.assert_array_equal(a.indices, kept[1])


def test_strided_blocks_and_what_is_stored_behind_the_last_row() -> None:
    a, b = drawn(4, 5, (2, 3), "float64"), drawn(5, 4, (3, 2), "float64", seed=1)
    wanted = (a @ b).toarray()
    a.data = np.asfortranarray(a.data)
    b.data = np.concatenate((b.data, np.full((2, 3, 2), np.nan)))
    b.indices = np.append(b.indices, [99, -1]).astype(b.indices.dtype)
    np.testing.assert_allclose(tw.bsr_matmul(a, b).toarray(), wanted, rtol=1e-12, atol=1e-12)


def test_numbers_that_are_none_stay_where_they_are() -> None:
    a = sparse.bsr_array((np.full((1, 2, 2), np.nan), [1], [0, 1, 1]), shape=(4, 4))
    b = sparse.bsr_array((np.ones((2, 2, 2)), [0, 1], [0, 1, 2]), shape=(4, 4))
    made = tw.bsr_matmul(a, b).toarray()
    assert np.isnan(made[:2, 2:]).all()
    assert (made[2:] == 0).all()
    assert (made[:2, :2] == 0).all()


@pytest.mark.parametrize("blocks", [0, 3])
def test_nothing_that_meets_gives_a_matrix_without_blocks(blocks: int) -> None:
    first = np.zeros(blocks, np.int32)
    a = sparse.bsr_array((np.ones((blocks, 2, 3)), first, [0, blocks]), shape=(2, 6))
    b = sparse.bsr_array((np.ones((1, 3, 4)), [1], [0, 0, 1]), shape=(6, 8))
    made = tw.bsr_matmul(a, b)
    assert (made.nnz, made.shape, made.blocksize) == (0, (2, 8), (2, 4))
    assert made.toarray().shape == (2, 8)


@pytest.mark.parametrize("dtype", ["float16", *KINDS])
def test_torchs_tensors_give_a_tensor(dtype: str) -> None:
    torch = pytest.importorskip("torch")
    a, b = (drawn(5, 5, (4, 4), "float32", seed=seed) for seed in (0, 1))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of a layout in beta
        left, right = (
            torch.sparse_bsr_tensor(
                torch.from_numpy(one.indptr),
                torch.from_numpy(one.indices),
                torch.from_numpy(one.data).to(getattr(torch, dtype)),
                size=one.shape,
            )
            for one in (a, b)
        )
        made = tw.bsr_matmul(left, right)
        assert made.layout is torch.sparse_bsr
        assert made.dtype is left.dtype
        assert made.crow_indices().dtype is left.crow_indices().dtype
        slack = 2e-2 if dtype == "float16" else 1e-4
        np.testing.assert_allclose(
            made.to_dense().numpy(), (a @ b).toarray(), rtol=slack, atol=slack
        )
        with pytest.raises(OperandError, match=r"a.*requires a gradient"):
            tw.bsr_matmul(left.requires_grad_(), right)
        with torch.no_grad():
            assert not tw.bsr_matmul(left, right).requires_grad
        with pytest.raises(OperandError, match=r"b=bsr_array: a is a sparse_bsr"):
            tw.bsr_matmul(left.detach(), b)
        for other in (right.to_dense(), right.to_dense().to_sparse_csr()):
            with pytest.raises(OperandError, match=r"b=torch.*sparse_bsr"):
                tw.bsr_matmul(left.detach(), other)


@pytest.mark.parametrize(
    ("rows", "block", "error", "words"),
    [
        (4, (3, 2), ShapeError, r"b.shape=\(12, 8\): must have 15 rows, as a.shape=\(8, 15\)"),
        (3, (5, 2), ShapeError, r"b's blocks are 5 x 2, those of a 2 x 3.*blocksize=\(3, D\)"),
    ],
)
def test_what_does_not_fit_is_named(
    rows: int, block: tuple[int, int], error: type[Exception], words: str
) -> None:
    a, b = drawn(4, 5, (2, 3), "float32"), drawn(rows, 4, block, "float32")
    with pytest.raises(error, match=words):
        tw.bsr_matmul(a, b)


def test_what_is_no_block_sparse_matrix_is_refused() -> None:
    a = drawn(4, 4, (2, 2), "float32")
    for other in (a.tocsr(), a.toarray(), None, [[1.0]]):
        with pytest.raises(OperandError, match=r"b=.*accepted are scipy.sparse.bsr_array"):
            tw.bsr_matmul(a, other)
        with pytest.raises(OperandError, match=r"a=.*accepted are scipy.sparse.bsr_array"):
            tw.bsr_matmul(other, a)
    for kind in ("int64", "bool", "longdouble"):
        with pytest.raises(DtypeError, match=r"a.dtype"):
            tw.bsr_matmul(a.astype(kind), a)


@pytest.mark.parametrize(
    ("name", "at", "value", "words"),
    [
        ("indices", 1, 4, r"b.indices\[1\]=4: accepted are 0 to 3"),
        ("indices", 0, -1, r"b.indices\[0\]=-1"),
        ("indptr", 0, 1, r"b.indptr.*5 numbers"),
        ("indptr", 1, 10**6, r"b.indptr"),
        ("indptr", -1, 10**6, r"b.indptr\[-1\]=1000000: there are \d+ indices"),
    ],
)
def test_indices_that_would_reach_other_memory_are_refused(
    name: str, at: int, value: int, words: str
) -> None:
    a, b = drawn(4, 4, (2, 2), "float32"), drawn(4, 4, (2, 2), "float32", seed=3)
    getattr(b, name)[at] = value
    with pytest.raises(OperandError, match=words):
        tw.bsr_matmul(a, b)


def test_small_blocks_and_few_are_scipys_and_large_ones_are_not() -> None:
    whole = Pattern(np.arange(0, 101, 10), np.tile(np.arange(10), 10))  # 10 x 10, all stored
    few = Pattern(np.arange(3), np.array([0, 1]))  # the diagonal of 2 x 2
    for pattern, side, kind, wanted in (
        (whole, 4, "f", True),
        (whole, 64, "f", False),
        (whole, 16, "c", True),
        (whole, 32, "c", False),
        (few, 64, "f", True),
        (few, 256, "f", False),
    ):
        assert is_scipys(pattern, pattern, (side, side, side), kind) is wanted


def test_a_device_that_is_named_multiplies_itself(
    opencl_device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Any] = []
    monkeypatch.setattr(block_sparse, "is_scipys", lambda *given: asked.append(given) or True)
    a, b = drawn(4, 5, (2, 3), "float32"), drawn(5, 4, (3, 2), "float32", seed=1)
    assert_right(tw.bsr_matmul(a, b, device=opencl_device), a, b)
    assert not asked
    tw.bsr_matmul(a, b, device="host")
    assert len(asked) == 1
