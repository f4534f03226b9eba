"""Chooses a type for each layer: what engines predict it saves beside what it costs by measure.

    every layer alone in int8 and float16 -> error of the outputs
    the network planned in each type      -> seconds of its layers
    best bargains first, while the sum of errors is allowed -> measured together, the worst given
    back until so -> planned: the mix, or one type for all where that is predicted to be faster

Errors of layers add up as squares do, about; the network that comes of it is measured as a whole.
Layers of one type run as chains, so that a mix may be slower than its parts: hence the last step.
Where no engine takes a layer in float32, its seconds are least times at the device's ceilings.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tilewright.arrays.array import NDArray
from tilewright.errors import ArgumentError
from tilewright.facts.ceilings import Ceilings
from tilewright.facts.device import Device
from tilewright.nn import evaluate
from tilewright.nn.infer import operator_of
from tilewright.nn.net import Network
from tilewright.nn.passes.halves import halved
from tilewright.nn.passes.norms import without_norms
from tilewright.nn.passes.retyped import of_float32
from tilewright.nn.places import device_of
from tilewright.nn.profile import Row
from tilewright.nn.quantising import layers_of, quantise
from tilewright.nn.ranges import Range, inputs_of, ranges_of

_BITS = {"float32": 32, "float16": 16, "int8": 8}
TYPES = tuple(_BITS)


@dataclass(frozen=True, slots=True)
class LayerTypes:
    """A layer: the type chosen, and for each type the error of the outputs and the seconds.

    errors are of the network with this layer alone in that type: the root of the mean squared
    difference of its outputs over that of the outputs themselves. seconds are what engines predict
    where all layers have that type, infinite where none takes it; for the types in `shares` a chain
    is predicted as a whole, and this is the layer's part of it by operations.
    """

    name: str
    chosen: str
    errors: Mapping[str, float]
    seconds: Mapping[str, float]
    shares: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, eq=False)
class Types:
    """A network of mixed types, why each layer has its own, and the error of all together.

    seconds  predicted of float32 and of what was chosen
    """

    network: Network
    layers: tuple[LayerTypes, ...]
    error: float
    seconds: tuple[float, float]

    def table(self) -> str:
        """A line for each layer in the network's order, then the whole network's times."""
        unit, scale, digits = ("ms", 1e3, 3) if max(self.seconds) >= 1e-3 else ("µs", 1e6, 1)

        def shown(layer: LayerTypes, kind: str) -> str:
            mark = "~" if kind in layer.shares else ""
            return f"{mark}{layer.seconds[kind] * scale:.{digits}f}".rjust(10)

        width = max([5, *(len(layer.name) for layer in self.layers)])
        head = "".join(f"{f'error {kind}':>15}{unit:>10}" for kind in TYPES[1:])
        lines = [f"{'layer':{width}}  {'type':7}{unit:>10}{head}"]
        for layer in self.layers:
            others = "".join(
                f"{layer.errors[kind]:15.2e}{shown(layer, kind)}" for kind in TYPES[1:]
            )
            lines.append(f"{layer.name:{width}}  {layer.chosen:7}{shown(layer, TYPES[0])}{others}")
        before, after = (f"{one * scale:.{digits}f}" for one in self.seconds)
        lines.append(f"predicted {before} -> {after} {unit}, error {self.error:.2e}")
        if any(layer.shares for layer in self.layers):
            lines.append("~ a share, by operations, of what is predicted of a chain of layers")
        return "\n".join(lines)


def choose_types(
    net: Network,
    samples: Any,
    *,
    loss: float = 0.01,
    shape: Any = None,
    device: Device | str = "auto",
    method: str = "squares",
) -> Types:
    """float32, float16 or int8 for every convolution and dense layer of a network.

    Every layer is tried in every type on all samples by the operators' definitions, so that few
    and small samples are enough, and better. A file of halves becomes one of float32 first, inputs
    and outputs too.

    Args:
        samples: as `quantise` takes them.
        loss: error of the outputs that is allowed: the root of the mean squared difference over
            that of the outputs; 0.01 is 40 dB.
        shape: sizes that times are predicted for, as of `bind`; by default those of a sample.
        device: whose engines are asked for times. Layers that none takes go by its ceilings
            (`tilewright peak` measures them), or by the bits of a type.
        method: of `quantise`.

    Raises ArgumentError, ShapeError.
    """
    if not isinstance(loss, int | float) or not 0 < loss < math.inf:
        raise ArgumentError(f"loss={loss!r}: accepted are numbers above 0")
    chosen_device = device_of(device, net.graph)
    source = Network(without_norms(of_float32(net.graph)), net.title)
    given = inputs_of(source, samples)
    trial = _Trial(source, given, method)
    sizes = shape if shape is not None else {n: array.shape for n, array in given[0].items()}
    rows = {row.name: row for row in source.profile(sizes)}
    times = _Times(trial, rows, sizes, chosen_device)
    seconds = {name: times.of(name) for name in trial.names}
    errors = {
        name: {"float32": 0.0, **{kind: trial.error({name: kind}) for kind in TYPES[1:]}}
        for name in trial.names
    }
    kinds = picked(errors, seconds, loss)
    while trial.error(kinds) > loss and kinds:
        del kinds[max(kinds, key=lambda name: errors[name][kinds[name]])]
    kinds = times.fastest(kinds, loss)
    layers = tuple(
        LayerTypes(
            name, kinds.get(name, "float32"), errors[name], seconds[name], times.shares(name)
        )
        for name in trial.names
    )
    both = times.whole({}), times.whole(kinds)
    return Types(trial.network(kinds), layers, trial.error(kinds), both)


def picked(
    errors: Mapping[str, Mapping[str, float]],
    seconds: Mapping[str, Mapping[str, float]],
    loss: float,
) -> dict[str, str]:
    """Layers that leave float32, and for what: the most seconds saved for their error first."""
    bargains = []
    for name, by_kind in errors.items():
        for kind in TYPES[1:]:
            saved = seconds[name]["float32"] - seconds[name][kind]
            if saved > 0:
                bargains.append((saved / max(by_kind[kind] ** 2, 1e-30), name, kind))
    found: dict[str, str] = {}
    for _, name, kind in sorted(bargains, reverse=True):
        tried = {**found, name: kind}
        if name in found and seconds[name][found[name]] <= seconds[name][kind]:
            continue
        if sum(errors[n][k] ** 2 for n, k in tried.items()) <= loss**2:
            found = tried
    return found


class _Trial:
    """The network with some layers in other types, and how far its outputs are from float32's."""

    def __init__(self, net: Network, given: Sequence[Mapping[str, NDArray]], method: str) -> None:
        self._net, self._given, self._method = net, given, method
        layers = layers_of(net)
        self.names = [node.name for node in layers]
        values = list(dict.fromkeys(node.inputs[0] for node in layers))
        self._ranges: dict[str, Range] = ranges_of(net, values, given, method, 99.99)
        self._wanted = [self._outputs(net, one) for one in given]

    def network(self, kinds: Mapping[str, str]) -> Network:
        """The network with layers by name in these types, the others in float32."""
        kept = [name for name in self.names if kinds.get(name) != "int8"]
        made = quantise(self._net, method=self._method, keep=kept, ranges=self._ranges)
        halves = [name for name, kind in kinds.items() if kind == "float16"]
        return Network(halved(made.graph, halves), self._net.title)

    def error(self, kinds: Mapping[str, str]) -> float:
        """The root of the mean squared difference of all outputs over that of the outputs."""
        net = self.network(kinds)
        power = noise = 0.0
        for given, wanted in zip(self._given, self._wanted, strict=True):
            for one, right in zip(self._outputs(net, given), wanted, strict=True):
                power += float((right * right).sum())
                noise += float(((one - right) ** 2).sum())
        return math.sqrt(noise / power) if power else math.sqrt(noise)

    def _outputs(self, net: Network, given: Mapping[str, NDArray]) -> list[NDArray]:
        found = evaluate.run(net.graph, operator_of, net.types, given)
        return [np.asarray(found[name], np.float64) for name in net.outputs]


class _Times:
    """What layers and networks take, asked of the engines of a device."""

    def __init__(self, trial: _Trial, rows: Mapping[str, Row], shape: Any, device: Device) -> None:
        self._trial, self._rows, self._shape, self._device = trial, rows, shape, device
        asked = {
            kind: self._by_layer(dict.fromkeys(trial.names, kind) if kind != "float32" else {})
            for kind in TYPES
        }
        self._alike = {kind: found for kind, (found, _) in asked.items()}
        self._shared = {kind: shared for kind, (_, shared) in asked.items()}

    def of(self, name: str) -> dict[str, float]:
        """Seconds of a layer in each type, all others in the same."""
        if name not in self._alike["float32"]:
            return _least(self._rows[name], self._device.ceilings)
        return {kind: known.get(name, math.inf) for kind, known in self._alike.items()}

    def shares(self, name: str) -> frozenset[str]:
        """The types in which a layer is part of a chain that is predicted as a whole."""
        return frozenset(kind for kind, names in self._shared.items() if name in names)

    def whole(self, kinds: Mapping[str, str]) -> float:
        """Seconds of all layers, those in these types and the others in float32."""
        known, _ = self._by_layer(kinds)
        return sum(
            known[name] if name in known else self._missing(name, kinds.get(name, "float32"))
            for name in self._trial.names
        )

    def fastest(self, kinds: dict[str, str], loss: float) -> dict[str, str]:
        """These types, or one for all layers where that is faster and its error allowed."""
        best, least = kinds, self.whole(kinds)
        for kind in TYPES:
            alike = dict.fromkeys(self._trial.names, kind) if kind != "float32" else {}
            seconds = self.whole(alike)
            if seconds < least and self._trial.error(alike) <= loss:
                best, least = alike, seconds
        return best

    def _missing(self, name: str, kind: str) -> float:
        """Of a layer that no engine takes so: never, or its least where none takes float32."""
        return self.of(name)[kind] if name not in self._alike["float32"] else math.inf

    def _by_layer(self, kinds: Mapping[str, str]) -> tuple[dict[str, float], set[str]]:
        """Predicted seconds by layer, and whose are a share of a chain's, by operations."""
        found: dict[str, float] = {}
        shared: set[str] = set()
        for step in self._trial.network(kinds).planned(self._shape, self._device).steps:
            names = [name for name in step.covers if name in self._rows and name in self._names]
            flops = sum(self._rows[name].flops for name in names)
            if step.seconds is not None and flops:
                found.update({n: step.seconds * self._rows[n].flops / flops for n in names})
                shared.update(names if len(names) > 1 else ())
        return found, shared

    @property
    def _names(self) -> frozenset[str]:
        return frozenset(self._trial.names)


def _least(row: Row, ceilings: Ceilings | None) -> dict[str, float]:
    """The least time of a layer in each type: its bytes are fewer, its arithmetic may be faster."""
    if ceilings is None:
        return {kind: row.flops * bits / 32 * 1e-12 for kind, bits in _BITS.items()}
    return {
        kind: ceilings.seconds(
            row.flops, row.bytes * bits / 32, kind if ceilings.peak(kind) else "float32"
        )
        for kind, bits in _BITS.items()
    }
