"""`explain` of tensors in the host's memory takes what `matmul` takes, and says who multiplies."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import tilewright
from tilewright.errors import DeviceMemoryError, DtypeError, OperandError, ShapeError

DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


def drawn(shape: tuple[int, ...], dtype: torch.dtype, needs_gradient: bool) -> torch.Tensor:
    return torch.ones(shape).to(dtype).requires_grad_(needs_gradient)


@pytest.mark.parametrize("needs_gradient", [False, True])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(
    "shapes",
    [((3, 4), (4, 5)), ((4,), (4, 5)), ((2, 3, 4), (4, 5)), ((2, 3, 4), (2, 4, 5))],
    ids=str,
)
def test_it_takes_what_matmul_takes(shapes: Any, dtype: torch.dtype, needs_gradient: bool) -> None:
    a, b = (drawn(shape, dtype, needs_gradient) for shape in shapes)
    tilewright.matmul(a, b)
    text = tilewright.explain(a, b, activation="relu")
    assert "engine     torch" in text
    assert str(dtype).removeprefix("torch.") in text


@pytest.mark.parametrize("needs_gradient", [False, True])
def test_it_names_the_plan_where_torch_does_not_multiply(needs_gradient: bool) -> None:
    a, b = drawn((800, 800), torch.float32, needs_gradient), drawn((800, 800), torch.float32, False)
    for text in (tilewright.explain(a, b), tilewright.explain(a, b, device="host")):
        assert "engine     torch" not in text


def test_a_product_into_memory_is_not_torchs() -> None:
    a, b = drawn((3, 4), torch.float32, False), drawn((4, 5), torch.float32, False)
    assert "engine     host" in tilewright.explain(a, b, out=torch.empty(3, 5))


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"b": torch.ones(5, 5)}, ShapeError),
        ({"b": torch.ones(4, 5, dtype=torch.float64)}, DtypeError),
        ({"out": torch.ones(3, 5)}, OperandError),  # a requires a gradient
        ({"bias": torch.ones(4)}, ShapeError),
    ],
)
def test_it_raises_what_matmul_raises(change: dict[str, Any], error: type[Exception]) -> None:
    given = {"a": torch.ones(3, 4, requires_grad=True), "b": torch.ones(4, 5), **change}
    for call in (tilewright.matmul, tilewright.explain):
        with pytest.raises(error):
            call(**given)


@pytest.mark.usefixtures("little_memory")
@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
@pytest.mark.parametrize("needs_gradient", [False, True])
@pytest.mark.parametrize("rows", [1 << 22, 1 << 40])
def test_a_result_that_no_memory_holds_is_said_in_our_words(
    rows: int, dtype: torch.dtype, needs_gradient: bool
) -> None:
    one = torch.ones(1, 1, dtype=dtype, requires_grad=needs_gradient)
    a, b = one.expand(rows, 1), one.detach().expand(1, rows)
    for call in (
        lambda: tilewright.matmul(a, b),
        lambda: tilewright.grouped_matmul([a], [b]),
        lambda: tilewright.grouped_matmul([a] * 60, [b] * 60),
        lambda: tilewright.grouped_matmul([a], [b], activation="relu"),
    ):
        with pytest.raises((DeviceMemoryError, ShapeError), match=rf"out.*{rows}|bytes"):
            call()
