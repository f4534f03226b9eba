"""Plain nets of 3x3 convolutions that enlarge luma twice, and the wider ones that they learn as.

    x [N, 1, H, W] -> 3x3, ReLU -> inner x (3x3, ReLU) -> 3x3 to 4 channels -> pixel shuffle

While it learns a kernel is a sum of branches, all of them linear, so that it stays one kernel:

    3x3  +  3x3 after 1x1 to twice the channels  +  three fixed edge filters, weighted  +  identity

(Ding and others 2021, "RepVGG"; Zhang, Zeng, Zhang 2021, "Edge-oriented convolution block".) The
kernels are summed before they are used: a step costs the plain net. Layers of one shape keep their
branches in one tensor, since the sums of small kernels one by one took as long as the convolutions.

The first channel of every value is the picture itself, unchanged (`anchored`): ReLU lets it pass,
as luma is not negative, and the last layer enlarges it. The other channels read nothing of it but
differences between neighbours, so that a brighter picture gives the same, brighter: in int8 flat
areas cost nothing, since what is carried keeps its code and what is added is small. A net begins as
the picture with every pixel four times.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional

_EDGES = (
    ((1, 0, -1), (2, 0, -2), (1, 0, -1)),
    ((1, 2, 1), (0, 0, 0), (-1, -2, -1)),
    ((0, 1, 0), (1, -4, 1), (0, 1, 0)),
)


_SILENT = 0.05  # of the loudest channel
_SHARES = torch.linspace(0.02, 1.0, 99)
_DRAWN = 20_000  # values of a channel that say where it ends


@dataclass(frozen=True)
class Size:
    """Channels between layers, layers that keep them, and the largest learning rate."""

    channels: int
    inner: int
    rate: float

    @property
    def parameters(self) -> int:
        """Weights and biases of the plain net."""
        c = self.channels
        return 9 * c + c + self.inner * (9 * c * c + c) + 36 * c + 4

    @property
    def layers(self) -> str:
        """In words."""
        c = self.channels
        return f"Convolutions of 3 x 3: 1 -> {c}, {self.inner} of {c} -> {c}, {c} -> 4;"


SIZES = {"s": Size(16, 3, 1e-3), "m": Size(32, 4, 6e-4), "l": Size(64, 4, 4e-4)}


def plain(size: Size) -> nn.Sequential:
    """The net as it is exported; names of its weights are 0.weight, 2.weight, ..."""
    widths = [1, *[size.channels] * (size.inner + 1)]
    layers: list[nn.Module] = []
    for i, o in pairwise(widths):
        layers += [nn.Conv2d(i, o, 3, padding=1), nn.ReLU()]
    return nn.Sequential(*layers, nn.Conv2d(widths[-1], 4, 3, padding=1), nn.PixelShuffle(2))


def plain_of(size: Size, tensors: list[Tensor]) -> nn.Sequential:
    """The net of a size with these tensors."""
    net = plain(size)
    with torch.no_grad():
        for parameter, tensor in zip(net.parameters(), tensors, strict=True):
            parameter.copy_(tensor)
    return net.eval()


def anchored(tensors: list[Tensor]) -> list[Tensor]:
    """Kernels and biases of a plain net, their first channel the picture itself.

    What is left of them is the nearest such net in squared differences; gradients pass.
    """
    found: list[Tensor] = []
    for number, (kernel, bias) in enumerate(zip(tensors[::2], tensors[1::2], strict=True)):
        last = 2 * number + 2 == len(tensors)
        read = kernel[:, :1] - kernel[:, :1].mean((2, 3), keepdim=True) + last / 9
        kernel = torch.cat([read, kernel[:, 1:]], 1)
        if not last:
            carried = torch.zeros_like(kernel[:1])
            carried[0, 0, 1, 1].fill_(1)
            kernel = torch.cat([carried, kernel[1:]])
            bias = torch.cat([torch.zeros_like(bias[:1]), bias[1:]])
        found += [kernel, bias]
    return found


def convolutions(net: nn.Module) -> list[nn.Conv2d]:
    """The convolutions of a plain net in their order."""
    return [layer for layer in net.modules() if isinstance(layer, nn.Conv2d)]


class _Kernels(nn.Module):
    """The branches of some layers of one shape: kernels [layers, out, in, 3, 3]."""

    def __init__(self, layers: int, i: int, o: int, identity: Tensor, share: float) -> None:
        super().__init__()
        m = 2 * max(i, o)

        def drawn(*shape: int, deviation: float) -> nn.Parameter:
            return nn.Parameter(torch.randn(layers, *shape) * deviation)

        self.straight = drawn(o, i, 3, 3, deviation=share * 0.7 / math.sqrt(9 * i))
        self.first = drawn(m, i, deviation=1 / math.sqrt(i))
        self.then = drawn(o, m, 3, 3, deviation=share * 0.5 / math.sqrt(9 * m))
        self.edges = drawn(3, o, i, deviation=share * 0.1 / math.sqrt(i))
        self.bias = nn.Parameter(torch.zeros(layers, o))
        self.register_buffer("filters", torch.tensor(_EDGES, dtype=torch.float32))
        self.register_buffer("identity", functional.pad(identity[:, :, None, None], (1, 1, 1, 1)))

    def forward(self) -> tuple[Tensor, Tensor]:
        """Kernels and biases of the layers."""
        long = torch.einsum("lomhw,lmi->loihw", self.then, self.first)
        edges = torch.einsum("lqoi,qhw->loihw", self.edges, self.filters)
        return self.straight + long + edges + self.identity, self.bias


class Branched(nn.Module):
    """The net while it learns; `collapsed()` gives the tensors of the plain one in its order."""

    def __init__(self, size: Size) -> None:
        super().__init__()
        c = size.channels
        first = torch.eye(1, c).T
        self.groups = nn.ModuleList(
            [
                _Kernels(1, 1, c, first, 1.0),
                _Kernels(size.inner, c, c, torch.eye(c), 0.5),
                _Kernels(1, c, 4, first.T.expand(4, c), 0.2),
            ]
        )

    def collapsed(self) -> list[Tensor]:
        """Kernel and bias of every layer: what `plain(size).parameters()` are."""
        found = []
        for group in self.groups:
            kernels, biases = group()
            for kernel, bias in zip(kernels.unbind(0), biases.unbind(0), strict=True):
                found += [kernel, bias]
        return anchored(found)

    def run(self, x: Tensor, tensors: list[Tensor]) -> Tensor:
        """The net with collapsed kernels, in the type of x."""
        layers = list(zip(tensors[::2], tensors[1::2], strict=True))
        for number, (kernel, bias) in enumerate(layers):
            if x.dtype == torch.float16:
                kernel = kernel.to(x.dtype, memory_format=torch.channels_last)
            x = functional.conv2d(x, kernel, bias.to(x.dtype), padding=1)
            x = functional.relu(x) if number + 1 < len(layers) else x
        return functional.pixel_shuffle(x, 2)

    @torch.no_grad()
    def begin_as(self, tensors: list[Tensor]) -> None:
        """Take up the kernels of a plain net: the 3x3 branch makes up what the others lack."""
        rest = list(tensors)
        for group in self.groups:
            kernels, biases = group()
            for layer in range(len(kernels)):
                group.straight[layer] += rest.pop(0).to(kernels) - kernels[layer]
                biases[layer].copy_(rest.pop(0))


@torch.no_grad()
def balanced(net: nn.Sequential, x: Tensor) -> None:
    """Scale the channels between layers so that 1 is each one's best end on x, as int8 rounds them.

    ReLU passes factors on, so that a channel may be scaled in one layer and back in the next
    (Nagel and others 2019, "Data-free quantization"). One scale for all channels of a value, as
    int8 has it, then fits every channel; the carried one has it already. Channels that are next to
    silent on x stay so: made loud, float16 had infinities.
    """
    layers = convolutions(net)
    for layer, following in pairwise(layers):
        x = functional.relu(layer(x))
        ends = torch.stack([cheapest(channel) for channel in x.unbind(1)])
        ends = torch.where(ends > _SILENT * ends[1:].max(), ends, ends[1:].max())
        ends[0] = 1
        layer.weight /= ends[:, None, None, None]
        layer.bias /= ends
        following.weight *= ends[None, :, None, None]
        x = x / ends[:, None, None]


def cheapest(x: Tensor) -> Tensor:
    """The end from 0 whose rounding to eight bits and cutting cost least, in squared differences.

    Values that are all alike most of the time are flat areas, whose rounding a bias makes up for:
    it is the others that count.
    """
    values = x.flatten().double()
    ends = values.max() * _SHARES.to(values)
    beyond = (values[None, :: max(1, len(values) // _DRAWN)] - ends[:, None]).clamp(min=0)
    costs = beyond.square().mean(1) + (ends / 255) ** 2 / 12
    return ends[costs.argmin()].to(x)
