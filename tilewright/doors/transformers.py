"""Transformers: experts_implementation="tilewright" for every mixture of experts of the library.

    tokens [t, d] -> rows [t * top, d] sorted by expert -> up, gate, down, ragged -> tokens [t, d]

Experts' sizes stay on the device. A registered implementation is a function that gets the layer:
`has_gate`, `has_bias`, `is_transposed` and `has_post_expert_norm` of it say how its weights lie.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from transformers.integrations.moe import ALL_EXPERTS_FUNCTIONS

from tilewright.errors import OperandError
from tilewright.products.ragged import ragged_matmul

__all__ = ["experts", "register", "unregister"]
NAME = "tilewright"


def register() -> None:
    """Models may be loaded with `experts_implementation="tilewright"`, or be set to it.

    `model.set_experts_implementation("tilewright")` changes a model that is there; "eager" or
    "grouped_mm" change it back.
    """
    ALL_EXPERTS_FUNCTIONS[NAME] = experts


def unregister() -> None:
    """Take the name away. Models that are set to it raise KeyError when they are called."""
    ALL_EXPERTS_FUNCTIONS.pop(NAME, None)


def experts(
    layer: Any, hidden_states: Tensor, top_k_index: Tensor, top_k_weights: Tensor
) -> Tensor:
    """What a layer's experts give: [tokens, width], of hidden_states' dtype.

    `top_k_index` and `top_k_weights` [tokens, top]. An index of `num_experts` and above, by which
    layers that are spread over devices say that somebody else has the expert, gives nothing.
    Differentiable, one graph under torch.compile. Raises OperandError for layers whose experts have
    other weights than `gate_up_proj` (or `up_proj`) and `down_proj`, and what `ragged_matmul`
    raises.
    """
    first = "gate_up_proj" if layer.has_gate else "up_proj"
    top = top_k_index.shape[-1]
    chosen, order = torch.sort(top_k_index.reshape(-1), stable=True)
    numbers = torch.arange(layer.num_experts, device=chosen.device, dtype=chosen.dtype)
    ends = torch.searchsorted(chosen, numbers, right=True, out_int32=True)
    rows = _product(layer, first, hidden_states[order // top], ends)
    rows = layer._apply_gate(rows) if layer.has_gate else layer.act_fn(rows)
    rows = _product(layer, "down_proj", rows, ends)
    if getattr(layer, "has_post_expert_norm", False):
        rows = layer.post_expert_norm(rows)
    weights = top_k_weights.reshape(-1)[order].unsqueeze(-1)
    if getattr(layer, "_is_expert_parallel", False):
        weights = weights.masked_fill((chosen >= layer.num_experts).unsqueeze(-1), 0)
    places = torch.empty_like(order).scatter_(
        0, order, torch.arange(len(order), device=order.device)
    )
    # A sum in a fixed order; index_add_ would add as threads come.
    found = (rows * weights)[places].view(-1, top, rows.shape[-1]).sum(1)
    return found.to(hidden_states.dtype)


def _product(layer: Any, name: str, rows: Tensor, ends: Tensor) -> Tensor:
    """The rows of each expert by its matrix, with its bias where there is one."""
    weight = getattr(layer, name, None)
    bias = getattr(layer, f"{name}_bias", None) if layer.has_bias else None
    if weight is None or weight.dim() != 3 or (layer.has_bias and bias is None):
        raise OperandError(
            f"{type(layer).__name__}.{name}: {'missing' if weight is None else weight.shape};"
            " accepted are three dimensions, and a bias where the layer says that it has one"
        )
    turned = weight if layer.is_transposed else weight.transpose(1, 2)
    found: Tensor = ragged_matmul(rows, turned, ends, bias=bias)
    return found
