"""Layers of experts as a user of PyTorch has them today, in bfloat16.

grouped_mm   sort the slots, gather rows, torch._grouped_mm, SwiGLU, _grouped_mm, weights, index_add
liger        LigerFusedMoEFunction of liger-kernel (its weights are the turned ones), of whose
             tuner's choices only the tiles of 128 or more are left, as all take minutes
loop         an expert at a time: rows of its tokens, two products, index_add_
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from typing import Any


@dataclass(frozen=True)
class Given:
    """What a layer is given, all on the GPU; weights learn, and so do x and the chances."""

    x: Any
    w_up: Any
    w_down: Any
    turned_up: Any
    turned_down: Any
    experts: Any
    weights: Any
    pull: Any

    @property
    def leaves(self) -> tuple[Any, ...]:
        """All that gets a gradient."""
        learn = (self.x, self.w_up, self.w_down, self.turned_up, self.turned_down, self.weights)
        return learn


def drawn(tokens: int, d: int, n: int, groups: int, top: int) -> Given:
    """Normally distributed; experts are those of the largest of random chances."""
    import torch

    def normal(*shape: int, scale: float = 1.0) -> Any:
        return (torch.randn(*shape, device="cuda") * scale).bfloat16()

    up, down = normal(groups, d, 2 * n, scale=d**-0.5), normal(groups, n, d, scale=n**-0.5)
    chances = torch.randn(tokens, groups, device="cuda").softmax(-1)
    weights, experts = chances.topk(top, dim=-1)
    weights = (weights / weights.sum(-1, keepdim=True)).requires_grad_()
    turned = [one.transpose(1, 2).contiguous() for one in (up, down)]
    x = normal(tokens, d)
    for leaf in (x, up, down, *turned):
        leaf.requires_grad_()
    return Given(x, up, down, turned[0], turned[1], experts, weights, normal(tokens, d))


def some_rows(given: Given) -> Any:
    """The result's first 64 rows in float64."""
    import torch

    n, rows = given.w_down.shape[1], []
    up, down, weights = (one.detach() for one in (given.w_up, given.w_down, given.weights))
    for token in range(64):
        picked = given.experts[token]
        h = torch.einsum("d,kdw->kw", given.x[token].double(), up[picked].double())
        a = torch.nn.functional.silu(h[:, :n]) * h[:, n:]
        y = torch.einsum("kn,knd->kd", a, down[picked].double())
        rows.append(weights[token].double() @ y)
    return torch.stack(rows)


def apart(found: Any, truth: Any) -> float:
    """How far from the truth, relative, Frobenius."""
    return float((found.double() - truth).norm() / truth.norm())


def gradients_apart(given: Given) -> float:
    """The largest of the gradients of an expert's two matrices, of its weights and of some x."""
    import torch

    n, expert = given.w_down.shape[1], 1
    token, slot = (given.experts == expert).nonzero(as_tuple=True)
    up, down = (
        one[expert].detach().double().requires_grad_() for one in (given.w_up, given.w_down)
    )
    weight = given.weights.detach()[token, slot].double().requires_grad_()
    h = given.x.detach()[token].double() @ up
    y = (torch.nn.functional.silu(h[:, :n]) * h[:, n:]) @ down * weight[:, None]
    y.backward(given.pull[token].double())
    x = given.x.detach().requires_grad_()
    part = replace(given, x=x)
    some_rows(part).backward(given.pull[:64].double())
    return max(
        apart(given.w_up.grad[expert], up.grad),
        apart(given.w_down.grad[expert], down.grad),
        apart(given.weights.grad[token, slot], weight.grad),
        apart(given.x.grad[:64], x.grad[:64]),
    )


def grouped_mm(given: Given) -> Any:
    """Two of torch's grouped products."""
    import torch

    top, groups = given.experts.shape[1], given.w_up.shape[0]
    chosen, order = given.experts.reshape(-1).sort(stable=True)
    every = torch.arange(groups, device="cuda")
    ends = torch.searchsorted(chosen, every, right=True).int()
    token = order // top
    h = torch._grouped_mm(given.x[token], given.w_up, offs=ends)
    gate, up = h.chunk(2, dim=1)
    y = torch._grouped_mm(torch.nn.functional.silu(gate) * up, given.w_down, offs=ends)
    y = y * given.weights.reshape(-1)[order].to(y.dtype)[:, None]
    return torch.zeros_like(given.x).index_add(0, token, y)


@cache
def _less_tuning() -> None:
    """Leave liger-kernel's tuner the larger tiles: all 200 configurations take it minutes."""
    from liger_kernel.ops import fused_moe_kernels

    for kernel in vars(fused_moe_kernels).values():
        if not hasattr(kernel, "configs"):
            continue
        first = kernel.configs[0].kwargs
        deep = 4 if "BLOCK_H" in first else 32 if "BLOCK_M" in first else 64
        least = {"BLOCK_M": 128, "BLOCK_N": 128, "BLOCK_K": deep, "BLOCK_H": 512}
        kernel.configs = [
            one
            for one in kernel.configs
            if all(one.kwargs[name] >= size for name, size in least.items() if name in one.kwargs)
            and one.num_stages in (2, 3, 4)
        ]


def liger(given: Given) -> Any:
    """The fused layer of liger-kernel."""
    from liger_kernel.ops.fused_moe import LigerFusedMoEFunction

    _less_tuning()
    weights = given.weights.to(given.x.dtype)
    operands = (given.x, given.turned_up, given.turned_down, given.experts, weights)
    return LigerFusedMoEFunction.apply(*operands)


def loop(given: Given) -> Any:
    """An expert at a time."""
    import torch

    out = torch.zeros_like(given.x)
    for group in range(given.w_up.shape[0]):
        token, slot = (given.experts == group).nonzero(as_tuple=True)
        gate, up = (given.x[token] @ given.w_up[group]).chunk(2, dim=1)
        y = (torch.nn.functional.silu(gate) * up) @ given.w_down[group]
        weight = given.weights[token, slot].to(y.dtype)[:, None]
        out.index_add_(0, token, y * weight)
    return out


LAYERS = {"_grouped_mm": grouped_mm, "liger": liger, "loop": loop}
