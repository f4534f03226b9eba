"""What the stage for dark films knows, learned from photographs: `python -m train.low_light`.

Two things, both from photographs that are darkened here, y = k x**g plus noise, in eight bits:

shrink  the expected clean value where the mean, the value and the mean of 3 x 3 lie so far apart
        (in deviations of noise): counted, weighed by what an error there costs after the curve
curve   a regression of 16 hidden units from traits of the picture to an exponent and a gain

Errors of the curve are counted over a histogram, so that a picture is some hundred numbers, and a
step takes a millisecond: 5 minutes in all on one core.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from tilewright.video.analysis.light import COUNT, traits
from tilewright.video.analysis.noise import noise
from tilewright.video.analysis.small import boxed
from tilewright.video.stages.low_light import APART, KNOTS, NEAR, RADIUS
from train.photographs import files_of, luma_of

NDArray = npt.NDArray[Any]
LEVELS, COUNTS, DEPTHS = 8, 25, 9  # of mean / noise (0.5, 1 .. 64), value and near mean
_BINS, _HIDDEN = 512, 16


@dataclass(frozen=True)
class Dark:
    """A photograph (0 to 1) and what was left of it (0 to 255, whole), and how."""

    clean: NDArray
    dark: NDArray
    exponent: float
    gain: float


def darkened(clean: NDArray, exponent: float, gain: float, deviation: float, seed: int) -> Dark:
    """Gain times a power of a picture of 0 to 1, with noise of that deviation (of 255)."""
    chance = np.random.default_rng(seed)
    made = 255 * gain * clean**exponent + chance.normal(0, deviation, clean.shape)
    return Dark(clean, np.rint(made).clip(0, 255), exponent, gain)


def drawn(folder: Path, each: int, seed: int) -> list[Dark]:
    """Parts of photographs, darkened: exponents 2 to 3.5, gains 0.5 to 1, noise 0.5 to 6."""
    chance = np.random.default_rng(seed)
    found = []
    for number, path in enumerate(files_of(folder)):
        clean = (luma_of(path) - 16) / 219
        for turn in range(each):
            sides = [int(length * chance.uniform(0.5, 1)) for length in clean.shape]
            top, left = (
                int(chance.integers(whole - side + 1))
                for whole, side in zip(clean.shape, sides, strict=True)
            )
            part = clean[top : top + sides[0], left : left + sides[1]].clip(0, 1)
            deviation = float(np.exp(chance.uniform(np.log(0.5), np.log(6))))
            how = float(chance.uniform(2, 3.5)), float(chance.uniform(0.5, 1)), deviation
            found.append(darkened(part, *how, seed=seed + each * number + turn))
    return found


def places(dark: NDArray, deviation: float) -> tuple[NDArray, NDArray, NDArray]:
    """The mean that a value takes along with it, and where in the table it is, as places."""
    mean = boxed(dark, RADIUS)
    apart = (dark - mean) / deviation
    held = apart.clip(-APART, APART)
    middle = mean + (apart - held) * deviation
    near = ((boxed(dark, 1) - mean) / deviation).clip(-NEAR, NEAR)
    level = np.log2((middle / deviation).clip(0.5, 64)) + 1
    at = (held / APART + 1) / 2 * (COUNTS - 1), (near / NEAR + 1) / 2 * (DEPTHS - 1)
    return middle, level, np.stack(at)


def counted(pictures: list[Dark]) -> NDArray:
    """The table `shrink`, [LEVELS, COUNTS, DEPTHS], in deviations of noise."""
    shape = (LEVELS, COUNTS, DEPTHS)
    total, weights = np.zeros(shape), np.full(shape, 1e-9)
    for one in pictures:
        deviation = noise(one.dark)
        middle, level, (apart, near) = places(one.dark, deviation)
        wanted = (255 * one.gain * one.clean**one.exponent - middle) / deviation
        slope = one.exponent * one.gain * np.maximum(one.clean, 0.03) ** (one.exponent - 1)
        weight = np.minimum(1 / slope, 20) ** 2
        index = [np.rint(place).astype(int).ravel() for place in (level, apart, near)]
        cells = np.ravel_multi_index(index, shape)
        size = total.size
        total += np.bincount(cells, (weight * wanted).ravel(), size).reshape(shape)
        weights += np.bincount(cells, weight.ravel(), size).reshape(shape)
    apart = np.linspace(-APART, APART, COUNTS)[:, None]
    near = np.linspace(-NEAR, NEAR, DEPTHS)[None]
    rare = 1e-6 * weights.sum()  # where little was counted, half-way
    found = (total + rare * (apart + near) / 2) / (weights + rare)
    return np.maximum.accumulate(found, axis=1)


def shrunken(dark: NDArray, deviation: float, shrink: NDArray) -> NDArray:
    """A picture through the table, nearest places."""
    middle, level, (apart, near) = places(dark, deviation)
    index = tuple(np.rint(place).astype(int) for place in (level, apart, near))
    return np.asarray(middle + deviation * shrink[index])


@dataclass(frozen=True)
class Counts:
    """Pictures as the regression sees them, a row each: traits; how often light lies in each bin,
    the clean light there, and the squared error that is left when that is known."""

    traits: Tensor
    shares: Tensor
    wanted: Tensor
    rest: Tensor


def counts(pictures: list[Dark], shrink: NDArray) -> Counts:
    """What a curve is judged by."""
    rows = [_row(one, shrink) for one in pictures]
    columns = (torch.from_numpy(np.asarray(c, np.float32)) for c in zip(*rows, strict=True))
    return Counts(*columns)


def _row(one: Dark, shrink: NDArray) -> tuple[Any, ...]:
    deviation = noise(one.dark)
    light = shrunken(one.dark, deviation, shrink).clip(0, 255) / 255
    bins = np.rint(np.sqrt(light) * (_BINS - 1)).astype(int).ravel()
    often = np.bincount(bins, minlength=_BINS)
    sums = np.bincount(bins, one.clean.ravel(), _BINS)
    wanted = sums / np.maximum(often, 1)
    rest = ((one.clean**2).sum() - (sums * wanted).sum()) / one.clean.size
    return traits(one.dark, deviation), often / one.clean.size, wanted, rest


class Curve(nn.Module):
    """From traits to light at every bin."""

    def __init__(self, mean: Tensor, deviation: Tensor) -> None:
        super().__init__()
        self.mean, self.deviation = mean, deviation
        self.first, self.second = nn.Linear(COUNT, _HIDDEN), nn.Linear(_HIDDEN, 2)
        with torch.no_grad():
            self.second.weight.mul_(0.1)
            self.second.bias.zero_()
        self.rest = nn.Parameter(torch.zeros(KNOTS))

    def forward(self, x: Tensor) -> Tensor:
        """[batch, COUNT] to [batch, bins]."""
        made = self.second(torch.tanh(self.first((x - self.mean) / self.deviation)))
        knots = torch.log(torch.linspace(0, 1, KNOTS) ** 2 + 1e-3)
        power = 0.38 * torch.exp(0.3 * torch.tanh(made[:, :1]))
        light = torch.exp(power * knots + 0.13 + 0.3 * torch.tanh(made[:, 1:])) + self.rest
        spread = torch.nn.functional.interpolate(
            light[:, None], _BINS, mode="linear", align_corners=True
        )
        return spread[:, 0].clamp(0, 1)


def errors(curve: Tensor, seen: Counts, rows: Any = slice(None)) -> Tensor:
    """Mean squared errors, a picture each."""
    apart = (curve - seen.wanted[rows]) ** 2
    return (apart * seen.shares[rows]).sum(1) + seen.rest[rows]


def trained(seen: Counts, epochs: int, seed: int) -> Curve:
    """The regression: least mean logarithm of errors, traits shaken by a third of their spread."""
    torch.manual_seed(seed)
    spread = seen.traits.std(0) + 1e-3
    net = Curve(seen.traits.mean(0), spread)
    batch, count = 256, len(seen.traits)
    steps = epochs * (count // batch)
    rule = torch.optim.AdamW(net.parameters(), 3e-3, weight_decay=0.1)
    rates = torch.optim.lr_scheduler.OneCycleLR(rule, 3e-3, total_steps=steps)
    for _ in range(epochs):
        order = torch.randperm(count)[: count // batch * batch]
        for rows in order.split(batch):
            shaken = seen.traits[rows] + 0.3 * spread * torch.randn(batch, COUNT)
            loss = errors(net(shaken), seen, rows).log().mean()
            rule.zero_grad()
            loss.backward()
            rule.step()
            rates.step()
    return net


def written(path: Path, shrink: NDArray, net: Curve) -> None:
    """As the stage reads it."""
    parts = {"w1": net.first.weight.T, "b1": net.first.bias, "w2": net.second.weight.T,
             "b2": net.second.bias, "rest": net.rest, "mean": net.mean,
             "deviation": net.deviation}  # fmt: skip
    arrays = {name: one.detach().numpy().astype(np.float32) for name, one in parts.items()}
    np.savez_compressed(path, shrink=shrink.astype(np.float32), **arrays)


def main() -> None:
    """Learn, and write the file."""
    parser = argparse.ArgumentParser(
        prog="python -m train.low_light", description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.add_argument("photographs", type=Path, help="a folder of them")
    parser.add_argument("out", type=Path, help="low_light.npz")
    parser.add_argument("--each", type=int, default=20, help="times that each is darkened")
    parser.add_argument("--epochs", type=int, default=20)
    options = parser.parse_args()
    torch.set_num_threads(1)
    pictures = drawn(options.photographs, options.each, seed=7)
    shrink = counted(pictures[::8])
    seen = counts(pictures, shrink)
    net = trained(seen, options.epochs, seed=0)
    with torch.no_grad():
        reached = -10 * errors(net(seen.traits), seen).log10().mean()
    written(options.out, shrink, net)
    print(f"{len(pictures)} pictures, {reached:.2f} dB on them; wrote {options.out}")


if __name__ == "__main__":
    main()
