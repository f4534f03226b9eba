"""Layers of experts that every way of computing them must get right, and their truth in float64."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch.nn import functional

# Of the largest number of a result: a few roundings to the dtype on the way there.
_TOLERANCE = {
    torch.float64: 1e-12,
    torch.float32: 2e-5,
    torch.float16: 1e-2,
    torch.bfloat16: 6e-2,
}


@dataclass(frozen=True)
class Operands:
    """What a layer is given, and the gradient of its result."""

    x: Any
    w_up: Any
    w_down: Any
    experts: Any
    weights: Any
    pull: Any


@dataclass(frozen=True)
class Case:
    """Sizes as docs/pytorch.md names them. `routes`: how experts are drawn."""

    tokens: int
    d: int
    n: int
    groups: int
    top: int
    activation: str = "swiglu"
    dtype: Any = torch.float32
    routes: str = "any"
    turned: bool = False
    index: Any = torch.int64
    single: bool = False  # weights in float32, whatever the dtype

    def operands(self, where: str = "cpu") -> Operands:
        """Seeded; NaN in the weights of experts that nobody chose."""
        draw = torch.Generator().manual_seed(17)

        def normal(*shape: int, scale: float = 1.0) -> Any:
            drawn = torch.randn(*shape, generator=draw, dtype=torch.float64) * scale
            return drawn.to(self.dtype).to(where)

        width = 2 * self.n if self.activation.endswith("glu") else self.n
        up = normal(self.groups, self.d, width, scale=max(self.d, 1) ** -0.5)
        down = normal(self.groups, self.n, self.d, scale=max(self.n, 1) ** -0.5)
        if self.turned:
            up = up.transpose(1, 2).contiguous().transpose(1, 2)
            down = down.transpose(1, 2).contiguous().transpose(1, 2)
        experts = self._experts(draw)
        idle = torch.bincount(experts[experts >= 0], minlength=self.groups) == 0
        up[idle.to(where)] = float("nan")
        down[idle.to(where)] = float("nan")
        weights = torch.rand(self.tokens, self.top, generator=draw, dtype=torch.float64)
        weights = weights.to(torch.float32 if self.single else self.dtype).to(where)
        return Operands(
            normal(self.tokens, self.d),
            up,
            down,
            experts.to(self.index).to(where),
            weights,
            normal(self.tokens, self.d),
        )

    def _experts(self, draw: Any) -> Any:
        if self.routes == "one":
            return torch.full((self.tokens, self.top), self.groups - 1)
        if self.routes == "twice":  # the same expert more than once in a row
            drawn = torch.randint(0, max(self.groups // 2, 1), (self.tokens, 1), generator=draw)
            return drawn.expand(-1, self.top)
        if self.routes == "few":
            return torch.randint(0, 2, (self.tokens, self.top), generator=draw) * (self.groups - 1)
        scores = torch.rand(self.tokens, self.groups, generator=draw)
        chosen = scores.topk(self.top, dim=1).indices
        if self.routes == "nobody":  # half of the slots: some tokens have all, some have none
            chosen[torch.rand(chosen.shape, generator=draw) < 0.5] = -1
        return chosen


INTERPRETED = (
    Case(40, 33, 19, 4, 2),
    Case(23, 16, 48, 3, 3, "geglu", torch.float64, turned=True, index=torch.int32),
    Case(37, 20, 17, 6, 2, "relu2", torch.float16, "few", single=True),
    Case(9, 24, 130, 2, 2, "relu2glu", torch.float32, "twice"),
    Case(70, 17, 16, 3, 1, "silu", torch.float64, "one"),
    Case(5, 8, 8, 2, 1, "reglu", torch.float64),
    Case(5, 8, 8, 2, 1, "gelu", torch.float64),
    Case(5, 8, 8, 2, 1, "relu", torch.float64),
    Case(26, 17, 12, 4, 3, "swiglu", torch.float64, "nobody"),
)
_f16, _bf16 = torch.float16, torch.bfloat16
CASES = (
    *INTERPRETED,
    Case(1, 1, 1, 1, 1),
    Case(1, 64, 64, 128, 8, dtype=_bf16),
    Case(500, 128, 96, 16, 8, dtype=_bf16, single=True),
    Case(500, 136, 72, 5, 4, "geglu", _f16, turned=True),
    Case(300, 200, 104, 4, 2, "relu2glu", _bf16, "one", turned=True, single=True),
    Case(1000, 320, 256, 3, 2, "silu", _f16, "few"),
    Case(333, 77, 51, 7, 5, "swiglu", _bf16, "twice"),
    Case(257, 144, 128, 5, 3, "relu2glu", _bf16),
    Case(200, 208, 256, 3, 2, "geglu", _f16, "few", turned=True),
    Case(400, 136, 128, 6, 4, "swiglu", _bf16, "nobody", single=True),
    Case(7, 8, 8, 2, 1, "relu", torch.float32, "nobody"),
)
# Of sizes that only GPUs compute in no time.
LARGE = (
    Case(700, 512, 128, 40, 8, dtype=_bf16, index=torch.int32),
    Case(3000, 320, 384, 6, 4, "reglu", _f16, "one", turned=True),
    Case(5000, 136, 128, 200, 3, "swiglu", _bf16, single=True),
    Case(2000, 264, 200, 9, 2, "gelu", _f16, "twice"),
)
EMPTY = (
    Case(0, 8, 4, 3, 2),
    Case(5, 8, 0, 3, 2),
    Case(5, 0, 4, 3, 2),
    Case(5, 8, 4, 3, 0),
)


def function(name: str, h: Any) -> Any:
    """What lies between the products, by torch."""
    gate, up = h.chunk(2, dim=-1) if name.endswith("glu") else (h, 1.0)
    kind = {"swiglu": "silu", "geglu": "gelu", "reglu": "relu", "relu2glu": "relu2"}.get(name, name)
    value = functional.relu(gate).square() if kind == "relu2" else getattr(functional, kind)(gate)
    return value * up


def plain(case: Case, x: Any, w_up: Any, w_down: Any, experts: Any, weights: Any) -> Any:
    """The layer as one would write it down, a token and an expert at a time."""
    out = torch.zeros_like(x)
    for group in range(case.groups):
        token, slot = (experts == group).nonzero(as_tuple=True)
        if len(token):
            y = function(case.activation, x[token] @ w_up[group]) @ w_down[group]
            out = out.index_add(0, token, y * weights[token, slot, None])
    return out


def truth(case: Case, given: Operands) -> tuple[Any, ...]:
    """The result and the gradients of x, w_up, w_down and the weights, in float64."""
    learn = (given.x, given.w_up, given.w_down, given.weights)
    leaves = [one.detach().double().requires_grad_() for one in learn]
    x, w_up, w_down, weights = leaves
    out = plain(case, x, w_up, w_down, given.experts, weights)
    if out.requires_grad:
        out.backward(given.pull.double())
    grads = [one.grad if one.grad is not None else torch.zeros_like(one) for one in leaves]
    return out.detach(), *grads


def check(case: Case, found: tuple[Any, ...], wanted: tuple[Any, ...]) -> None:
    """Each result, and each gradient, beside its truth."""
    names = ("out", "x.grad", "w_up.grad", "w_down.grad", "weights.grad")
    for name, ours, right in zip(names, found, wanted, strict=True):
        assert ours.shape == right.shape, (name, case)
        if right.numel():
            error = (ours.double() - right).abs().max() / right.abs().max().clamp(min=1e-30)
            assert float(error) <= _TOLERANCE[case.dtype], (name, float(error), case)
