"""Tangents and gradients are kept or refused, whatever kind of sequence holds a tensor."""

from __future__ import annotations

from collections import UserList, deque
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tilewright
from tilewright import RaggedBatch
from tilewright.errors import OperandError

torch = pytest.importorskip("torch")
forward = torch.autograd.forward_ad


class Kept(list[Any]):
    """A list of the caller's own."""


KINDS: dict[str, Callable[[list[Any]], Any]] = {
    "list": list,
    "tuple": tuple,
    "subclass": Kept,
    "UserList": UserList,
    "deque": deque,
}


def drawn(*shape: int) -> Any:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(4))


@pytest.mark.parametrize("kind", KINDS)
def test_a_tangent_goes_through_every_sequence(kind: str) -> None:
    x, along, y = drawn(4, 3), drawn(4, 3) + 1, drawn(3, 5)
    with forward.dual_level():
        dual = forward.make_dual(x, along)
        made = tilewright.grouped_matmul(KINDS[kind]([dual]), KINDS[kind]([y]))
        value, tangent = forward.unpack_dual(made[0])
    torch.testing.assert_close(value, x @ y)
    torch.testing.assert_close(tangent, along @ y)


@pytest.mark.parametrize("kind", KINDS)
def test_a_gradient_goes_through_every_sequence(kind: str) -> None:
    x, y = drawn(4, 3).requires_grad_(), drawn(3, 5)
    made = tilewright.grouped_matmul(KINDS[kind]([x]), KINDS[kind]([y]))
    made[0].sum().backward()
    torch.testing.assert_close(x.grad, torch.ones(4, 5) @ y.T)


@pytest.mark.parametrize("kind", KINDS)
def test_a_bound_plan_refuses_tangents_in_every_sequence(kind: str) -> None:
    plan = tilewright.plan_grouped([4], [5], [3])
    with forward.dual_level():
        left = KINDS[kind]([forward.make_dual(drawn(4, 3), drawn(4, 3))])
        with pytest.raises(OperandError, match="tangent"):
            plan.bind(left, KINDS[kind]([drawn(3, 5)]))


def test_results_are_written_where_the_caller_wants_them() -> None:
    out = Kept([torch.empty(4, 5)])
    x, y = drawn(4, 3), drawn(3, 5)
    assert tilewright.grouped_matmul(Kept([x]), Kept([y]), out=out) is out
    torch.testing.assert_close(out[0], x @ y)


LOSING: dict[str, Callable[[Any], Any]] = {
    "behind NumPy's": lambda x: tilewright.grouped_matmul(
        [np.ones((3, 3), np.float32), x], [np.ones((3, 3), np.float32)] * 2
    ),
    "asarray": tilewright.asarray,
    "from_list": lambda x: RaggedBatch.from_list([x]),
}


@pytest.mark.parametrize("way", LOSING)
def test_what_would_lose_a_tangent_is_refused(way: str) -> None:
    with forward.dual_level(), pytest.raises(OperandError):
        LOSING[way](forward.make_dual(drawn(3, 3), drawn(3, 3)))


def test_a_transform_behind_an_array_of_numpys_is_refused() -> None:
    with pytest.raises(OperandError):
        torch.func.grad(lambda x: LOSING["behind NumPy's"](x)[1].sum())(drawn(3, 3))


@pytest.mark.parametrize("way", LOSING)
def test_what_nobody_follows_is_taken(way: str) -> None:
    with forward.dual_level():
        LOSING[way](drawn(3, 3))
