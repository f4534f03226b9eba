"""MoE: a layer of experts with its router, as a module of torch."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

from tilewright.errors import ArgumentError, DtypeError, ShapeError
from tilewright.facts.gates import GATES
from tilewright.products.moe import moe
from tilewright.pytorch.sizes import check_weights_dtype, checked_sizes
from tilewright.wording import short


class MoE(nn.Module):
    """y = sum over the `top` experts a token chose of weight · f(x @ w_up[e]) @ w_down[e].

    `w_up` is [experts, features, 2 hidden] ([experts, features, hidden] for an activation without a
    gate), `w_down` [experts, hidden, features]; both begin as nn.Linear's do. `router` is a linear
    layer without a bias; weights are softmax over all experts in float32, of the `top` largest
    (Shazeer et al., "Outrageously large neural networks", 2017), which add up to 1 where
    `normalize`, as Mixtral and Qwen3 have it.

    Calls take x [.., features]; experts and weights [.., top] may be given by whoever routes
    otherwise. `activation`, `precision` (where the layer computes in float32) and
    `batch_invariant` as `tilewright.moe` has them: the latter of given experts and weights, for the
    router is torch's. Raises ArgumentError, DtypeError, and at calls what `tilewright.moe` raises.
    """

    def __init__(
        self,
        experts: int,
        features: int,
        hidden: int,
        *,
        top: int,
        activation: str = "swiglu",
        normalize: bool = True,
        precision: str | None = None,
        batch_invariant: bool = False,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        if not isinstance(activation, str) or activation not in GATES:
            raise ArgumentError(f"activation={short(activation)}: accepted are {', '.join(GATES)}")
        experts, features, hidden = checked_sizes(experts=experts, features=features, hidden=hidden)
        check_weights_dtype(dtype)
        if not isinstance(top, int) or not 1 <= top <= experts:
            raise ArgumentError(f"top={short(top)}: accepted is 1 to {experts}, the experts")
        self.experts, self.features, self.hidden, self.top = experts, features, hidden, top
        self.activation, self.normalize, self.precision = activation, normalize, precision
        self.batch_invariant = batch_invariant
        where, width = {"device": device, "dtype": dtype}, GATES[activation].width(hidden)
        self.router = nn.Linear(features, experts, bias=False, **where)
        self.w_up = nn.Parameter(torch.empty((experts, features, width), **where))
        self.w_down = nn.Parameter(torch.empty((experts, hidden, features), **where))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the router and the weights anew."""
        self.router.reset_parameters()
        for weight in (self.w_up, self.w_down):
            bound = 1 / math.sqrt(max(weight.shape[1], 1))
            nn.init.uniform_(weight, -bound, bound)

    def route(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """[T, features] -> experts and weights [T, top]; the weights are float32."""
        chances = self.router(x).softmax(dim=-1, dtype=torch.float32)
        weights, experts = chances.topk(self.top, dim=-1)
        if self.normalize:
            weights = weights / weights.sum(dim=-1, keepdim=True)
        return experts, weights

    def forward(self, x: Tensor, experts: Any = None, weights: Any = None) -> Tensor:
        """[.., features] -> [.., features]."""
        if (experts is None) != (weights is None):
            raise ArgumentError("experts, weights: accepted are both, or neither")
        if isinstance(x, Tensor) and not x.is_floating_point():
            raise DtypeError(
                f"x.dtype={x.dtype}: accepted is {self.w_up.dtype}, as the weights have"
            )
        if not x.dim() or x.shape[-1] != self.features:
            raise ShapeError(f"x.shape={tuple(x.shape)}: must end with {self.features}, features")
        rows = x.reshape(math.prod(x.shape[:-1]), self.features)
        if experts is None:
            experts, weights = self.route(rows)
        else:
            experts = _by_token("experts", experts, len(rows))
            weights = _by_token("weights", weights, len(rows))
        # A precision is float32's: the layer may have been cast, by .bfloat16() or by FSDP.
        precision = self.precision if x.dtype == torch.float32 else None
        operands = (rows, self.w_up, self.w_down, experts, weights)
        made: Tensor = moe(
            *operands,
            activation=self.activation,
            precision=precision,
            batch_invariant=self.batch_invariant,
        )
        return made.reshape(x.shape)

    def extra_repr(self) -> str:
        """What repr() shows."""
        return (
            f"experts={self.experts}, features={self.features}, hidden={self.hidden},"
            f" top={self.top}, activation={self.activation!r}"
        )


def _by_token(name: str, given: Any, tokens: int) -> Any:
    """[.., top] -> [tokens, top]; what is no tensor is left to `moe`, which names it."""
    if not isinstance(given, Tensor):
        return given
    if not given.dim() or math.prod(given.shape[:-1]) != tokens:
        raise ShapeError(
            f"{name}.shape={tuple(given.shape)}: must be [.., top], as many of each of x's"
            f" {tokens} tokens"
        )
    return given.reshape(tokens, given.shape[-1])
