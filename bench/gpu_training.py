"""A training step of a mixture's layer: rows forward, gradients of rows, weights and biases.

tilewright       GroupedLinear with a bias, the ends of groups on the GPU
_grouped_mm      torch._grouped_mm and its autograd, the bias of each row's group added
without bias     torch._grouped_mm and its autograd alone
loop of addmm    one torch.addmm a group, for whoever knows the sizes on the host

All get the gradient of their result and leave gradients of x, weights and biases.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from bench import gpu_cases

OURS = "tilewright"
Way = Callable[[], object]


def cases() -> list[gpu_cases.Case]:
    """The mixtures of experts of bench/gpu_cases.py."""
    mixtures = [case for case in gpu_cases.CASES if case.experts]
    return [replace(case, name=f"training step, {case.name}") for case in mixtures]


class Step:
    """One layer's operands, gradients wanted, and the ways to get them."""

    def __init__(self, case: gpu_cases.Case) -> None:
        import torch

        from tilewright.pytorch import GroupedLinear

        given = gpu_cases.operands(case)
        _, n, k = case.sizes[0]
        self.counts = [rows for rows, _, _ in case.sizes]
        self.flops = 3 * given.flops
        dtype = given.x.dtype
        self.layer: Any = GroupedLinear(case.experts, k, n, device="cuda", dtype=dtype)
        self.x, self.ends = given.x.requires_grad_(), given.ends
        self.pull = torch.randn(len(self.x), n, device="cuda", dtype=dtype)
        counts = torch.tensor(self.counts, device="cuda")
        self.group = torch.repeat_interleave(torch.arange(case.experts, device="cuda"), counts)

    def ways(self) -> dict[str, Way]:
        """Every way, by name."""
        return {
            OURS: lambda: self._step(self.layer(self.x, self.ends)),
            "_grouped_mm": lambda: self._step(self._grouped_mm() + self.layer.bias[self.group]),
            "without bias": lambda: self._step(self._grouped_mm()),
            "loop of addmm": lambda: self._step(self._loop()),
        }

    def error(self) -> float:
        """The largest relative error of our gradients of some groups, against float64."""
        self.ways()[OURS]()
        weight, bias, begin, found = self.layer.weight, self.layer.bias, 0, []
        step = max(1, len(self.counts) // 8)
        for group, count in enumerate(self.counts):
            part = slice(begin, begin := begin + count)
            if group % step or not count:
                continue
            x, pull = self.x[part].detach().double(), self.pull[part].double()
            truth = (
                (self.x.grad[part], pull @ weight[group].detach().double().t()),
                (weight.grad[group], x.t() @ pull),
                (bias.grad[group], pull.sum(0)),
            )
            found += [float((ours.double() - right).norm() / right.norm()) for ours, right in truth]
        return float(np.max(found))  # NaN where one is

    def _step(self, result: Any) -> None:
        self.x.grad = self.layer.weight.grad = self.layer.bias.grad = None
        result.backward(self.pull)

    def _grouped_mm(self) -> Any:
        import torch

        return torch._grouped_mm(self.x, self.layer.weight, offs=self.ends)

    def _loop(self) -> Any:
        import torch

        parts = zip(
            self.x.split(self.counts),
            self.layer.weight.unbind(),
            self.layer.bias.unbind(),
            strict=True,
        )
        return torch.cat([torch.addmm(bias, x, weight) for x, weight, bias in parts])
