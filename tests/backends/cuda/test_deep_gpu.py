"""Products with a long k on a GPU, by the engine `cuda_deep`: right at every edge. Needs a GPU."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.backends.cuda.test_cuda import arguments, check, send_all
from tests.support.cases import Case
from tests.support.gpu_arrays import why_no_gpu
from tilewright import grouped_matmul
from tilewright.backends.cuda.deep import engine

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(why_no_gpu() is not None, reason=f"no GPU: {why_no_gpu()}"),
]
torch: Any = pytest.importorskip("torch")

EDGES = [
    *(Case(64, 64, k) for k in (1, 15, 63, 64, 65, 127, 128, 129, 135, 136, 137, 2047, 5003)),
    *(Case(m, 64, 300 + m) for m in (1, 7, 63, 65, 130)),
    *(Case(64, n, 400 + n) for n in (1, 8, 60, 63, 65, 136)),
    Case(300, 200, 3001, alpha=-0.5, beta=2.0, bias=True),
    Case(70, 72, 9000, bias=True, beta=1.0),
    Case(5, 9, 7, bias=True),
    Case(64, 64, 0, beta=0.5, bias=True),
    Case(40, 64, 1500, out="F"),
    Case(33, 40, 1100, a="offset", out="strided"),
]


@pytest.mark.parametrize("activation", [None, "relu", "gelu"])
def test_products_of_a_long_k_are_right_at_every_edge(activation: str | None) -> None:
    """A of a long k beside them makes the batch the engine's, and cuts it finely."""
    cases = [replace(x, dtype="float16", activation=activation) for x in EDGES]
    long = Case(64, 64, 50_001, dtype="float16", activation=activation)
    sent = send_all([*cases, *[long] * 9])
    grouped_matmul(**arguments(sent), out=[one.out for one in sent], kernel="cuda_deep")
    check(sent)


def test_single_products_and_uneven_shares_are_right(monkeypatch: pytest.MonkeyPatch) -> None:
    """But for those without k: alone they are no work, and refused."""
    monkeypatch.setattr(engine, "_DEEP", 0)
    for case in EDGES:
        if case.n % 8 == 0 and case.k:
            sent = send_all([replace(case, dtype="float16")])
            grouped_matmul(**arguments(sent), out=[one.out for one in sent], kernel="cuda_deep")
            check(sent)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_rows_of_a_may_begin_anywhere(dtype: Any) -> None:
    for first in range(9):
        for more in range(1, 9):
            flat = torch.randn(64 * (2003 + more) + first, device="cuda").to(dtype)
            a = flat[first:].view(64, 2003 + more)[:, :2003]
            b = torch.randn(2003, 64, device="cuda").to(dtype)
            (found,) = grouped_matmul([a], [b], kernel="cuda_deep")
            truth = a.double() @ b.double()
            off = float((found.double() - truth).norm() / truth.norm())
            assert off < 3e-3


def test_what_lies_beside_the_operands_does_not_matter() -> None:
    """NaN before and behind rows of A, and in columns of B that are another's."""
    a = torch.full((64, 3010), torch.nan, device="cuda")
    b = torch.full((3010, 80), torch.nan, device="cuda")
    a[:, 3:3004] = torch.randn(64, 3001, device="cuda")
    b[3:3004, 8:72] = torch.randn(3001, 64, device="cuda")
    for dtype in (torch.float16, torch.bfloat16):
        x, y = a.to(dtype)[:, 3:3004], b.to(dtype)[3:3004, 8:72]
        (found,) = grouped_matmul([x], [y], kernel="cuda_deep")
        assert torch.isfinite(found).all()


def test_the_same_inputs_give_the_same_bits() -> None:
    a = [torch.randn(64, 20_001, device="cuda").half() for _ in range(20)]
    b = [torch.randn(20_001, 64, device="cuda").half() for _ in range(20)]
    first = grouped_matmul(a, b, kernel="cuda_deep")
    for _ in range(5):
        again = grouped_matmul(a, b, kernel="cuda_deep")
        assert all(torch.equal(x, y) for x, y in zip(first, again, strict=True))
