"""Plain nets at half resolution that take damage away: what they say is added to the picture.

    x [N, 2, H, W]: luma, and what the net is told
    luma by places of 2 x 2 (4 channels), told (1) -> 3x3, ReLU -> inner x (3x3, ReLU) -> 3x3 to 4
    -> pixel shuffle -> + luma

(Zhang, Zuo, Zhang 2018, "FFDNet"; that a net says the difference: Zhang and others 2017, "DnCNN".)
Half resolution makes a layer four times cheaper and lets a net see twice as far. Inner kernels
begin as the identity and something small, so that fifteen layers without normalisation learn; the
last begins near 0, so that the net begins as the picture.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional


@dataclass(frozen=True)
class Depth:
    """Channels and inner layers of a net, and the largest learning rate that it stood."""

    channels: int
    inner: int
    rate: float

    @property
    def parameters(self) -> int:
        """Of the net."""
        c = self.channels
        return 45 * c + c + self.inner * (9 * c * c + c) + 36 * c + 4

    @property
    def layers(self) -> str:
        """In words."""
        c = self.channels
        return f"convolutions of 3 x 3: 5 -> {c}, {self.inner} of {c} -> {c}, {c} -> 4"


DEPTHS = {"s": Depth(32, 8, 6e-4), "m": Depth(64, 13, 4e-4)}


class Restorer(nn.Module):
    """The net, as it learns and as it is exported."""

    def __init__(self, depth: Depth) -> None:
        super().__init__()
        widths = [5, *[depth.channels] * (depth.inner + 1), 4]
        self.layers = nn.ModuleList([nn.Conv2d(i, o, 3, padding=1) for i, o in pairwise(widths)])
        with torch.no_grad():
            for number, layer in enumerate(self.layers):
                i, o = widths[number], widths[number + 1]
                last = number + 1 == len(self.layers)
                share = 0.002 if last else 1.0 if number == 0 else 0.3
                layer.weight.normal_(0, share * math.sqrt(2 / (9 * i)))
                layer.bias.zero_()
                if i == o:
                    layer.weight[:, :, 1, 1] += torch.eye(i)

    @property
    def tensors(self) -> list[Tensor]:
        """Kernel and bias of every layer, in their order."""
        return list(self.parameters())

    @torch.no_grad()
    def take(self, tensors: list[Tensor]) -> Restorer:
        """With these tensors."""
        for parameter, tensor in zip(self.parameters(), tensors, strict=True):
            parameter.copy_(tensor)
        self.eval()
        return self

    def forward(self, x: Tensor) -> Tensor:
        """[N, 1, H, W] of [N, 2, H, W], sides even."""
        return run(x, self.tensors)


def planes(x: Tensor) -> Tensor:
    """What the first layer reads: [N, 5, H / 2, W / 2]."""
    return torch.cat([functional.pixel_unshuffle(x[:, :1], 2), x[:, 1:, ::2, ::2]], 1)


def run(x: Tensor, tensors: list[Tensor]) -> Tensor:
    """The net with these kernels and biases, in the type of x; the sum is float32."""
    luma = x[:, :1].float()
    half = x.dtype == torch.float16
    x = planes(x)
    for number, (kernel, bias) in enumerate(zip(tensors[::2], tensors[1::2], strict=True)):
        if half:
            kernel = kernel.to(x.dtype, memory_format=torch.channels_last)
            x = x.contiguous(memory_format=torch.channels_last)
        x = functional.conv2d(x, kernel, bias.to(x.dtype), padding=1)
        x = functional.relu(x) if 2 * number + 2 < len(tensors) else x
    return luma + functional.pixel_shuffle(x, 2).float()
