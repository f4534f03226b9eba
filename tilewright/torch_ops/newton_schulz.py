"""Newton-Schulz steps of matrices of any shapes: by grouped products on a GPU, else one by one.

A processor computes a matrix at a time with torch's own products, in the order and to the bits of
torch.optim.Muon; a batch of them brings nothing there, as one product keeps all cores busy.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from tilewright.errors import OperandError

Coefficients = tuple[float, float, float]


def bound(
    shapes: Sequence[tuple[int, int]],
    device: torch.device,
    coefficients: Coefficients,
    steps: int,
    eps: float,
) -> Any:
    """Steps with scratch of their own: `given`, filled by the caller; a call; `made`, read.

    Raises OperandError for a device that is neither a processor nor a GPU of torch's.
    """
    with torch.inference_mode(mode=False):  # scratch is kept, and filled in that mode and out of it
        if device.type == "cpu":
            return _OneByOne(shapes, coefficients, steps, eps)
        if device.type != "cuda":
            raise OperandError(
                f"device={str(device)!r}: accepted are matrices all on 'cpu', or on one 'cuda'"
            )
        from tilewright.backends.cuda.newton_schulz.steps import Steps

        return Steps(shapes, device.index, coefficients, steps, eps)


class _OneByOne:
    """The same calls as those of a GPU's `Steps`, on a processor."""

    def __init__(
        self,
        shapes: Sequence[tuple[int, int]],
        coefficients: Coefficients,
        steps: int,
        eps: float,
    ) -> None:
        self._coefficients, self._steps, self._eps = coefficients, steps, eps
        self.given = [torch.empty(one, dtype=torch.bfloat16, device="cpu") for one in shapes]
        self.made: list[Tensor] = self.given
        self.bytes = sum(2 * one.numel() for one in self.given)

    def __call__(self) -> None:
        with torch.autocast("cpu", enabled=False):  # the steps are in bf16 whoever asks
            self.made = [self._of_one(one) for one in self.given]

    def _of_one(self, given: Tensor) -> Tensor:
        a, b, c = self._coefficients
        tall = given.shape[0] > given.shape[1]
        x = given.T if tall else given
        x = x / x.norm().clamp(min=self._eps)
        for _ in range(self._steps):
            g = x @ x.T
            h = torch.addmm(g, g, g, beta=b, alpha=c)
            x = torch.addmm(x, h, x, beta=a)
        return x.T if tall else x
