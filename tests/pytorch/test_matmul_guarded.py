"""Two plain matrices of torch's, met before, go straight to torch; nothing else ever does."""

from __future__ import annotations

from typing import Any

import pytest

import tilewright
from tests.pytorch.test_lists_guarded import KINDS, SPOILT, lists
from tilewright.errors import OperandError, TilewrightError
from tilewright.planning.host_part import MOST_OF_TORCH
from tilewright.torch_ops import dense

torch = pytest.importorskip("torch")


def pair(dtype: Any = None) -> tuple[Any, Any]:
    a, b = lists(1, dtype)
    return a[0], b[0]


@pytest.fixture(autouse=True)
def known(monkeypatch: pytest.MonkeyPatch) -> None:
    """Matrices like these were met before: their guards are made."""
    monkeypatch.delenv("TILEWRIGHT_DEVICE", raising=False)
    for dtype in (torch.float32, torch.float64):
        tilewright.matmul(*pair(dtype))


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16", "complex64"])
def test_the_second_of_a_kind_is_not_checked_any_more(
    dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    a, b = pair(getattr(torch, dtype))
    assert torch.equal(tilewright.matmul(a, b), a @ b)
    checked: list[Any] = []
    monkeypatch.setattr(dense, "matmul", lambda *given, **_: checked.append(given))
    for x, y in ((a, b), (a.T.contiguous().T, b), (a[:0], b), (a[:, :0], b[:0])):
        assert torch.equal(tilewright.matmul(x, y, alpha=1.0, transpose_b=False), x @ y)
    assert not checked
    tilewright.matmul(a, b, alpha=2.0)
    tilewright.matmul(torch.empty(MOST_OF_TORCH + 1, 1), torch.empty(1, 1))
    assert len(checked) == 2


@pytest.mark.parametrize("side", ["a", "b"])
@pytest.mark.parametrize("spoilt", sorted({*SPOILT} - {"a batch", "a vector"}))
def test_one_that_does_not_fit_is_refused(spoilt: str, side: str) -> None:
    a, b = pair()
    a, b = (SPOILT[spoilt](a), b) if side == "a" else (a, SPOILT[spoilt](b))
    for _ in range(2):
        with pytest.raises(TilewrightError):
            tilewright.matmul(a, b)


@pytest.mark.parametrize("side", ["a", "b"])
def test_vectors_and_batches_are_what_they_were(side: str) -> None:
    a, b = pair()
    for x, y in ((a[0], b[:, 0]), (a[None], b[None])):
        left, right = (x, b) if side == "a" else (a, y)
        torch.testing.assert_close(tilewright.matmul(left, right), left @ right)


def test_kinds_that_alternate_keep_their_gradients_and_their_want_of_them() -> None:
    for _ in range(3):
        for left in KINDS.values():
            for right in KINDS.values():
                a, b = pair()
                a, b = left(a), right(b)
                made = tilewright.matmul(a, b)
                assert torch.equal(made, a @ b)
                assert made.requires_grad is (a.requires_grad or b.requires_grad)
                with torch.no_grad():
                    assert not tilewright.matmul(a, b).requires_grad


def test_what_changes_torch_changes_the_product_too() -> None:
    a, b = pair()
    with torch.inference_mode():
        assert tilewright.matmul(a, b).is_inference()
    with torch.autocast("cpu", torch.bfloat16):
        assert tilewright.matmul(a, b).dtype is torch.bfloat16
    torch.testing.assert_close(tilewright.matmul(torch._neg_view(a), b), -(a @ b))
    mapped = torch.func.vmap(lambda x: tilewright.matmul(x, b))(a[None])
    torch.testing.assert_close(mapped[0], a @ b)
    _, tangent = torch.func.jvp(lambda x: tilewright.matmul(x, b), (a,), (a,))
    torch.testing.assert_close(tangent, a @ b)


@pytest.mark.parametrize("side", [0, 1])
@pytest.mark.parametrize("left", [0, 4])
def test_a_matrix_whose_storage_has_shrunk_is_named_all_the_same(side: int, left: int) -> None:
    given = list(pair())
    given[side] = given[side].clone()
    given[side].untyped_storage().resize_(given[side].nbytes - 4 if left else 0)
    said = ""
    try:
        tilewright.matmul(*given)
    except OperandError as error:
        said = str(error)
    del given  # a report of a failure would print them, and with them whatever lies there
    assert said.startswith(f"{'ab'[side]} of shape")


@pytest.mark.parametrize("value", ["host", "nowhere"])
def test_a_device_that_is_named_is_asked(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    a, b = pair()
    monkeypatch.setenv("TILEWRIGHT_DEVICE", value)
    if value == "host":
        torch.testing.assert_close(tilewright.matmul(a, b), a @ b)
    else:
        with pytest.raises(TilewrightError, match="TILEWRIGHT_DEVICE"):
            tilewright.matmul(a, b)
