"""Complex products: NumPy's semantics, transposes that conjugate nothing, torch's gradients."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tests.support.cases import COMPLEX, Case, operands
from tests.support.checks import assert_rest_untouched, assert_right
from tilewright.errors import ArgumentError, DtypeError, KernelError

DTYPES = ("complex64", "complex128")


def drawn(*shape: int, dtype: str = "complex128", seed: int = 0) -> Any:
    draw = np.random.default_rng(seed)
    return (draw.standard_normal(shape) + 1j * draw.standard_normal(shape)).astype(dtype)


@pytest.mark.parametrize("case", COMPLEX, ids=str)
@pytest.mark.parametrize("place", [None, "host", "opencl"])
def test_every_case_is_right_wherever_it_is_asked_for(case: Case, place: str | None) -> None:
    given = operands(case)
    with np.errstate(all="ignore"):
        made = tw.matmul(given.a, given.b, out=given.out, device=place, **given.options)
    assert made is given.out
    assert_right(made, given)
    assert_rest_untouched(given)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("place", [None, "opencl"])
def test_a_batch_of_them_is_right_with_every_option(dtype: str, place: str | None) -> None:
    given = [operands(case, seed) for seed, case in enumerate(COMPLEX) if case.dtype == dtype]
    cases = [one.case for one in given]
    with np.errstate(all="ignore"):
        tw.grouped_matmul(
            [one.a_matrix for one in given],
            [one.b_matrix for one in given],
            out=[one.out for one in given],
            alpha=[case.alpha for case in cases],
            beta=[case.beta for case in cases],
            bias=[one.bias for one in given],
            device=place,
        )
    for one in given:
        assert_right(one.out, one)
        assert_rest_untouched(one)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("count", [2, 40])
def test_plain_lists_and_batches_are_numpys_products(dtype: str, count: int) -> None:
    a = [drawn(i % 7, i % 5 + 1, dtype=dtype, seed=i) for i in range(count)]
    b = [drawn(i % 5 + 1, 3, dtype=dtype, seed=i) for i in range(count)]
    wanted = [x @ y for x, y in zip(a, b, strict=True)]
    batch = tw.grouped_matmul(tw.RaggedBatch.from_list(a), tw.RaggedBatch.from_list(b))
    for made in (tw.grouped_matmul(a, b), batch):
        for one, other in zip(made, wanted, strict=True):
            assert one.dtype == dtype
            np.testing.assert_allclose(one, other, rtol=1e-4)


def test_sums_into_one_result_follow_each_other() -> None:
    a, b, out = drawn(4, 6), drawn(6, 5, seed=1), drawn(4, 5, seed=2)
    before = out.copy()
    tw.grouped_matmul([a] * 3, [b] * 3, out=[out] * 3, alpha=[1j, 2, -1], beta=[0.5j] * 3)
    np.testing.assert_allclose(out, (1 + 1j) * (a @ b) + 0.5j * before)


def test_a_transpose_conjugates_nothing() -> None:
    a = drawn(5, 4)
    np.testing.assert_allclose(tw.matmul(a, a, transpose_a=True), a.T @ a)
    np.testing.assert_allclose(tw.matmul(a.conj(), a, transpose_a=True), a.conj().T @ a)


def test_arrays_of_the_host_hold_them_and_those_of_opencl_do_not() -> None:
    a = drawn(3, 3, dtype="complex64")
    held = tw.asarray(a, device="host")
    np.testing.assert_allclose(np.asarray(tw.matmul(held, held)), a @ a, rtol=1e-5)
    for refused in (
        lambda: tw.asarray(a, device="opencl"),
        lambda: tw.empty((2, 2), "complex64", "opencl"),
        lambda: tw.RaggedBatch.from_list([a], "opencl"),
    ):
        with pytest.raises(DtypeError, match=r"complex64.*no kernel of an OpenCL device"):
            refused()
    with pytest.raises(KernelError, match="kernel='panel'"):
        tw.matmul(a, a, device="opencl", kernel="panel")
    assert "complex numbers" in tw.explain(a, a, device="opencl")


REFUSED = {
    "activation": ({"activation": "relu"}, ArgumentError, "neither above nor below 0"),
    "precision": ({"precision": "tf32"}, ArgumentError, "accepted is None for complex64"),
    "alpha": ({"alpha": "2"}, ArgumentError, "alpha='2'"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_complex_numbers_have_not_is_refused_by_name(name: str) -> None:
    options, error, words = REFUSED[name]
    a = drawn(3, 3, dtype="complex64")
    with pytest.raises(error, match=words):
        tw.matmul(a, a, **options)
    if name != "precision":
        with pytest.raises(error, match=words.replace("='2'", "=")):
            tw.grouped_matmul([a], [a], **options)


def test_complex_factors_of_real_matrices_and_halves_of_complex_are_refused() -> None:
    a = np.ones((2, 2))
    with pytest.raises(ArgumentError, match="alpha=1j: accepted is a real number"):
        tw.matmul(a, a, alpha=1j)
    with pytest.raises(DtypeError, match=r"b\.dtype='complex128': must equal a\.dtype"):
        tw.matmul(a, a.astype(complex))
    torch = pytest.importorskip("torch")
    half = torch.ones(2, 2, dtype=torch.complex64).to(torch.complex32)
    with pytest.raises(DtypeError, match=r"complex32'.*complex64, complex128"):
        tw.matmul(half, half)
    with pytest.raises(DtypeError, match="complex64"):
        tw.ragged_matmul(torch.ones(2, 2, dtype=torch.complex64), half, half)
    x, w = torch.ones(2, 2, dtype=torch.complex64), torch.ones(1, 2, 2, dtype=torch.complex64)
    experts = torch.zeros(2, 1, dtype=torch.int64)
    with pytest.raises(DtypeError, match=r"x\.dtype='complex64'"):
        tw.moe(x, w, w, experts, torch.ones(2, 1))


def test_gradients_are_torchs() -> None:
    torch = pytest.importorskip("torch")
    a, b = (torch.from_numpy(drawn(*shape)).requires_grad_() for shape in ((3, 4), (4, 2)))
    bias = torch.from_numpy(drawn(2, seed=5)).requires_grad_()

    def dense(x: Any, y: Any, z: Any) -> Any:
        return tw.matmul(x, y.mH, transpose_b=True, bias=z, alpha=1 - 2j).conj() @ y.mT

    def listed(x: Any, y: Any, z: Any) -> Any:
        return tuple(tw.grouped_matmul([x, y.mH], [y, y], alpha=[2j, 0.5], bias=[None, z]))

    def summed(x: Any, y: Any, z: Any) -> Any:
        return tuple(tw.grouped_matmul([x, x.conj()], [y, y], bias=[z], into=[0, 0]))

    for one in (dense, listed, summed):
        assert torch.autograd.gradcheck(one, (a, b, bias), check_forward_ad=one is dense)
    assert torch.autograd.gradgradcheck(listed, (a, b, bias))


def test_conjugates_of_torch_are_read_as_such_and_not_written() -> None:
    torch = pytest.importorskip("torch")
    a, b = (torch.from_numpy(drawn(3, 3, seed=seed)) for seed in (0, 1))
    out = torch.empty_like(a)
    tw.matmul(a.conj(), b, out=out, kernel=None, device="host")
    torch.testing.assert_close(out, a.conj() @ b)
    torch.testing.assert_close(tw.matmul(a.mH, b), a.mH @ b)
    with pytest.raises(tw.errors.OperandError, match="out: its memory holds the conjugate"):
        tw.matmul(a, b, out=out.conj())


def test_compilers_see_one_graph() -> None:
    torch = pytest.importorskip("torch")
    a = torch.from_numpy(drawn(3, 3, dtype="complex64")).requires_grad_()
    twice = torch.compile(lambda x: tw.matmul(x, x, alpha=2.0), backend="aot_eager", fullgraph=True)
    twice(a).abs().sum().backward()
    found, a.grad = a.grad, None
    (2 * a @ a).abs().sum().backward()
    torch.testing.assert_close(found, a.grad)
