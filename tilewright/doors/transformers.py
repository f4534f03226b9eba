"""Transformers: experts_implementation="tilewright" for every mixture of experts of the library.

    tokens [t, d] -> rows [t * top, d] sorted by expert -> up, gate, down, ragged -> tokens [t, d]

Layers whose halves lie one after the other, whose gate is a silu, gelu or relu and which have no
biases are `tilewright.moe`, which makes no sorted copy; all others are made of ragged products.
Experts' sizes stay on the device. A registered implementation is a function that gets the layer:
`has_gate`, `has_bias`, `is_transposed` and `has_post_expert_norm` of it say how its weights lie.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from transformers.activations import GELUActivation, ReLUSquaredActivation, SiLUActivation
from transformers.integrations import moe as library
from transformers.integrations.moe import ALL_EXPERTS_FUNCTIONS

from tilewright.errors import OperandError
from tilewright.inputs.tensors import DTYPES
from tilewright.products.moe import moe
from tilewright.products.ragged import ragged_matmul
from tilewright.torch_ops.eager import is_transformed

__all__ = ["experts", "register", "unregister"]
NAME = "tilewright"
_GATED = {"silu": "swiglu", "gelu": "geglu", "relu": "reglu", "relu2": "relu2glu"}


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
    activation = _activation(layer, first, hidden_states, top_k_weights)
    if activation is not None:
        up, down = (_turned(layer, getattr(layer, name)) for name in (first, "down_proj"))
        found: Tensor = moe(
            hidden_states, up, down, top_k_index, top_k_weights, activation=activation
        )
        return found.to(hidden_states.dtype)
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


def _activation(layer: Any, first: str, x: Tensor, weights: Tensor) -> str | None:
    """What `tilewright.moe` calls the layer's activation; None where it cannot be the layer."""
    if layer.has_bias or getattr(layer, "has_post_expert_norm", False):
        return None
    if getattr(layer, "_is_expert_parallel", False) or x.dtype not in DTYPES or x.dim() != 2:
        return None
    # Of transforms `moe` knows no tangents; a compiler sees none of it.
    if not torch.compiler.is_compiling() and is_transformed():
        return None
    if weights.dtype not in (x.dtype, torch.float32):
        return None
    given = (getattr(layer, first, None), getattr(layer, "down_proj", None))
    if any(not isinstance(one, Tensor) or one.dim() != 3 or one.dtype != x.dtype for one in given):
        return None
    name = _name_of(layer.act_fn)
    if not layer.has_gate:
        return name
    # The library's own split into halves; layers with another one bring a method of their own.
    plain = type(layer)._apply_gate is library._default_apply_gate
    return _GATED.get(name or "") if plain and getattr(layer, "is_concatenated", True) else None


def _name_of(function: Any) -> str | None:
    """silu, gelu (erf), relu or relu2; None for any other function."""
    if isinstance(function, GELUActivation):
        return "gelu" if function.act is torch.nn.functional.gelu else None
    if isinstance(function, torch.nn.GELU):
        return "gelu" if function.approximate == "none" else None
    kinds = {
        (torch.nn.SiLU, SiLUActivation): "silu",
        (torch.nn.ReLU,): "relu",
        (ReLUSquaredActivation,): "relu2",
    }
    return next((name for kind, name in kinds.items() if type(function) in kind), None)


def _product(layer: Any, name: str, rows: Tensor, ends: Tensor) -> Tensor:
    """The rows of each expert by its matrix, with its bias where there is one."""
    weight = getattr(layer, name, None)
    bias = getattr(layer, f"{name}_bias", None) if layer.has_bias else None
    if weight is None or weight.dim() != 3 or (layer.has_bias and bias is None):
        raise OperandError(
            f"{type(layer).__name__}.{name}: {'missing' if weight is None else weight.shape};"
            " accepted are three dimensions, and a bias where the layer says that it has one"
        )
    found: Tensor = ragged_matmul(rows, _turned(layer, weight), ends, bias=bias)
    return found


def _turned(layer: Any, weight: Tensor) -> Tensor:
    """[experts, in, out], wherever the layer has the two."""
    return weight if layer.is_transposed else weight.transpose(1, 2)
