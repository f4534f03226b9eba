"""A trained net taught to round as int8 will: `tilewright.pytorch.qat` on ranges that stay.

All values have the codes of luma, 0 to 1 in 255 steps, so that the channel that carries the picture
(`nets.anchored`) keeps its codes through all layers. Whole weights that read it are rounded such
that their sum stays: 0, or 1 in the last layer. So int8 too gives of a brighter picture the same,
brighter, and flat areas cost nothing.

    round    weights, biases and what each channel is multiplied by learn, rounded in every step
    settle   whole weights stay; the step of each output's weights and its bias learn

While weights learn some of them cross from one whole number to the next in every step, so what they
are averaged to is good only once it has settled.

What a channel is multiplied by before it is rounded is divided out after: its gradient is what is
lost by rounding and by cutting (Esser and others 2020, "Learned step size quantization").
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call

from tilewright.pytorch import qat
from train.nets import Size, anchored, plain_of
from train.photographs import Crops


@dataclass(frozen=True)
class Stage:
    """Its share of the time and of the learning rate, and whether whole weights stay."""

    share: float
    rate: float
    settles: bool


STAGES = Stage(0.7, 0.5, False), Stage(0.3, 0.5, True)


def ranges_of(net: nn.Module) -> dict[str, tuple[float, float]]:
    """What every layer reads lies between, by the name of its weights."""
    names = [name for name, layer in net.named_modules() if isinstance(layer, nn.Conv2d)]
    return {f"{name}.weight": (0.0, 1.0) for name in names}


def whole(tensors: list[Tensor]) -> list[Tensor]:
    """Kernels of an anchored net as int8 has them, biases as they are; gradients pass."""
    return [_whole(one) if one.ndim == 4 else one for one in tensors]


def _whole(kernel: Tensor) -> Tensor:
    """Rounded to steps of a 127th of each output's largest, but for what sums must be.

    Those nine of the carried channel that were rounded furthest go to their other neighbour. Where
    they sum to 1, that is a step.
    """
    with torch.no_grad():
        steps = kernel.flatten(1).abs().amax(1).clamp(min=1e-12) / 127
        shares = kernel / steps[:, None, None, None]
        found = shares.round()
        read = shares[:, 0].flatten(1)
        wished = read.sum(1).round()
        over = found[:, 0].flatten(1).sum(1) - wished
        off = (found[:, 0].flatten(1) - read) * over.sign()[:, None]
        rank = off.argsort(1, descending=True).argsort(1)
        moved = torch.where(rank < over.abs()[:, None], over.sign()[:, None], 0.0)
        found[:, 0] -= moved.reshape(found[:, 0].shape)
        steps = torch.where(wished > 0, 1 / wished.clamp(min=1), steps)
        rounded = found * steps[:, None, None, None]
    return kernel + (rounded - kernel).detach()


def rounding(size: Size, tensors: list[Tensor]) -> nn.Module:
    """The net of a size as int8 has it: its bits in evaluation."""
    net = plain_of(size, whole(tensors))
    return qat.prepare(net, ranges_of(net)).eval()


def sample(crops: Crops, seed: int) -> Tensor:
    """Halves of 64 crops, [64, 1, size, size]."""
    rows = crops.drawn(np.random.default_rng((seed, 1 << 40)), 1, 64)[0]
    return crops.at(torch.from_numpy(rows).to(crops.device))[0]


class Rounded:
    """Weights, biases and what channels are multiplied by, of a net that `qat.prepare` made."""

    def __init__(self, model: nn.Module) -> None:
        self._model = model
        self._names = [name for name, _ in model.named_parameters()]
        self._tensors = [nn.Parameter(one.detach().clone()) for one in model.parameters()]
        self._logs = [nn.Parameter(torch.zeros_like(one[1:])) for one in self._tensors[1:-1:2]]
        self.parameters = [*self._tensors, *self._logs]

    def current(self) -> list[Tensor]:
        """The tensors of the plain net."""
        found = list(self._tensors)
        for number, log in enumerate(self._logs):
            factors = torch.cat([torch.ones_like(log[:1]), log.exp()])
            at = 2 * number
            found[at] = found[at] * factors[:, None, None, None]
            found[at + 1] = found[at + 1] * factors
            found[at + 2] = found[at + 2] / factors[None, :, None, None]
        return anchored(found)

    def run(self, x: Tensor, tensors: list[Tensor]) -> Tensor:
        """The net with these tensors, rounded."""
        given = dict(zip(self._names, whole(tensors), strict=True))
        return functional_call(self._model, given, (x,))


class Settled:
    """Biases of such a net learn, and what its whole weights are multiplied by, not these.

    The largest weight of an output is 127 steps, so that the same whole numbers come of the product
    again. What is carried stays, and what the last layer enlarges it by.
    """

    def __init__(self, model: nn.Module) -> None:
        self._model = model
        self._names = [name for name, _ in model.named_parameters()]
        tensors = whole([one.detach() for one in model.parameters()])
        self._weights, biases = tensors[::2], tensors[1::2]
        self._logs = [nn.Parameter(torch.zeros_like(bias[1:])) for bias in biases[:-1]]
        self._biases = [nn.Parameter(bias[1:].clone()) for bias in biases[:-1]]
        self._last = nn.Parameter(biases[-1].clone())
        self.parameters = [*self._logs, *self._biases, self._last]

    def current(self) -> list[Tensor]:
        """The tensors of the plain net."""
        found: list[Tensor] = []
        for weight, log, bias in zip(self._weights, self._logs, self._biases, strict=False):
            nothing = torch.zeros_like(bias[:1])
            factors = torch.cat([nothing, log]).exp()
            found += [weight * factors[:, None, None, None], torch.cat([nothing, bias])]
        return [*found, self._weights[-1], self._last]

    def run(self, x: Tensor, tensors: list[Tensor]) -> Tensor:
        """The net with these tensors, rounded."""
        return functional_call(self._model, dict(zip(self._names, tensors, strict=True)), (x,))
