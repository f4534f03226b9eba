"""Post-training quantisation: a network whose convolutions and dense layers hold int8.

    x -> QuantizeLinear -> DequantizeLinear -> Conv(DequantizeLinear(int8 weights), int32 bias) -> y

The nodes say what is stored; a pass joins them into convolutions of whole numbers when a network is
bound (passes/int8.py). Weights have a scale for each output and the zero 0, values one scale and
one zero, such that 0 stays exact.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from difflib import get_close_matches
from numbers import Real
from types import MappingProxyType
from typing import Any

import numpy as np

from tilewright.arrays.array import NDArray
from tilewright.errors import ArgumentError
from tilewright.nn.graph import Graph, Node, Tensor
from tilewright.nn.net import Network
from tilewright.nn.passes.identities import without_identities
from tilewright.nn.passes.norms import without_norms
from tilewright.nn.passes.retyped import of_float32
from tilewright.nn.ranges import METHODS, Range, inputs_of, ranges_of
from tilewright.wording import short

_VERSION = 13  # of QuantizeLinear and DequantizeLinear
_LARGEST = 1 << 30  # of an int32 bias, so that sums beside it do not overflow
_TINY = np.finfo(np.float32).tiny  # the least step: below it float32 has few bits left
_FARTHEST = float(np.finfo(np.float32).max)


def quantise(
    net: Network,
    samples: Any = None,
    *,
    method: str = "minmax",
    percentile: float = 99.99,
    keep: Collection[str] = (),
    ranges: Mapping[str, Range] | None = None,
) -> Network:
    """A network that computes in int8 what `net` computes in float32.

    Args:
        net: convolutions and dense layers with constant weights are quantised; batch norms behind
            convolutions become part of them first. Of a file of halves all is float32 first, inputs
            and outputs too.
        samples: what a run takes, a list of it: arrays, tuples of them, mappings by name; or one
            array, whose first axis counts samples.
        method: how ranges of values are found on the samples: "minmax", all that was seen;
            "percentile", without the outermost share; "squares", where rounding and cutting cost
            least. With "squares" the scales of weights are found so too.
        percentile: of "percentile", the share in percent that stays inside at either end.
        keep: names of nodes that stay float32.
        ranges: lowest and highest value of a layer's input, by the name of its weights or of the
            input, as training has them; these need no samples.

    Raises:
        ArgumentError: no samples, or samples, ranges or weights that are not finite; a name that is
            not there; a network that is quantised already.
    """
    _check(net, method, percentile, keep)
    source = Network(without_norms(without_identities(of_float32(net.graph))), net.title)
    layers = [node for node in layers_of(source) if node.name not in keep]
    _check_constants(source.graph, layers)
    known = dict(ranges or {})
    _check_names(known, (*net.graph.nodes, *source.graph.nodes))
    found = {
        node.inputs[0]: _range(name, known[name])
        for node in layers
        for name in (node.inputs[0], node.inputs[1])
        if name in known
    }
    missing = [n for n in dict.fromkeys(node.inputs[0] for node in layers) if n not in found]
    if missing:
        if samples is None:
            raise ArgumentError(f"samples: none, and no range of value {missing[0]!r}")
        given = inputs_of(source, samples)
        found.update(ranges_of(source, missing, given, method, percentile))
    return Network(_Writer(source.graph, found, method == "squares").written(layers), net.title)


def _check(net: Network, method: str, percentile: float, keep: Collection[str]) -> None:
    if not isinstance(net, Network):
        raise ArgumentError(f"net={short(net)}: accepted are networks, as nn.load gives them")
    if method not in METHODS:
        raise ArgumentError(f"method={short(method)}: accepted are {', '.join(METHODS)}")
    if not isinstance(percentile, Real) or not 50 < percentile <= 100:
        raise ArgumentError(
            f"percentile={short(percentile)}: accepted are numbers above 50 up to 100"
        )
    if isinstance(keep, str) or not isinstance(keep, Collection):
        raise ArgumentError(f"keep={short(keep)}: accepted are lists of names of nodes")
    names = {node.name for node in net.graph.nodes}
    unknown = [name for name in keep if name not in names]
    if unknown:
        near = get_close_matches(unknown[0], names, 3, 0)
        raise ArgumentError(
            f"keep: no node is called {unknown[0]!r}; accepted are names of nodes, as {near}"
        )
    if any(node.operator == "QuantizeLinear" for node in net.graph.nodes):
        raise ArgumentError("net: has QuantizeLinear already; accepted are networks of float32")


def _check_constants(graph: Graph, layers: list[Node]) -> None:
    """Raise ArgumentError that names every constant of layers that int8 has no number for."""
    wrong = []
    for node in layers:
        for name in filter(None, node.inputs[1:3]):
            value = np.asarray(graph.constants[name].value)
            bad = np.argwhere(~np.isfinite(value))
            if len(bad):
                at = bad[0].tolist()
                wrong.append(f"{node.title}: {name!r} has {value[tuple(at)]} at {at}")
    if wrong:
        raise ArgumentError(
            f"net: {'; '.join(wrong)}; accepted are finite weights and biases, or keep=[names of"
            " these nodes]"
        )


def _check_names(ranges: Mapping[str, Range], nodes: Iterable[Node]) -> None:
    """Raise ArgumentError that names a range of what no node reads."""
    names = {name for node in nodes for name in node.inputs if name}
    unknown = [name for name in ranges if name not in names]
    if unknown:
        near = get_close_matches(str(unknown[0]), names, 3, 0)
        raise ArgumentError(
            f"ranges: no value or weights are called {unknown[0]!r}; accepted are names of them, as"
            f" {near}"
        )


def _range(name: str, ends: Any) -> Range:
    """Ends of a range as a caller gives them. Raises ArgumentError."""
    try:
        low, high = (float(end) for end in ends)
        fits = -_FARTHEST <= low <= high <= _FARTHEST
    except (TypeError, ValueError):
        fits = False
    if not fits:
        raise ArgumentError(
            f"ranges[{name!r}]={short(ends)}: accepted are two finite float32 numbers, low <= high"
        )
    return low, high


def layers_of(net: Network) -> list[Node]:
    """The layers that can be quantised: of float32, their weights constant."""
    return [node for node in net.graph.nodes if _fits(net, node)]


def _fits(net: Network, node: Node) -> bool:
    if node.operator not in ("Conv", "Gemm"):
        return False
    constants = net.graph.constants
    weights = constants.get(node.inputs[1])
    plain = node.operator == "Conv" or (
        not node.attributes["transA"] and node.attributes["alpha"] == 1
    )
    others_known = all(name in constants for name in node.inputs[2:] if name)
    float32 = net.types[node.inputs[0]] == "float32" and node.inputs[0] not in constants
    return plain and others_known and float32 and weights is not None


class _Writer:
    """The graph with its new nodes and constants."""

    def __init__(self, graph: Graph, ranges: Mapping[str, Range], squares: bool) -> None:
        self._graph, self._ranges, self._squares = graph, ranges, squares
        self._constants = dict(graph.constants)
        self._names = set(graph.names())
        self._nodes: list[Node] = []
        self._held: dict[str, tuple[str, np.float32]] = {}  # value -> as it reads now, its scale
        self._weights: dict[str, tuple[str, NDArray]] = {}

    def written(self, layers: list[Node]) -> Graph:
        """Every layer with what stands before its inputs."""
        wanted = {node.outputs[0] for node in layers}
        for node in self._graph.nodes:
            self._nodes.append(self._layer(node) if node.outputs[0] in wanted else node)
        used = {name for node in self._nodes for name in node.inputs} | set(self._graph.outputs)
        constants = {name: t for name, t in self._constants.items() if name in used}
        return replace(self._graph, nodes=tuple(self._nodes), constants=constants)

    def _layer(self, node: Node) -> Node:
        x, step = self._value(node.inputs[0])
        across = node.operator == "Gemm" and not node.attributes["transB"]
        weights, steps = self._weight(node, 1 if across else 0, step)
        inputs = [x, weights, *node.inputs[2:]]
        if self._has_bias(node):
            inputs[2] = self._bias(node, step * steps)
        return replace(node, inputs=tuple(inputs))

    def _value(self, name: str) -> tuple[str, np.float32]:
        """A value as it is after rounding, and its scale."""
        if name not in self._held:
            step, zero = _scale(self._ranges[name])
            parts = self._add(name, "scale", np.asarray(step)), self._add(name, "zero", zero)
            whole, made = self._new(f"{name}, uint8"), self._new(f"{name}, rounded")
            self._put("QuantizeLinear", (name, *parts), whole, 1)
            self._put("DequantizeLinear", (whole, *parts), made, 1)
            self._held[name] = made, step
        return self._held[name]

    def _weight(self, node: Node, axis: int, step: np.float32) -> tuple[str, NDArray]:
        """Weights as they are after rounding, and the scale of each output.

        Once for all layers that share them; scales are at least so large that biases fit int32.
        """
        name = node.inputs[1]
        if name not in self._weights:
            value = np.asarray(self._constants[name].value, np.float32)
            flat = np.moveaxis(value, axis, 0).reshape(value.shape[axis], -1)
            steps = _steps(flat, self._squares)
            if self._has_bias(node):
                bias = np.abs(np.asarray(self._constants[node.inputs[2]].value, np.float64))
                steps = np.maximum(steps, (bias / _LARGEST / float(step)).astype(np.float32))
            along = steps.reshape(-1, *[1] * (value.ndim - 1 - axis))
            whole = np.clip(np.rint(value / along), -127, 127).astype(np.int8)
            parts = (
                self._add(name, "int8", whole),
                self._add(name, "scale", steps),
                self._add(name, "zero", np.zeros(steps.shape, np.int8)),
            )
            made = self._new(f"{name}, rounded")
            self._put("DequantizeLinear", parts, made, axis)
            self._weights[name] = made, steps
        return self._weights[name]

    def _has_bias(self, node: Node) -> bool:
        """Whether a layer adds a number for each output, which becomes an int32."""
        if len(node.inputs) < 3 or not node.inputs[2]:
            return False
        outputs = self._weights_of(node).shape[0]
        plain = node.attributes.get("beta", 1) == 1
        return plain and self._constants[node.inputs[2]].shape == (outputs,)

    def _weights_of(self, node: Node) -> NDArray:
        """A layer's weights, outputs first."""
        value = np.asarray(self._constants[node.inputs[1]].value, np.float32)
        across = node.operator == "Gemm" and not node.attributes["transB"]
        return value.T if across else value

    def _bias(self, node: Node, steps: NDArray) -> str:
        value = np.asarray(self._constants[node.inputs[2]].value, np.float64)
        label = f"{node.name or node.outputs[0]}, bias"
        steps = steps.astype(np.float32)
        limit = np.iinfo(np.int32).max
        near = value / np.where(steps > 0, steps, 1)  # steps of 0: too small for float32, as value
        whole = np.clip(np.rint(near), -limit, limit).astype(np.int32)
        parts = self._add(label, "int32", whole), self._add(label, "scale", steps)
        made = self._new(f"{label}, rounded")
        zero = self._add(label, "zero", np.zeros(steps.shape, np.int32))
        self._put("DequantizeLinear", (*parts, zero), made, 0)
        return made

    def _put(self, operator: str, inputs: tuple[str, ...], output: str, axis: int) -> None:
        attributes = MappingProxyType({"axis": axis})
        self._nodes.append(Node(operator, _VERSION, inputs, (output,), attributes, output))

    def _add(self, name: str, what: str, value: Any) -> str:
        """A constant's name."""
        array = np.asarray(value)
        label = self._new(f"{name}, {what}")
        self._constants[label] = Tensor(array.shape, array.dtype.name, array)
        return label

    def _new(self, label: str) -> str:
        """A name that nothing has."""
        while label in self._names:
            label += "'"
        self._names.add(label)
        return label


def _scale(ends: Range) -> tuple[np.float32, NDArray]:
    """What one step is worth, and which of 0 to 255 stands for 0."""
    low, high = min(0.0, float(ends[0])), max(0.0, float(ends[1]))
    step = np.float32((high - low) / 255) if high > low else np.float32(1)
    step = max(step, _TINY)
    return np.float32(step), np.asarray(np.clip(np.rint(-low / step), 0, 255), np.uint8)


def _steps(rows: NDArray, squares: bool) -> NDArray:
    """What one step of each row of weights is worth; a row of zeros has steps of 1."""
    whole = np.abs(rows).max(axis=1, initial=0)
    whole = np.where(whole > 0, whole, 127).astype(np.float32)
    if not squares:
        return np.asarray(np.maximum(whole / np.float32(127), _TINY))
    shares = np.linspace(0.5, 1.0, 51, dtype=np.float32)
    costs = []
    for share in shares:
        step = np.maximum(whole * share / np.float32(127), _TINY)[:, None]
        near = np.clip(np.rint(rows / step), -127, 127) * step
        costs.append(((near - rows) ** 2).sum(axis=1))
    best = np.asarray(shares[np.argmin(costs, axis=0)])
    return np.asarray(np.maximum(whole * best / np.float32(127), _TINY))
