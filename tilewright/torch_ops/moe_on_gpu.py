"""Layers of experts on a GPU: launches on torch's current stream, nothing read back."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from tilewright.arrays.storage import check_memory
from tilewright.backends.cuda.machine import driver, faults, nvrtc
from tilewright.backends.cuda.moe import layer
from tilewright.backends.cuda.moe.routes import Routes
from tilewright.backends.cuda.ragged import engine
from tilewright.facts.arithmetic import is_alone
from tilewright.facts.gates import Gate


def forward(
    x: Tensor,
    w_up: Tensor,
    w_down: Tensor,
    experts: Tensor,
    weights: Tensor,
    gate: Gate,
    precision: str,
    keep: bool,
) -> tuple[Tensor, ...]:
    """The result, h, and the routes."""
    driver.need()
    given = {"x": x, "w_up": w_up, "w_down": w_down, "experts": experts, "weights": weights}
    check_memory(given)
    x = engine.settled(x) if is_alone(precision) else x
    faults.check_unless_captured(x)
    with torch.cuda.device(x.device):
        made = layer.Layer(w_up, w_down, gate, precision)
        out, h, routes = layer.forward(made, x, experts, weights, keep=keep)
    return out, h, routes.offsets, routes.tokens, routes.order, routes.places


def added(rows: Tensor, places: Tensor) -> Tensor:
    """Of each token the sum of its rows; places [T, any], int32, -1 for none."""
    with torch.cuda.device(rows.device):
        nvrtc.enter(rows.get_device())  # a thread of autograd's may come here first
        found: Tensor = layer.combined(rows, places.contiguous(), places.shape[1], None)
    return found


def backward(
    grad: Tensor,
    x: Tensor,
    w_up: Tensor,
    w_down: Tensor,
    weights: Tensor,
    h: Tensor,
    routes: tuple[Tensor, ...],
    gate: Gate,
    precision: str,
    wanted: list[bool],
) -> tuple[Any, ...]:
    """The gradients of x, w_up, w_down and the weights; no elements where one is not wanted."""
    with torch.cuda.device(x.device):
        nvrtc.enter(x.get_device())  # a thread of autograd's may come here first
        made = layer.Layer(w_up, w_down, gate, precision)
        asked = (wanted[0], wanted[1], wanted[2])
        lying = grad.contiguous()
        found = layer.backward(made, lying, x, weights, h, Routes(*routes), asked)
        return tuple(x.new_empty(0) if one is None else one for one in found)
