"""Layers of experts on processors: rows sorted by expert, then ragged products of each expert's.

Of a single token the sorting, which is `backends/host/routes.py`'s, took a third of the time by
torch's operations: each is a few us where its code has left the caches.
"""

from __future__ import annotations

from typing import Any, NoReturn

import torch
from torch import Tensor
from torch.nn import functional

from tilewright.arrays.storage import address, check_memory
from tilewright.arrays.turned import gradient
from tilewright.backends.host import routes as host
from tilewright.errors import ArgumentError
from tilewright.facts.arithmetic import is_alone
from tilewright.facts.gates import FUNCTIONS, Gate
from tilewright.torch_ops import on_processor, ragged_tensors

_Routes = tuple[Tensor, Tensor, Tensor, Tensor]


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
    """The result, h, and the routes. Raises ArgumentError for experts that are none."""
    given = {"x": x, "w_up": w_up, "w_down": w_down, "experts": experts, "weights": weights}
    check_memory(given)
    (tokens, top), groups = experts.shape, w_up.shape[0]
    rows, routes = routed(experts, groups, x.dtype)
    offsets, owners, _, places = routes
    some_are_nobodys = rows < len(owners)
    taken = x.index_select(0, owners[:rows] if some_are_nobodys else owners)
    h = on_processor.new_product(taken, w_up, offsets, None, precision)
    a = _made_alone(h, gate) if is_alone(precision) else _made(h, gate)
    y = on_processor.new_product(a, w_down, offsets, None, precision)
    wide = _wide(x)
    weight = weights.to(wide)
    if some_are_nobodys:
        weight = weight.masked_fill(experts < 0, 0)
        y = _with_nobodys(y)
        places = torch.where(places < 0, rows, places)
    parts = y.index_select(0, places).to(wide).view(tokens, top, -1)
    if is_alone(precision):
        out = _added(parts * weight[..., None])
    else:  # without a pass that writes the products
        out = torch.bmm(weight.unsqueeze(1), parts).squeeze(1)
    kept = _padded(h, len(owners)) if keep else h.new_empty((0, h.shape[1]))
    return out.to(x.dtype), kept, *routes


def added(rows: Tensor, places: Tensor) -> Tensor:
    """Of each token the sum of its rows; places [T, any], -1 for none."""
    parts = _of_slots(rows, places.reshape(-1)).to(_wide(rows))
    return _added(parts.view(*places.shape, -1)).to(rows.dtype)


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
    offsets, tokens, order, places = routes
    rows = int(offsets[-1])
    tokens, order, h = tokens[:rows], order[:rows], h[:rows]
    wide, pull = _wide(x), grad.index_select(0, tokens)
    weight = weights.reshape(-1)[order].to(wide)[:, None]

    def product(left: Tensor, right: Tensor) -> Any:
        return on_processor.new_product(left, right, offsets, None, precision)

    of_a = product(pull, w_down.transpose(1, 2)).to(wide)
    a = _made(h.to(wide), gate)
    of_h = _gradient(h.to(wide), gate, of_a * weight).to(x.dtype)
    of_weights = weights.new_zeros(weights.numel())
    of_weights[order] = (of_a * a).sum(1).to(weights.dtype)
    of_x, of_up, of_down = (x.new_empty(0) for _ in wanted)  # results that are not each other
    if wanted[0]:
        parts = _of_slots(product(of_h, w_up.transpose(1, 2)), places)
        of_x = parts.to(wide).view(*weights.shape, -1).sum(1).to(x.dtype)
    if wanted[1]:
        of_up = gradient(w_up, x.index_select(0, tokens), of_h, product)
    if wanted[2]:
        of_down = gradient(w_down, (a * weight).to(x.dtype), pull, product)
    return of_x, of_up, of_down, of_weights.view(weights.shape)


def routed(experts: Tensor, groups: int, dtype: torch.dtype) -> tuple[int, _Routes]:
    """How many rows there are, and where each expert's end; of each row the token and the slot,
    those of nobody last; and of each slot the row, -1 for nobody's. All int32.

    Raises ArgumentError for experts that are none.
    """
    run, place = host.run(ragged_tensors.NAMES.get(dtype)), address(experts)
    if run is None or not place:
        return _routes_by_torch(experts, groups)
    (tokens, top), (row, col), item = experts.shape, experts.stride(), experts.element_size()
    slots = tokens * top
    ends, owners, order, places = (
        experts.new_empty(size, dtype=torch.int32) for size in (groups, slots, slots, slots)
    )
    found = (ends.data_ptr(), owners.data_ptr(), order.data_ptr(), places.data_ptr())
    rows = run(place, item == 8, item * row, item * col, tokens, top, groups, *found)
    if rows < 0:
        _refuse(experts, -1 - rows, groups)
    return rows, (ends, owners, order, places)


def _routes_by_torch(experts: Tensor, groups: int) -> tuple[int, _Routes]:
    """The same before a compiler was there, or without one."""
    flat = experts.reshape(-1).long()
    wrong = (flat < -1) | (flat >= groups)
    if bool(wrong.any()):
        _refuse(experts, int(wrong.nonzero()[0]), groups)
    wanted = torch.where(flat < 0, groups, flat)
    order = torch.argsort(wanted, stable=True)
    ends = torch.bincount(wanted, minlength=groups)[:groups].cumsum(0).int()
    places = torch.empty_like(order)
    places.scatter_(0, order, torch.arange(len(order), device=order.device))
    places.masked_fill_(flat < 0, -1)
    return int(ends[-1]), (ends, (order // experts.shape[1]).int(), order.int(), places.int())


def _refuse(experts: Tensor, at: int, groups: int) -> NoReturn:
    token, slot = divmod(at, experts.shape[1])
    raise ArgumentError(
        f"experts[{token}, {slot}]={int(experts[token, slot])}: accepted are experts from 0 to"
        f" {groups - 1}, and -1 for nobody"
    )


def _of_slots(rows: Tensor, places: Tensor) -> Tensor:
    """The row of each slot; zeros for those of nobody."""
    if not bool((places < 0).any()):
        return rows.index_select(0, places)
    return _with_nobodys(rows).index_select(0, torch.where(places < 0, len(rows), places))


def _with_nobodys(rows: Tensor) -> Tensor:
    """These, and behind them a row of zeros."""
    return torch.cat((rows, rows.new_zeros((1, rows.shape[1]))))


def _padded(h: Tensor, slots: int) -> Tensor:
    """With as many rows as slots, which is what the operator says that it gives."""
    if len(h) == slots:
        return h
    return torch.cat((h, h.new_zeros((slots - len(h), h.shape[1]))))


def _made(h: Tensor, gate: Gate) -> Tensor:
    """What lies between the products."""
    left, right = h.chunk(2, dim=1) if gate.is_pair else (h, None)
    value = _function(left, gate)
    return value if right is None else value * right


def _made_alone(h: Tensor, gate: Gate) -> Tensor:
    """The same of each row by itself: torch's exp ends a run of numbers in other bits."""
    made = h.new_empty((h.shape[0], h.shape[1] // (2 if gate.is_pair else 1)))
    for row, into in zip(h.split(1), made.split(1), strict=True):
        into.copy_(_made(row, gate))
    return made


def _added(parts: Tensor) -> Tensor:
    """[T, K, d] -> [T, d], one after another, whatever T is."""
    first, *rest = parts.unbind(1)
    return sum(rest, first)


def _function(left: Tensor, gate: Gate) -> Tensor:
    name = FUNCTIONS[gate.kind]
    if name == "relu2":
        return functional.relu(left).square()
    value: Tensor = getattr(functional, name)(left)
    return value


def _gradient(h: Tensor, gate: Gate, pull: Tensor) -> Tensor:
    """Of h, by torch's own derivatives; below an operator autograd records nothing."""
    left, right = h.chunk(2, dim=1) if gate.is_pair else (h, None)
    before = pull if right is None else pull * right
    name = FUNCTIONS[gate.kind]
    if name == "silu":
        of_left = torch.ops.aten.silu_backward(before, left)
    elif name == "gelu":
        of_left = torch.ops.aten.gelu_backward(before, left)
    elif name == "relu":
        of_left = before * (left > 0)
    else:
        of_left = before * 2 * functional.relu(left)
    if right is None:
        return of_left
    return torch.cat((of_left, pull * _function(left, gate)), dim=1)


def _wide(x: Tensor) -> torch.dtype:
    """What halves are added in."""
    return torch.promote_types(x.dtype, torch.float32)
