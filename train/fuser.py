"""A plain net at half resolution that says how much of which of two moved pictures is right.

    x [N, 23, H, W] as `tilewright/backends/host/kernels/fusing.py` has it -> 3x3, ReLU -> inner x
    (3x3, ReLU) -> 3x3 to 8: more of the second picture, and of both as they stand

The last layer begins near 0, so that the net begins as what is mixed by time alone.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional

READ, SAID = 23, 8


@dataclass(frozen=True)
class Depth:
    """Channels and inner layers of a net, and its largest learning rate."""

    channels: int
    inner: int
    rate: float

    @property
    def parameters(self) -> int:
        """Of the net."""
        c = self.channels
        return 9 * READ * c + c + self.inner * (9 * c * c + c) + 9 * SAID * c + SAID

    @property
    def layers(self) -> str:
        """In words."""
        c = self.channels
        return f"convolutions of 3 x 3: {READ} -> {c}, {self.inner} of {c} -> {c}, {c} -> {SAID}"


DEPTHS = {"s": Depth(16, 4, 1e-3), "m": Depth(24, 5, 1e-3)}


class Fuser(nn.Module):
    """The net, as it learns and as it is exported."""

    def __init__(self, depth: Depth) -> None:
        super().__init__()
        widths = [READ, *[depth.channels] * (depth.inner + 1), SAID]
        self.layers = nn.ModuleList([nn.Conv2d(i, o, 3, padding=1) for i, o in pairwise(widths)])
        with torch.no_grad():
            for number, layer in enumerate(self.layers):
                i, o = widths[number], widths[number + 1]
                last = number + 1 == len(self.layers)
                share = 0.002 if last else 1.0 if number == 0 else 0.4
                layer.weight.normal_(0, share * math.sqrt(2 / (9 * i)))
                layer.bias.zero_()
                if i == o:
                    layer.weight[:, :, 1, 1] += torch.eye(i)

    @property
    def tensors(self) -> list[Tensor]:
        """Kernel and bias of every layer, in their order."""
        return list(self.parameters())

    @torch.no_grad()
    def take(self, tensors: list[Tensor]) -> Fuser:
        """With these tensors."""
        for parameter, tensor in zip(self.parameters(), tensors, strict=True):
            parameter.copy_(tensor)
        self.eval()
        return self

    def forward(self, x: Tensor) -> Tensor:
        """[N, 1, 2 H, 2 W] of [N, 23, H, W]: the picture between, 0 to 1."""
        return run(x, self.tensors)


def said(x: Tensor, tensors: list[Tensor]) -> Tensor:
    """What the chain of convolutions says, in the type of x."""
    half = x.dtype == torch.float16
    for number, (kernel, bias) in enumerate(zip(tensors[::2], tensors[1::2], strict=True)):
        if half:
            kernel = kernel.to(x.dtype, memory_format=torch.channels_last)
            x = x.contiguous(memory_format=torch.channels_last)
        x = functional.conv2d(x, kernel, bias.to(x.dtype), padding=1)
        x = functional.relu(x) if 2 * number + 2 < len(tensors) else x
    return x


def run(x: Tensor, tensors: list[Tensor]) -> Tensor:
    """The net with these kernels and biases, and its picture in float32, not yet cut.

    A sample stands still where both moved pictures are what stands there, and is not changed.
    """
    return fused(x.float(), said(x, tensors).float())


def fused(x: Tensor, found: Tensor) -> Tensor:
    """The picture of what a net read and said, as the stage makes it."""
    one, other, still, part = x[:, :16].unflatten(1, (4, 4)).unbind(1)
    more, stay = found.unflatten(1, (2, 4)).unbind(1)
    moves = ((one != other) | (one != still)).float()
    part = (part + moves * more).clamp(0, 1)
    moved = one + part * (other - one)
    made = moved + moves * stay.clamp(0, 1) * (still - moved)
    return functional.pixel_shuffle(made, 2) + 0.5


def unfused(x: Tensor) -> Tensor:
    """The picture without a net."""
    one, other, _, part = x[:, :16].float().unflatten(1, (4, 4)).unbind(1)
    return functional.pixel_shuffle(one + part * (other - one), 2) + 0.5
