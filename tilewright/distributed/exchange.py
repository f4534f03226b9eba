"""Rows go to the ranks that have their experts, and what is made of them comes back.

    this rank's tokens                                 rows that came, of every rank
      t0 -> experts 1, 6      sizes, once               from 0 | from 1 | from 2 ...
      t1 -> experts 0, 1      ------------------->      row: x | weights | experts, -1 elsewhere
      t2 -> experts 6, 7      one message a rank          |
                                                          v   this rank's experts
      t0 = of rank 0 + of rank 3   <---------------     a row each, its experts' sum

A token goes to a rank once, however many of its experts are there, and one sum comes back: of eight
experts of 128 on four ranks 3.6 rows a token travel and not eight. The backward pass sends the same
rows the other way. What every rank has to know of the others goes with the sizes: whether one has
failed, and whether all were asked for the same; so an error of one ends the call on all.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from tilewright.errors import ArgumentError, DeviceError
from tilewright.torch_ops import moe_on_gpu, moe_on_processor

_ALIGNED = 16  # bytes at which a row and its parts begin: what tensor maps want
_DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
_FACTS = (
    *("columns", "dtype", "experts a token", "dtype of weights"),
    *("whether gradients of tokens follow", "whether gradients of experts follow"),
    "placement",
)


@dataclass(frozen=True, eq=False)
class Parcel:
    """What a rank sends: rows [T, d], experts [T, K] (-1 for nobody), their weights or None.

    `is_wrong` says, on the device, whether an expert is none; `error` is what is then raised.
    """

    rows: Tensor
    experts: Tensor
    weights: Tensor | None
    is_wrong: Tensor
    error: Callable[[], Exception]
    follows: tuple[bool, bool]  # gradients of rows or weights, and of experts
    placement: int  # the same for the same owners

    @property
    def facts(self) -> tuple[int, ...]:
        """What all ranks must agree in, in the order of _FACTS."""
        weights = -1 if self.weights is None else _DTYPES.index(self.weights.dtype)
        dtype = _DTYPES.index(self.rows.dtype)
        return (
            self.rows.shape[1],
            dtype,
            self.experts.shape[1],
            weights,
            *self.follows,
            self.placement,
        )


@dataclass(frozen=True, eq=False)
class Route:
    """Rows sent, by rank and then by token: whose each is, how many went and came, rank by rank.

    `places` has the rows of each token, [T, as many as there can be], -1 where there are fewer.
    """

    group: Any
    tokens: Tensor
    places: Tensor
    sent: list[int]
    received: list[int]

    def there(self, rows: Tensor) -> Tensor:
        """Rows of tokens, at the ranks of their experts."""
        return self._exchanged(rows, self.sent, self.received)

    def back(self, rows: Tensor) -> Tensor:
        """Rows that came, at the ranks that they came from."""
        return self._exchanged(rows, self.received, self.sent)

    def _exchanged(self, rows: Tensor, given: list[int], taken: list[int]) -> Tensor:
        found = rows.new_empty((sum(taken), rows.shape[1]))
        dist.all_to_all_single(found, rows.contiguous(), taken, given, group=self.group)
        return found

    def added(self, rows: Tensor) -> Tensor:
        """The sum of each token's rows, rank by rank, in float32 at least."""
        if not (rows.numel() and self.places.numel()):
            return rows.new_zeros((len(self.places), rows.shape[1]))
        place = moe_on_gpu if rows.is_cuda else moe_on_processor
        found: Tensor = place.added(rows.contiguous(), self.places)
        return found


def dispatched(
    parcel: Parcel, owners: tuple[Tensor, Tensor], group: Any
) -> tuple[Tensor, Tensor, Tensor | None, Route]:
    """Rows that came, the experts of each by their numbers here (-1 elsewhere), weights, the way.

    `owners` are the rank of every expert and its number there.
    """
    (ranks_of, numbers_of), experts = owners, parcel.experts
    count, most = dist.get_world_size(group), max(len(ranks_of) - 1, 0)
    known = experts.clamp(0, most)
    rank = ranks_of[known].masked_fill(experts < 0, count)
    goes = rank.new_zeros((len(experts), count + 1), dtype=torch.bool)
    goes = goes.scatter_(1, rank, True)[:, :count]
    sent, received = _agreed(parcel, goes.sum(0), group)
    owner, tokens = goes.t().nonzero(as_tuple=True)
    route = Route(group, tokens, _places(owner, tokens, rank, count), sent, received)
    is_there = rank[tokens] == owner[:, None]
    numbers = numbers_of[known[tokens]].masked_fill(~is_there, -1).int()
    rows, weights, came = _There.apply(parcel.rows, parcel.weights, numbers, is_there, route)
    return rows, came, weights, route


def returned(rows: Tensor, route: Route) -> Tensor:
    """What the ranks made of each token's rows, added up: [tokens, columns]."""
    found: Tensor = _Back.apply(rows, route)
    return found


def _places(owner: Tensor, tokens: Tensor, rank: Tensor, count: int) -> Tensor:
    """The rows of each token, in the order of ranks: a column a rank, or an expert if fewer."""
    found = torch.full((len(rank), count + 1), -1, dtype=torch.int32, device=rank.device)
    numbers = torch.arange(len(tokens), dtype=torch.int32, device=rank.device)
    found.index_put_((tokens, owner), numbers)
    if count <= rank.shape[1]:
        return found[:, :count]
    chosen = found.gather(1, rank).sort(1).values  # one that has two of its experts comes twice
    again = chosen[:, 1:] == chosen[:, :-1]
    chosen[:, 1:].masked_fill_(again, -1)
    return chosen


def failed(device: Any, group: Any) -> None:
    """Tell the others that this rank will not send."""
    count = dist.get_world_size(group)
    head = torch.full((count, 1 + len(_FACTS)), -1, dtype=torch.int64, device=device)
    dist.all_to_all_single(torch.empty_like(head), head, group=group)


def _agreed(parcel: Parcel, counts: Tensor, group: Any) -> tuple[list[int], list[int]]:
    """How many rows go to each rank and come from it, read at once, the only wait of a call."""
    head = counts.new_empty((len(counts), 1 + len(parcel.facts)))
    head[:, 0] = torch.where(parcel.is_wrong, -1, counts)
    head[:, 1:] = torch.tensor(parcel.facts, dtype=head.dtype, device="cpu").to(
        head.device, non_blocking=True
    )
    told = torch.empty_like(head)
    dist.all_to_all_single(told, head, group=group)
    sent, *others = torch.cat((head[:, :1], told), 1).t().tolist()
    if sent[0] < 0:
        raise parcel.error()
    received, me = others[0], dist.get_rank(group)
    if min(received) < 0:
        raise DeviceError(
            f"group: rank {received.index(min(received))} failed before rows were sent; its own"
            f" error says why, and rank {me} ends its call with it"
        )
    for name, own, values in zip(_FACTS, parcel.facts, others[1:], strict=True):
        for rank, value in enumerate(values):
            if value != own:
                said = (_shown(name, own), _shown(name, value))
                raise ArgumentError(
                    f"x: {name} {said[0]} on rank {me} and {said[1]} on rank {rank}; accepted is"
                    " the same on every rank of the group"
                )
    return sent, received


def _shown(name: str, value: int) -> str:
    if name.startswith("dtype"):
        return str(_DTYPES[value]) if value >= 0 else "None"
    return str(bool(value)) if name.startswith("whether") else str(value)


def _once(backward: Callable[..., tuple[Any, ...]]) -> Callable[..., tuple[Any, ...]]:
    """A backward pass of which no gradient is followed: torch's own mark of that is not seen where
    gradients of named tensors are asked for."""

    @wraps(backward)
    def checked(ctx: Any, *grads: Any) -> tuple[Any, ...]:
        if torch.is_grad_enabled():
            raise NotImplementedError(
                "ExpertParallel: create_graph=True asks for gradients of its gradients, which do"
                " not travel; accepted is create_graph=False"
            )
        return backward(ctx, *grads)

    return checked


class _There(torch.autograd.Function):
    """Rows with their weights and experts' numbers, in one message a rank."""

    @staticmethod
    def forward(
        ctx: Any, rows: Tensor, weights: Any, numbers: Tensor, is_there: Tensor, route: Route
    ) -> tuple[Any, ...]:
        """Rows, weights (None without) and numbers that came."""
        parts = [numbers]
        if weights is not None:
            parts.insert(0, weights.index_select(0, route.tokens).masked_fill(~is_there, 0))
        like = [rows, *parts]
        came = _unpacked(route.there(_packed(like, route.tokens)), like)
        ctx.route = route
        ctx.save_for_backward(is_there)
        ctx.mark_non_differentiable(came[-1])
        return came[0], came[1] if weights is not None else None, came[-1]

    @staticmethod
    @_once
    def backward(ctx: Any, of_rows: Tensor, of_weights: Any, _: Any) -> tuple[Any, ...]:
        """The gradients of rows and weights: those of all ranks, added up."""
        (is_there,), route = ctx.saved_tensors, ctx.route
        parts = [of_rows] if of_weights is None else [of_rows, of_weights]
        came = _unpacked(route.back(_packed(parts)), parts)
        found = route.added(came[0])
        if of_weights is None:
            return found, None, None, None, None
        back = came[1].masked_fill(~is_there, 0)
        return found, route.added(back), None, None, None


class _Back(torch.autograd.Function):
    """What was made of rows, at the ranks of their tokens, added up there."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, route: Route) -> Tensor:
        """[tokens, columns]; zeros for those whose experts are nobody's."""
        ctx.route = route
        return route.added(route.back(rows))

    @staticmethod
    @_once
    def backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
        """Of each rank's rows: the gradient of their token."""
        return ctx.route.there(grad.index_select(0, ctx.route.tokens)), None


def _packed(parts: list[Tensor], tokens: Tensor | None = None) -> Tensor:
    """The parts [n, any] of every row side by side, as bytes; of the first the rows of `tokens`."""
    begins, width = _layout(parts)
    found = parts[0].new_empty((len(parts[-1]), width), dtype=torch.uint8)
    for part, begin in zip(parts, begins, strict=True):
        if tokens is None or part is not parts[0]:
            _part_of(found, part, begin).copy_(part)
        else:
            torch.index_select(part, 0, tokens, out=_part_of(found, part, begin))
    return found


def _unpacked(rows: Tensor, like: list[Tensor]) -> list[Tensor]:
    """Views of the parts of rows that came, of the dtypes and columns of those that went."""
    return [_part_of(rows, one, begin) for one, begin in zip(like, _layout(like)[0], strict=True)]


def _part_of(rows: Tensor, like: Tensor, begin: int) -> Tensor:
    end = begin + like.shape[1] * like.element_size()
    return rows[:, begin:end].view(like.dtype)


def _layout(parts: list[Tensor]) -> tuple[list[int], int]:
    """Where each part begins, and the bytes of a row."""
    begins, end = [], 0
    for part in parts:
        begins.append(end)
        end += -(-part.shape[1] * part.element_size() // _ALIGNED) * _ALIGNED
    return begins, end
