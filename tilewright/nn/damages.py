"""How far a network's values are from another's of the same graph: what quantisation costs."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from tilewright.arrays.array import NDArray
from tilewright.nn import evaluate
from tilewright.nn.infer import operator_of
from tilewright.nn.net import Network
from tilewright.nn.passes.retyped import of_float32
from tilewright.nn.ranges import inputs_of

_LAYERS = ("Conv", "ConvTranspose", "Gemm", "MatMul")


@dataclass(frozen=True, slots=True)
class Damage:
    """How much of two networks' values is the same, in decibels; infinite where all of it is.

    layers  of each layer's result by its name, the power of the first network's values over that of
            the difference
    psnr    of all outputs: the largest absolute value, squared, over the mean squared difference
    """

    layers: tuple[tuple[str, float], ...]
    psnr: float

    def table(self) -> str:
        """A line for each layer, the worst first, and one for the outputs."""
        width = max((len(name) for name, _ in self.layers), default=0)
        rows = sorted(self.layers, key=lambda row: row[1])
        lines = [f"{name:{width}}  {decibels:7.2f} dB" for name, decibels in rows]
        return "\n".join([*lines, f"PSNR of the outputs: {self.psnr:.2f} dB"])


def damage(net: Network, other: Network, samples: Any) -> Damage:
    """What `other`, quantised from `net` say, gives otherwise on samples.

    Both are run by their definitions. samples: as `quantise` takes them. Raises ArgumentError.
    """
    net, other = (Network(of_float32(one.graph), one.title) for one in (net, other))
    there = set(other.graph.names())
    layers = [
        (node.name or node.outputs[0], node.outputs[0])
        for node in net.graph.nodes
        if node.operator in _LAYERS and node.outputs[0] in there
    ]
    names = list(dict.fromkeys([*(value for _, value in layers), *net.outputs]))
    power, error, count = (dict.fromkeys(names, 0.0) for _ in range(3))
    largest = 0.0
    for given in inputs_of(net, samples):
        one, two = (evaluate.run(n.graph, operator_of, n.types, given, names) for n in (net, other))
        for name in names:
            a, b = _wide(one[name]), _wide(two[name])
            power[name] += float((a * a).sum())
            error[name] += float(((a - b) ** 2).sum())
            count[name] += a.size
        largest = max(largest, *(float(np.abs(one[n]).max(initial=0)) for n in net.outputs))
    mean = sum(error[n] for n in net.outputs) / max(1.0, sum(count[n] for n in net.outputs))
    return Damage(
        tuple((label, _decibels(power[value], error[value])) for label, value in layers),
        _decibels(largest**2, mean),
    )


def _wide(value: NDArray) -> NDArray:
    return np.asarray(value, np.float64)


def _decibels(signal: float, noise: float) -> float:
    return 10 * math.log10(signal / noise) if signal > 0 and noise > 0 else math.inf
