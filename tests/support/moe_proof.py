"""Runs a layer of experts and its gradients in Triton's interpreter, on the host.

What tests/backends/cuda/test_moe_interpreted.py starts in a process of its own:

    TRITON_INTERPRET=1 python -m tests.support.interpreter moe_proof
"""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tests.support import experts_case as cases
from tilewright.backends.cuda.machine import faults
from tilewright.backends.cuda.machine.triton_launch import INTERPRETED
from tilewright.backends.cuda.moe import layer, routes
from tilewright.errors import ArgumentError
from tilewright.facts.gates import GATES


def check_routes(tokens: int, top: int, groups: int, dtype: Any) -> None:
    """Rows of an expert in the order of slots; slots without an expert have none, and are told."""
    experts = torch.randint(-1, groups + 1, (top, tokens)).to(dtype).t()
    found = routes.route(experts, groups)
    flat = experts.reshape(-1)
    live = (flat >= 0) & (flat < groups)
    slots = torch.arange(len(flat))[live]
    order = slots[torch.argsort(flat[live], stable=True)]
    assert found.offsets.tolist() == torch.bincount(flat[live], minlength=groups).cumsum(0).tolist()
    assert found.order[: len(order)].tolist() == order.tolist()
    assert found.tokens[: len(order)].tolist() == (order // top).tolist()
    places = torch.full((len(flat),), -1)
    places[order] = torch.arange(len(order))
    assert found.places.tolist() == places.tolist()
    with pytest.raises(ArgumentError, match=r"experts.flatten\(\)\[\d+\]"):
        faults.check(INTERPRETED)
    routes.route(experts.clamp(max=groups - 1), groups)  # -1 is nobody, which is said on purpose
    faults.check(INTERPRETED)


def check_layer(case: cases.Case) -> None:
    given = case.operands()
    truth = cases.truth(case, given)
    made = layer.Layer(given.w_up, given.w_down, GATES[case.activation], "ieee")
    out, h, found = layer.forward(made, given.x, given.experts, given.weights, keep=True)
    wanted = (True, True, True)
    grads = layer.backward(made, given.pull, given.x, given.weights, h, found, wanted)
    cases.check(case, (out, *grads), truth)
    alone, none, _ = layer.forward(made, given.x, given.experts, given.weights, keep=False)
    assert torch.equal(alone, out)
    assert not len(none)


def main() -> None:
    torch.manual_seed(0)
    for dtype in (torch.int32, torch.int64):
        check_routes(300, 2, 5, dtype)
        check_routes(1100, 1, 40, dtype)
    print("routes: right", flush=True)
    for case in cases.INTERPRETED:
        check_layer(case)
    print("layers: right", flush=True)
