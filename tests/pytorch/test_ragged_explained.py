"""`explain_ragged` and `explain_moe` say who multiplies, and refuse what the products refuse."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
import torch

import tilewright as tw
from tests.support.torch_places import DEVICES
from tilewright.backends.cuda.ragged import engine
from tilewright.backends.host import compiled, ragged
from tilewright.errors import TilewrightError
from tilewright.inputs.devices import host
from tilewright.torch_ops import ragged_tensors

needs_numba = pytest.mark.skipif(not compiled.available(), reason="no Numba")


def given(seed: int, place: str = "cpu") -> tuple[Any, ...]:
    drawn = np.random.default_rng(seed)
    counts = drawn.integers(0, 200, drawn.integers(1, 9))
    k, n = drawn.integers(1, 300, 2).tolist()
    ends = torch.from_numpy(counts.cumsum()).to(place)
    x, w = torch.randn(int(counts.sum()) + 1, k), torch.randn(len(counts), k, n)
    if seed % 2:
        return x.to(place).T, torch.randn(len(x), n).to(place), ends
    return x.to(place), w.to(place), ends


@needs_numba
@pytest.mark.parametrize("seed", range(12))
def test_the_engine_is_the_one_that_a_call_takes(seed: int) -> None:
    ragged.compile_for(host(), "float32")
    x, w, ends = given(seed)
    bound = ragged.bound(ragged_tensors._kind(x, w, ends, None, None), host())
    assert bound is not None
    places = (x.data_ptr(), w.data_ptr(), ends.data_ptr(), 0, 1)
    asked = bound(
        *places, len(w) if w.dim() == 2 else len(x), torch.get_num_threads(), ragged.LOOKS
    )
    text = tw.explain_ragged(x, w, ends)
    assert ("engine     native" in text) == (asked == ragged.OURS)
    best, other = (float(one) for one in re.findall(r"([\d.]+) (?:ns|µs|ms|s)[,)]", text)[:2])
    assert min(best, other) > 0
    assert re.search(r"of at most \d+ x \d+ on \d threads?|rejected   native", text)


@pytest.mark.parametrize("precision", [None, "tf32", "fp32x"])
@pytest.mark.parametrize("form", [0, 1])
def test_engines_of_gpus_are_judged_without_one(form: int, precision: str | None) -> None:
    x, w, ends = given(form)
    out = (
        torch.empty(len(x), w.shape[-1]) if not form else torch.empty(len(ends), len(x), w.shape[1])
    )
    verdict = engine.judged((x, w, ends, None, out, None, None), precision or "ieee")
    assert verdict.best.engine == "triton"
    assert "tiles of" in verdict.best.reason
    assert all(one.reason for one in verdict.refusals)


@pytest.mark.parametrize("place", DEVICES)
@pytest.mark.parametrize("activation", ["swiglu", "relu"])
def test_a_layer_is_explained_by_both_of_its_products(activation: str, place: str) -> None:
    wide = 2 if activation == "swiglu" else 1
    x, w_up = torch.randn(9, 16), torch.randn(3, 16, 8 * wide)
    chosen = torch.tensor([[0, 2]] * 9)
    layer = [x, w_up, torch.randn(3, 8, 16), chosen, torch.rand(9, 2)]
    text = tw.explain_moe(*(one.to(place) for one in layer), activation=activation)
    assert len(re.findall("^engine ", text, re.MULTILINE)) == 2
    assert f"C[18 x {8 * wide}] = A[18 x 16] @ B[group][16 x {8 * wide}], 3 groups" in text
    assert "C[18 x 16] = A[18 x 8] @ B[group][8 x 16], 3 groups" in text
    assert f"then {activation}" in text


@pytest.mark.parametrize("place", DEVICES)
def test_a_product_of_nothing_and_rows_alone_are_explained(place: str) -> None:
    x, w, ends = given(2, place)
    assert "nothing to multiply" in tw.explain_ragged(x[:0], w, ends * 0)
    text = tw.explain_ragged(x, w, ends, batch_invariant=True)
    assert "rows alone" in text or place == "cuda"


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("x", np.zeros((3, 3))),
        ("x", torch.zeros(3)),
        ("x", torch.zeros(3, 3, dtype=torch.int8)),
        ("w", torch.zeros(1, 2, 3)),
        ("offsets", torch.tensor([5, 3, 900])),
        ("offsets", torch.tensor([0.5])),
        ("precision", "bf8"),
        ("precision", ["tf32"]),
        ("bias", torch.zeros(7)),
        ("batch_invariant", "yes"),
    ],
)
def test_what_the_product_refuses_is_refused_in_the_same_words(name: str, wrong: Any) -> None:
    operands = dict(
        zip(("x", "w", "offsets"), (torch.randn(20, 5), torch.randn(3, 5, 4), None), strict=True)
    )
    operands["offsets"] = torch.tensor([3, 8, 20])
    operands[name] = wrong
    with pytest.raises(TilewrightError) as refused:
        tw.explain_ragged(**operands)
    if isinstance(wrong, torch.Tensor) and wrong.dtype == torch.int8:
        return
    with pytest.raises(TilewrightError) as said:
        tw.ragged_matmul(**operands)
    if not isinstance(wrong, np.ndarray):
        assert str(refused.value) == str(said.value)
