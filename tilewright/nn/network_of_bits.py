"""`Network`: layers of bits and of reals, checked as a whole, run on the host.

Network(layers) --check--> sizes --of_bits--> nn.Network: a node for each layer
                                                |  bind: passes/bits.py joins them into passes
run, trace, profile  <--------------------------+
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from types import MappingProxyType
from typing import Any

import numpy as np

from tilewright.arrays.array import NDArray
from tilewright.arrays.views import never_followed
from tilewright.errors import ArgumentError, DtypeError, OperandError, ShapeError
from tilewright.nn.bound import Bound
from tilewright.nn.buffers import Buffer, buffer_of
from tilewright.nn.graph import Graph, Input, Node, Tensor
from tilewright.nn.joined import plan_passes
from tilewright.nn.layers.base import Layer
from tilewright.nn.layers.bit_conv import BitConv
from tilewright.nn.net import Network as AnyNetwork
from tilewright.nn.operators.bits import LAYER
from tilewright.nn.passes.bits import joined_bits
from tilewright.nn.profile import Row
from tilewright.nn.value import Value
from tilewright.nn.window import Window
from tilewright.remember import Shelf, once
from tilewright.wording import short

INPUT = "input"
_LARGEST = 1 << 31  # elements of one value: beyond, a file claims what nobody runs
_ROWS, _SCORES = "sizes of rows", "scores"
_Ready = tuple[Bound, NDArray | None, Buffer | None]  # where its input goes, where its scores lie
# Networks bound for the batch sizes they ran last; each belongs to its network and goes with it.
READY: Shelf[tuple[int, int], _Ready] = Shelf("one-bit networks", most=2 << 30)


@dataclass(frozen=True, eq=False)
class Network:
    """A network of mixed binary and real layers.

    input_shape   (height, width, channels) of one input, or (features,)
    layers        in an order in which each one's inputs come before it; "input" is what is passed
    output        the name of the value that `run` gives; the last layer's by default
    labels        names of the classes, or empty

    Raises ArgumentError, ShapeError, OperandError, DtypeError that name the layer.
    """

    input_shape: tuple[int, ...]
    layers: tuple[Layer, ...]
    output: str = ""
    labels: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "layers", tuple(self.layers))
        object.__setattr__(self, "input_shape", tuple(self.input_shape))
        object.__setattr__(self, "labels", tuple(self.labels))
        sizes = self.input_shape
        whole = all(isinstance(s, int) and not isinstance(s, bool) and s > 0 for s in sizes)
        if len(sizes) not in (1, 3) or not whole:
            raise ShapeError(
                f"input_shape={sizes}: accepted are (height, width, channels) and (features,)"
            )
        if math.prod(sizes) >= _LARGEST:
            raise ShapeError(f"input_shape={sizes}: accepted are fewer than 2^31 elements")
        if not self.layers:
            raise ArgumentError("layers=(): accepted is one layer or more")
        if not self.output:
            object.__setattr__(self, "output", self.layers[-1].name)
        if self.output not in self.values:
            raise ArgumentError(f"output={self.output!r}: no layer has this name")
        classes = self.values[self.output].size
        if self.labels and len(self.labels) != classes:
            raise ShapeError(f"labels: {len(self.labels)} names for {classes} scores")

    @once
    def values(self) -> Mapping[str, Value]:
        """Kind and sizes of every value, "input" first."""
        sizes = self.input_shape if len(self.input_shape) == 3 else (1, 1, *self.input_shape)
        found = {INPUT: Value("real", *sizes)}
        for layer in self.layers:
            if layer.name in found:
                raise ArgumentError(f"layer {layer.name!r}: the name is taken")
            for name in layer.inputs:
                if name not in found:
                    raise ArgumentError(
                        f"layer {layer.name!r}: input {name!r} is no value before it"
                    )
            value = layer.output([found[name] for name in layer.inputs])
            if value.size >= _LARGEST:
                raise layer.fail(f"gives {value.size} elements; accepted are fewer than 2^31")
            _check_borders(layer, found[layer.inputs[0]])
            found[layer.name] = value
        return MappingProxyType(found)

    @never_followed
    def run(self, x: Any) -> NDArray:
        """The scores of images: float32 [N, ...] for x [N, *input_shape], without N for one.

        x: real numbers, channels last; computed in float32. Where the result is one pixel it is
        [N, channels], and bits come out as -1.0 and +1.0.

        Raises ShapeError, DtypeError; ArgumentError for NaN and infinities.
        """
        images, one = self._checked(x)
        bound, source, out = self._ready(len(images))
        if source is None or out is None:  # definitions alone
            scores = buffer_of(bound.run(images), self.values[self.output]).values()
        else:
            fill, read = partial(np.copyto, source, images), partial(_copied, out)
            scores = bound.between(fill, read)
        found: NDArray = scores.astype(np.float32, copy=False)
        value = self.values[self.output]
        if (value.height, value.width) == (1, 1):
            found = found.reshape(len(images), value.channels)
        return found[0] if one else found

    def trace(self, x: Any) -> dict[str, NDArray]:
        """Every value that exists in memory during `run`: [N, height, width, channels].

        Reals as float32, bits as int8 -1 and +1. A value that only its successor's pass saw, such
        as the sums before a threshold, is absent.
        """
        images, _ = self._checked(x)
        passes = plan_passes(self.layers, self.values, {self.output})
        names = tuple(name for item in passes for name in item.stores)
        graph = replace(_graph_of(self), outputs=names)
        made = AnyNetwork(graph).bind(images.shape, device="host").run(images)
        found = dict(zip(names, made if len(names) > 1 else (made,), strict=True))
        value = self.values[INPUT]
        return {INPUT: images.reshape(-1, value.height, value.width, value.channels), **found}

    def profile(self, x: Any, repeats: int = 20) -> tuple[Row, ...]:
        """Every pass of `run` in order: the layers that it `covers`, their work, median seconds."""
        images, _ = self._checked(x)
        if repeats < 1:
            raise ArgumentError(f"repeats={repeats}: accepted are 1 and more")
        rows = self._ready(len(images))[0].profile(images, repeats=repeats)
        names = {layer.name for layer in self.layers}
        return tuple(row for row in rows if row.covers and names.issuperset(row.covers))

    def _checked(self, x: Any) -> tuple[NDArray, bool]:
        if not isinstance(x, np.ndarray):
            raise OperandError(f"x={short(x)}: accepted are NumPy arrays")
        if x.dtype.kind not in "biuf":
            raise DtypeError(f"x.dtype={str(x.dtype)!r}: accepted are bool, integers and floats")
        one = x.ndim == len(self.input_shape)
        batch = x[None] if one else x
        if batch.shape[1:] != self.input_shape:
            raise ShapeError(
                f"x.shape={x.shape}: accepted is {self.input_shape}, or [N, ...] of it"
            )
        with np.errstate(over="ignore"):
            images = np.ascontiguousarray(batch, np.float32)
        if not np.isfinite(images).all():
            raise ArgumentError("x: has NaN or infinities in float32; accepted are numbers")
        return images, one

    def _ready(self, images: int) -> _Ready:
        """The network bound for a batch size, its scores as the last pass leaves them."""
        key = (id(self), images)
        kept = READY.get(key, self)
        if kept is None:
            graph = joined_bits(_graph_of(self))
            (scores,) = graph.makers()[self.output].inputs
            whole = AnyNetwork(replace(graph, outputs=(scores,)))
            bound = whole.bind((images, *self.input_shape), device="host")
            source, out = bound.inputs.get(INPUT), bound.results.get(scores)
            value = self.values[self.output]
            made = (bound, source, None if out is None else buffer_of(out, value))
            kept = READY.keep(key, made, size=bound.held_bytes, owners=(self,))
        return kept

    @property
    def paddings(self) -> tuple[str, ...]:
        """What the binary convolutions put around their images, where that matters."""
        found = {
            layer.padding
            for layer in self.layers
            if isinstance(layer, BitConv) and any(layer.window.pads)
        }
        return tuple(sorted(found))


def _copied(out: Buffer) -> NDArray:
    return out.values().copy()


def of_bits(network: Network, title: str = "network of bits") -> AnyNetwork:
    """The network with a node for each layer of a `tilewright.onebit.Network`.

    Its input is [N, height, width, channels] or [N, features], N free; scores of one pixel are
    [N, channels].
    """
    graph, value = _graph_of(network), network.values[network.output]
    if (value.height, value.width) == (1, 1):
        rows = Tensor((2,), "int64", np.array([0, value.channels]))
        output = f"{_SCORES} of {network.output}"
        last = Node("Reshape", 14, (network.output, _ROWS), (output,), {"allowzero": 0}, output)
        graph = Graph((*graph.nodes, last), graph.inputs, (output,), {_ROWS: rows})
    return AnyNetwork(graph, title)


def _graph_of(network: Network) -> Graph:
    """A node for each layer; the output as the last layer gives it."""
    nodes = tuple(_node(layer, network.values, network) for layer in network.layers)
    source = Input(INPUT, ("N", *network.input_shape), "float32")
    return Graph(nodes, (source,), (network.output,), {})


def _node(layer: Layer, values: Mapping[str, Value], network: Network) -> Node:
    touched = {name: values[name] for name in (*layer.inputs, layer.name)}
    attributes = {"layer": layer, "values": touched, "of": network}
    return Node(LAYER, 1, layer.inputs, (layer.name,), attributes, layer.name)


def bits_of(network: AnyNetwork) -> Network | None:
    """The network of bits that `of_bits` was given; None for any other network."""
    found = {id(n.attributes["of"]): n for n in network.graph.nodes if n.operator == LAYER}
    others = [n for n in network.graph.nodes if n.operator not in (LAYER, "Reshape")]
    if len(found) != 1 or others:
        return None
    (node,) = found.values()
    whole: Network = node.attributes["of"]
    return whole


def labelled(network: Network, scores: NDArray, count: int) -> list[tuple[str, float]]:
    """The `count` largest scores and their names."""
    order = np.argsort(-scores, kind="stable")[:count]
    names = network.labels or tuple(map(str, range(len(scores))))
    return [(names[int(i)], float(scores[int(i)])) for i in order]


def _check_borders(layer: Layer, source: Value) -> None:
    """Raise where a layer's input grows past every memory by the borders that are put around it."""
    window: Window | None = getattr(layer, "window", None)
    if window is None:
        return
    border = 2 * max(window.pads)
    size = (source.height + border) * (source.width + border) * source.channels
    if size >= _LARGEST:
        raise layer.fail(
            f"pads={window.pads} make {size} elements of its input; accepted are fewer than 2^31"
        )
