"""With `batch_invariant=True` a row of a result has its bits whatever lies beside it."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tilewright.backends.host import compiled, invariant
from tilewright.errors import ArgumentError, OperandError
from tilewright.pytorch import MoE

torch: Any = pytest.importorskip("torch", reason="PyTorch is not installed")

from tests.support.interpreter import interpreted  # noqa: E402
from tests.support.invariance import Rows, drawn_layers, drawn_splits  # noqa: E402
from tests.support.torch_places import DEVICES  # noqa: E402

SPLITS = {"cpu": 40, "cuda": 1000}
DTYPES = (torch.float32, torch.bfloat16, torch.float16, torch.float64)


@pytest.mark.parametrize("where", DEVICES)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(("k", "n"), [(256, 192), (77, 45)])
def test_a_row_has_its_bits_in_every_split(k: int, n: int, dtype: Any, where: str) -> None:
    rows = Rows(300, k, n, 5, dtype, where)
    for offsets, which, owners in drawn_splits(SPLITS[where] // 2, rows, seed=k):
        out = tw.ragged_matmul(rows.x[which], rows.w, offsets, batch_invariant=True)
        assert torch.equal(out, rows.alone[owners, which])
    assert rows.error() <= 2 * rows.error_of_torch() + 1e-6


@pytest.mark.parametrize("where", DEVICES)
@pytest.mark.parametrize("activation", ["swiglu", "relu2"])
def test_a_token_has_its_bits_in_every_batch(activation: str, where: str) -> None:
    dtype = torch.float32 if where == "cpu" else torch.bfloat16
    for out, alone in drawn_layers(SPLITS[where] // 10, activation, dtype, where):
        assert torch.equal(out, alone)


@pytest.mark.parametrize("where", DEVICES)
def test_how_a_row_lies_changes_nothing(where: str) -> None:
    rows = Rows(40, 64, 32, 3, torch.float16 if where == "cuda" else torch.float32, where)
    ends = torch.tensor([40, 40, 40], device=where, dtype=torch.int32)
    wanted = rows.alone[0]
    for x in (rows.x.t().contiguous().t(), torch.cat((rows.x, rows.x), 1)[:, :64]):
        assert torch.equal(tw.ragged_matmul(x, rows.w, ends, batch_invariant=True), wanted)
    shifted = torch.empty(40 * 64 + 1, dtype=rows.x.dtype, device=where)[1:].view(40, 64)
    shifted.copy_(rows.x)
    assert torch.equal(tw.ragged_matmul(shifted, rows.w, ends, batch_invariant=True), wanted)
    row = rows.x[:1].expand(9, 64)
    few = torch.tensor([9, 9, 9], device=where)
    found = tw.ragged_matmul(row, rows.w, few, batch_invariant=True)
    assert torch.equal(found, wanted[:1].expand(9, 32))
    into = torch.full((42, 40), float("nan"), dtype=rows.x.dtype, device=where)
    given = torch.tensor([0, 10, 38], device=where)
    tw.ragged_matmul(rows.x, rows.w, given, out=into[1:-1, :32], batch_invariant=True)
    assert torch.equal(into[1:11, :32], rows.alone[1, :10])
    assert bool(into[39:].isnan().all() and into[0].isnan().all() and into[:, 32:].isnan().all())


def test_numpys_loop_and_the_compiled_one_have_the_same_bits() -> None:
    generator = np.random.default_rng(0)
    for m, k, n in ((1, 1, 1), (9, 300, 270), (130, 128, 33), (3, 0, 2)):
        x, w = generator.standard_normal((m, k)), generator.standard_normal((k, n))
        for dtype in ("float32", "float64"):
            found = np.full((m, 2 * n), np.nan, dtype)[:, ::2]
            invariant.multiply(x.astype(dtype), w.astype(dtype), found, 2)
            plain = np.full((m, n), np.nan, dtype)
            invariant.by_numpy(x.astype(dtype), w.astype(dtype), plain)
            np.testing.assert_array_equal(found, plain)
    assert compiled.available() or not found.size


def test_gradients_and_biases_go_through() -> None:
    rows = Rows(30, 20, 8, 3, torch.float64, "cpu")
    bias = torch.randn(3, 8, dtype=torch.float64, requires_grad=True)
    x, w = rows.x.clone().requires_grad_(), rows.w.clone().requires_grad_()
    ends = torch.tensor([4, 4, 28])
    out = tw.ragged_matmul(x, w, ends, bias=bias, batch_invariant=True)
    plain = tw.ragged_matmul(x, w, ends, bias=bias)
    torch.testing.assert_close(out, plain)
    pull = torch.randn_like(out)
    for one, other in zip(
        torch.autograd.grad(out, (x, w, bias), pull),
        torch.autograd.grad(plain, (x, w, bias), pull),
        strict=True,
    ):
        torch.testing.assert_close(one, other)


def test_in_the_interpreter_rows_have_their_bits_too() -> None:
    assert "splits: the same bits" in interpreted("invariance")


def test_what_has_no_meaning_is_refused_by_name() -> None:
    x, w, ends = torch.ones(6, 4), torch.ones(2, 4, 3), torch.tensor([2, 6])
    e4m3 = torch.float8_e4m3fn
    wrong: list[tuple[dict[str, Any], Any, str]] = [
        ({"w": torch.ones(6, 3), "x": x.t()}, ArgumentError, "batch_invariant=True: not with off"),
        ({"batch_invariant": 1}, ArgumentError, "batch_invariant=1: accepted are True and False"),
        ({"out": torch.ones(3, 6).t()}, OperandError, r"out.stride\(\)=\(1, 6\): with batch_inv"),
        (
            {"x": x.to(e4m3), "w": w.to(e4m3), "scale_a": torch.ones(6), "scale_b": w[:, 0]},
            ArgumentError,
            "batch_invariant=True: not with scales",
        ),
    ]
    for change, error, said in wrong:
        with pytest.raises(error, match=said):
            tw.ragged_matmul(**{"x": x, "w": w, "offsets": ends, "batch_invariant": True, **change})
    layer = MoE(2, 4, 3, top=1, batch_invariant=True)
    assert torch.equal(layer(x)[:1], layer(x[:1]))
    given = (x, layer.w_up, layer.w_down, torch.zeros(6, 1, dtype=torch.int32), torch.ones(6, 1))
    with pytest.raises(ArgumentError, match="batch_invariant=None"):
        tw.moe(*given, batch_invariant=None)  # type: ignore[arg-type]


def test_splits_are_drawn_with_empty_groups_and_groups_of_one() -> None:
    rows = Rows(300, 8, 4, 5, torch.float32, "cpu")
    ends = [one[0].tolist() for one in drawn_splits(60, rows, seed=3)]
    sizes = [b - a for one in ends for a, b in itertools.pairwise([0, *one])]
    assert 0 in sizes
    assert 1 in sizes
    assert max(sizes) > 100
