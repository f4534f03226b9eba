"""An imported network beside the float graph it came from: every layer on its own, then the scores.

Each layer is given the float graph's own values, so that a difference is that layer's doing:
rounding of real weights to half precision, or a 0 that became +1.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tilewright.onebit import reference
from tilewright.onebit.layers import Layer, Value
from tilewright.onebit.network import INPUT, Network

NDArray = npt.NDArray[Any]
# Rounding of float32 against float64, in units of the layer's largest value; more is a difference.
_ROUNDING = 2e-6


@dataclass(frozen=True, slots=True)
class LayerCheck:
    """One layer's values beside the float graph's.

    name, kind  of the layer; elements: how many were compared
    differing   bits that differ, or reals that differ by more than rounding
    zeros       of the differing bits, where the float graph has 0, which no bit can be
    largest     largest absolute difference, and `scale` the largest value
    """

    name: str
    kind: str
    elements: int
    differing: int
    zeros: int
    largest: float
    scale: float


@dataclass(frozen=True, slots=True)
class Report:
    """Every layer's check, and the scores of the whole network beside the graph's."""

    layers: tuple[LayerCheck, ...]
    scores: LayerCheck
    same_class: bool

    @property
    def exact(self) -> bool:
        """Whether no layer differs by more than the rounding of float32."""
        return all(layer.differing == 0 for layer in self.layers)


def check(network: Network, values: Mapping[str, NDArray], x: NDArray) -> Report:
    """Compare with `values` of the float graph for `x`, both as ONNX has them."""
    given = {INPUT: _ours(x, network.values[INPUT])}
    for layer in network.layers:
        if layer.name in values:
            given[layer.name] = _ours(values[layer.name], network.values[layer.name])
    checks = []
    for layer in network.layers:
        inputs = [_input(network, given, name) for name in layer.inputs]
        with np.errstate(over="ignore", invalid="ignore"):  # what overflows counts as differing
            made = reference.apply(layer, *inputs)
        given.setdefault(layer.name, made)
        checks.append(_compare(layer, network.values[layer.name], made, given[layer.name]))
    final = network.run(given[INPUT].astype(np.float32).reshape(-1, *network.input_shape))
    truth = given[network.output].reshape(final.shape)
    last = next(layer for layer in network.layers if layer.name == network.output)
    scores = _compare(last, network.values[network.output], final, truth)
    same = np.array_equal(final.argmax(axis=-1), truth.argmax(axis=-1))
    return Report(tuple(checks), scores, bool(same))


def _input(network: Network, given: Mapping[str, NDArray], name: str) -> NDArray:
    """A layer's input: reals in float32, signs as we define them for 0."""
    array = given[name]
    if network.values[name].kind == "bits":
        return np.where(array >= 0, np.int8(1), np.int8(-1))
    with np.errstate(over="ignore"):
        return array.astype(np.float32)


def _ours(array: NDArray, value: Value) -> NDArray:
    """[N, C, H, W] or [N, features] as [N, H, W, C]; a flattened image in our order."""
    if array.ndim == 4:
        array = array.transpose(0, 2, 3, 1)
    return np.ascontiguousarray(array).reshape(-1, value.height, value.width, value.channels)


def _compare(layer: Layer, value: Value, made: NDArray, truth: NDArray) -> LayerCheck:
    difference = np.abs(made.astype(np.float64) - truth)
    scale = float(np.abs(truth).max(initial=0.0))
    limit = 0.0 if value.kind == "bits" else _ROUNDING * scale
    return LayerCheck(
        name=layer.name,
        kind=type(layer).__name__,
        elements=difference.size,
        differing=int((~(difference <= limit)).sum()),  # NaN too
        zeros=int((truth == 0).sum()) if value.kind == "bits" else 0,
        largest=float(difference.max(initial=0.0)),
        scale=scale,
    )
