"""A trained net taught to round as int8 will: `tilewright.pytorch.qat` on ranges that stay.

What values lie between is found once, on crops of the photographs that it learned from: luma has
all codes, 0 to 1, and each value between layers the range whose rounding and cutting cost least.
Channels are of one height by then (`nets.balanced`).

    settle   whole weights stay; the step of each output's weights and its bias learn
    round    weights and biases learn, rounded in every step
    settle   once more

Rounded weights are off by a fraction of a percent in what they sum to, which is a wrong brightness
of flat areas, most of what int8 costs here: of S 0.36 dB, 0.12 after 200 steps of settling. While
weights learn some of them cross from one whole number to the next in every step, so what they are
averaged to is good only once it has settled.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional

from tilewright.pytorch import qat
from train.nets import convolutions
from train.photographs import Crops


@dataclass(frozen=True)
class Stage:
    """Its share of the time and of the learning rate, and whether whole weights stay."""

    share: float
    rate: float
    settles: bool


STAGES = Stage(0.2, 1.0, True), Stage(0.4, 0.1, False), Stage(0.4, 1.0, True)
_SHARES = np.linspace(0.3, 1.0, 71)
_BINS = 4096


@torch.no_grad()
def ranges_on(net: nn.Sequential, x: Tensor) -> dict[str, tuple[float, float]]:
    """Lowest and highest input of each layer by the name of its weights."""
    found = {"0.weight": (0.0, 1.0)}
    names = [name for name, layer in net.named_modules() if isinstance(layer, nn.Conv2d)]
    for name, layer in zip(names[1:], convolutions(net), strict=False):
        x = functional.relu(layer(x))
        found[f"{name}.weight"] = (0.0, _cheapest(x))
    return found


def _cheapest(x: Tensor) -> float:
    """The end from 0 whose rounding and cutting cost least, in squared differences."""
    top = float(x.amax())
    counts = torch.histc(x.float(), _BINS, 0, top).double().cpu().numpy()
    middles = (np.arange(_BINS) + 0.5) * (top / _BINS)
    costs = []
    for share in _SHARES:
        beyond = np.maximum(0, middles - share * top)
        rounding_off = (share * top / 255) ** 2 / 12
        costs.append((counts * np.where(beyond > 0, beyond**2, rounding_off)).sum())
    return float(_SHARES[int(np.argmin(costs))]) * top


def sample(crops: Crops, seed: int) -> Tensor:
    """Halves of 64 crops, [64, 1, size, size]."""
    rows = crops.drawn(np.random.default_rng((seed, 1 << 40)), 1, 64)[0]
    return crops.at(torch.from_numpy(rows).to(crops.device))[0]


class Rounded:
    """Weights and biases of a net that `qat.prepare` made learn."""

    def __init__(self, model: nn.Module) -> None:
        self._model = model
        self.parameters = list(model.parameters())

    def current(self) -> list[Tensor]:
        """The tensors of the plain net."""
        return self.parameters

    def run(self, x: Tensor, tensors: list[Tensor]) -> Tensor:
        """The net, rounded."""
        return self._model(x)


class Settled:
    """Biases of such a net learn, and what its whole weights are multiplied by, not these.

    The largest weight of an output is 127 steps, so that the same whole numbers come of the product
    again.
    """

    def __init__(self, model: nn.Module) -> None:
        self._model = model
        layers = [layer for layer in model.modules() if isinstance(layer, qat.QuantConv2d)]
        self._names = [name for name, _ in model.named_parameters()]
        with torch.no_grad():
            self._weights = [layer.rounded_weight().clone() for layer in layers]
        biases = [layer.bias for layer in layers if layer.bias is not None]
        self._logs = [nn.Parameter(torch.zeros_like(bias)) for bias in biases]
        self._biases = [nn.Parameter(bias.detach().clone()) for bias in biases]
        self.parameters = [*self._logs, *self._biases]

    def current(self) -> list[Tensor]:
        """The tensors of the plain net."""
        found: list[Tensor] = []
        for weight, log, bias in zip(self._weights, self._logs, self._biases, strict=True):
            found += [weight * log.exp()[:, None, None, None], bias]
        return found

    def run(self, x: Tensor, tensors: list[Tensor]) -> Tensor:
        """The net with these tensors, rounded."""
        return functional_call(self._model, dict(zip(self._names, tensors, strict=True)), (x,))
