"""Products of tensors, each in a way of its own, for tests of what looks at tensors."""

from __future__ import annotations

from typing import Any

import torch

import tilewright as tw
from tilewright.pytorch import grouped_matmul
from tilewright.torch_ops import lists


def operands(where: str, *, learn: bool = False) -> tuple[Any, Any, Any]:
    a, b, bias = torch.randn(6, 4), torch.randn(4, 5), torch.randn(5)
    return tuple(value.to(where).requires_grad_(learn) for value in (a, b, bias))


def ends(where: str) -> Any:
    return torch.tensor([2, 6], device=where)


PRODUCTS: dict[str, Any] = {
    "matmul": lambda a, b, bias: tw.matmul(a, b, bias=bias, alpha=1.5, activation="relu"),
    "batch": lambda a, b, bias: tw.matmul(a.expand(2, *a.shape), b, bias=bias),
    "list": lambda a, b, bias: tw.grouped_matmul(
        [a, a[:2]], [b, b], alpha=[1.0, 2.0], bias=[bias, None], activation="gelu"
    ),
    "transposed": lambda a, b, bias: tw.grouped_matmul(
        [a.t()], [b.t()], transpose_a=True, transpose_b=True
    ),
    "twin": lambda a, b, bias: grouped_matmul([a], [b], [bias]),
    "products": lambda a, b, bias: lists.products([a], [b], [bias]),
    "rows": lambda a, b, bias: tw.ragged_matmul(
        a, torch.stack([b, b + 1]), ends(a.device.type), bias=torch.stack([bias, bias])
    ),
}
