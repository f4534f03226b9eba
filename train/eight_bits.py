"""A trained net taught to round as int8 will: `tilewright.pytorch.qat` on ranges that stay.

What values lie between is found once, on crops of the photographs that it learned from: luma has
all codes, 0 to 1, and each value between layers the range whose rounding and cutting cost least.
Channels are of one height by then (`nets.balanced`). Only weights and biases learn.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from train.nets import convolutions
from train.photographs import Crops

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
