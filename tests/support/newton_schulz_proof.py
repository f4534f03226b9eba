"""Runs what lies between the products of Newton-Schulz steps in Triton's interpreter.

TRITON_INTERPRET=1 python -m tests.support.interpreter newton_schulz_proof
"""

from __future__ import annotations

from typing import Any

import torch

from tilewright.backends.cuda.machine.triton_launch import INTERPRETED
from tilewright.backends.cuda.newton_schulz import between
from tilewright.planning.newton_schulz import Flat, laid_out

SHAPES = [(5, 9), (100, 96), (1, 1), (0, 7), (9000, 1), (64, 64), (3, 3)]


def views(memory: Any, layout: Flat) -> list[Any]:
    every = zip(layout.rows, layout.cols, layout.step, layout.begin, strict=True)
    return [memory.as_strided((int(m), int(n)), (int(s), 1), int(at)) for m, n, s, at in every]


def check_norms() -> None:
    """To the bits of torch, but where a sum in another order ends on the other side of a half."""
    layout = laid_out(SHAPES).x
    memory = torch.zeros(layout.elements, dtype=torch.bfloat16)
    matrices = views(memory, layout)
    for i, one in enumerate(matrices):
        one.copy_(torch.randn(one.shape) * 10.0 ** (i - 3))
    matrices[5].zero_()
    matrices[6][0, 0] = float("nan")
    wanted = [one / one.norm().clamp(min=1e-7) for one in matrices]
    between.normalising(memory, layout, 1e-7, INTERPRETED)(0)
    for x, y in zip(matrices, wanted, strict=True):
        torch.testing.assert_close(x, y, rtol=2**-7, atol=0, equal_nan=True)
        assert x.numel() == 0 or x.isnan().all() or not x.any() or abs(x.float().norm() - 1) < 0.01


def check_shift(keep: float, add: float) -> None:
    layout = laid_out(SHAPES).gram
    g, h = (torch.zeros(layout.elements, dtype=torch.bfloat16) for _ in range(2))
    g.normal_()
    h.fill_(float("nan"))
    between.shifting(g, h, layout, keep, add, INTERPRETED)(0)
    for x, y in zip(views(g, layout), views(h, layout), strict=True):
        wanted = keep * x.float() + add * torch.eye(len(x))
        torch.testing.assert_close(y, wanted.bfloat16(), rtol=2**-7, atol=0)  # it cuts digits off


def check_mirror() -> None:
    """Whole symmetric matrices again, whatever lay above their diagonal blocks."""
    layout = laid_out([(5, 5), (700, 701), (1100, 1090)]).gram
    memory = torch.zeros(layout.elements, dtype=torch.bfloat16)
    wanted = []
    for one in views(memory, layout):
        one.copy_(torch.randn(one.shape))
        one.copy_(one + one.T)
        wanted.append(one.clone())
        for row in range(512, len(one), 512):
            one[row - 512 : row, row:] = float("nan")
    between.mirroring(memory, layout, INTERPRETED)(0)
    for x, y in zip(views(memory, layout), wanted, strict=True):
        assert torch.equal(x, y)


def main() -> None:
    torch.manual_seed(0)
    check_mirror()
    print("halves: right", flush=True)
    check_norms()
    print("norms: right", flush=True)
    check_shift(1.0, -0.7213)
    check_shift(0.0, 3.4445)
    print("multiples of the identity: right", flush=True)
