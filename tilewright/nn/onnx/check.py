"""Compares an imported network with the file it came from, run by another implementation.

    file --onnxruntime or onnx.reference--> each value of the graph, one node after another
                                               |            |
                                         a layer's inputs   what it should give    -> LayerCheck

Each layer is given the graph's own values, so that a difference is that layer's doing: rounding of
real weights to half precision, or a 0 that became +1. Where ONNX's Sign gives 0, the graph goes on
with +1, which no bit can differ from. A value is dropped after its last reader.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np

from tilewright.arrays.array import NDArray
from tilewright.errors import FileError, ShapeError
from tilewright.nn.buffers import lanes
from tilewright.nn.graph import Node, Tensor
from tilewright.nn.layers.base import Layer
from tilewright.nn.network_of_bits import INPUT, Network
from tilewright.nn.onnx.compare import (
    NEAR,
    ROUNDING,
    TOLERANCE,
    LayerCheck,
    Limits,
    compare,
    largest_of,
    limits_of,
    merged,
)
from tilewright.nn.onnx.file import File, peak
from tilewright.nn.onnx.others import CannotRunError, Engine, engine_for
from tilewright.nn.value import Value

Signs = Mapping[str, tuple[str, NDArray]]
Sources = Mapping[str, tuple[str, NDArray | None]]


@dataclass(frozen=True, slots=True)
class Report:
    """Every layer's check, and the scores of the whole network beside the graph's; by whom."""

    layers: tuple[LayerCheck, ...]
    scores: LayerCheck
    same_class: bool
    engine: str

    @property
    def exact(self) -> bool:
        """Whether no layer differs by more than the rounding of float32."""
        return all(layer.differing == 0 for layer in self.layers)


@dataclass(frozen=True, slots=True)
class Checked:
    """What a comparison is of: a file, the network made of it, and how their values go together.

    sources  by our name of a value, the graph's, and the order of its features
    signs    by the graph's name of a value of bits, the value whose sign it is, and the cut
    """

    file: File
    network: Network
    sources: Sources
    signs: Signs


def check(item: Checked, x: NDArray, memory: int) -> Report:
    """Compare for inputs `x` as ONNX has them; values take up to `memory` bytes.

    Raises FileError where a layer is another than the graph's, and where values do not fit.
    """
    readers = _last_readers(item)
    batch = item.file.batch or len(x)
    most, node = peak(item.file, _of_batch(item.file, batch), readers)
    item.file.check_memory(most, memory, f"comparing the values of {node.title}")
    most, name = _network_bytes(item.network, batch)
    item.file.check_memory(most, memory, f"running the network's layer {name!r}")
    chunks = list(_chunks(x, batch))
    engine = engine_for(item.file, chunks[0])
    parts = [_part(item, engine, readers, chunk) for chunk in chunks]
    scores = np.concatenate([part[0] for part in parts])[: len(x)]
    layers = tuple(merged(checks) for checks in zip(*(part[1] for part in parts), strict=True))
    for layer in layers:
        if layer.wrong:
            raise _wrong(item.file, layer, engine.name)
    return _report(item, x, layers, scores, engine.name)


def _report(
    item: Checked, x: NDArray, layers: tuple[LayerCheck, ...], truth: NDArray, engine: str
) -> Report:
    network = item.network
    value = network.values[network.output]
    ours = _ours(x, network.values[INPUT]).astype(np.float32)
    final = network.run(ours.reshape(-1, *network.input_shape))
    truth = _ours(truth, value).reshape(final.shape)
    last = next(layer for layer in network.layers if layer.name == network.output)
    scores = compare(last, value, final, truth, Limits(ROUNDING * largest_of(truth), np.zeros(())))
    same = np.array_equal(final.argmax(axis=-1), truth.argmax(axis=-1))
    return Report(layers, replace(scores, wrong=0), bool(same), engine)


def _wrong(file: File, layer: LayerCheck, engine: str) -> FileError:
    return FileError(
        f"{file.label}: {layer.kind} {layer.name!r} is not what the graph computes:"
        f" {layer.wrong} of {layer.elements} values differ from those of {engine}, by up to"
        f" {layer.largest:.3g} of {layer.scale:.3g}; accepted is the rounding of half precision in"
        f" weights, {TOLERANCE:.1e} of a layer's largest term, and signs within {NEAR} of a cut"
    )


def _chunks(x: NDArray, batch: int) -> Iterator[NDArray]:
    """The sample in batches of the graph's own size, the last image repeated where one is short."""
    for start in range(0, len(x), batch):
        part = x[start : start + batch]
        yield (
            part
            if len(part) == batch
            else np.concatenate([part, np.repeat(part[-1:], batch - len(part), axis=0)])
        )


# The graph's values, one node after another


def _part(
    item: Checked, engine: Engine, readers: Mapping[str, int], x: NDArray
) -> tuple[NDArray, list[LayerCheck]]:
    """One batch: the file's output, and every layer's check."""
    file = item.file
    try:
        whole = engine.whole(file, x)
    except (CannotRunError, FileError) as error:
        raise FileError(f"{file.label}: {engine.name}: {error}") from None
    values: dict[str, NDArray] = {file.input: x}
    ready: dict[int, list[Layer]] = {}
    for layer in item.network.layers:
        ready.setdefault(_position(item, layer), []).append(layer)
    made: dict[str, NDArray] = {}
    checks = {}
    zeros = False
    for position, node in enumerate(file.graph.nodes):
        name = node.outputs[0]
        values[name] = _run(item, engine, node, values)
        for layer in ready.get(position, ()):
            checks[layer.name] = _layer_check(item, layer, values, made)
        if node.operator == "Sign":
            zeros |= bool((values[name] == 0).any())
            values[name] = np.where(values[name] >= 0, 1, -1).astype(np.float32)
        if name == file.output:
            final = values[name]
        values = {n: v for n, v in values.items() if readers.get(n, 0) > position}
    if not zeros:
        _check_whole(file, engine, final, whole)
    return whole, [checks[layer.name] for layer in item.network.layers]


def _run(item: Checked, engine: Engine, node: Node, values: Mapping[str, NDArray]) -> NDArray:
    known = {n: item.file.constant(n) for n in node.inputs if n} | dict(values)
    given = {n: array for n in node.inputs if (array := known.get(n)) is not None}
    try:
        return engine.node(node, given)
    except (CannotRunError, FileError) as error:
        raise item.file.refuse(node, f"{engine.name}: {error}") from None


def _check_whole(file: File, engine: Engine, ours: NDArray, whole: NDArray) -> None:
    """Raise where the nodes one by one give other scores than the file as a whole."""
    near = NEAR * float(np.abs(whole[np.isfinite(whole)]).max(initial=0.0))
    fine = ours.shape == whole.shape and np.allclose(ours, whole, 0, near, equal_nan=True)
    if not fine:
        raise FileError(
            f"{file.label}: {engine.name} gives other scores for the file than for its nodes one by"
            " one"
        )


def _position(item: Checked, layer: Layer) -> int:
    """Of the node after which a layer can be compared; of the next one where no node gives it."""
    source = item.sources.get(layer.name)
    names = [layer.name if source is None else source[0]]
    if source is None:
        names = [item.sources[n][0] for n in layer.inputs if n in item.sources]
    where = {node.outputs[0]: position for position, node in enumerate(item.file.graph.nodes)}
    return max((where.get(name, 0) for name in names), default=0)


def _last_readers(item: Checked) -> dict[str, int]:
    """The position of the last node that each of the graph's values is wanted at."""
    last: dict[str, int] = {}
    for position, node in enumerate(item.file.graph.nodes):
        for name in node.inputs:
            last[name] = position
    for layer in item.network.layers:
        position = _position(item, layer)
        wanted = [item.sources[n][0] for n in layer.inputs if n in item.sources]
        source = item.sources.get(layer.name)
        if source is not None and source[0] in item.signs:
            wanted.append(item.signs[source[0]][0])
        for name in wanted:
            last[name] = max(last.get(name, 0), position)
    return last


def _of_batch(file: File, batch: int) -> dict[str, Tensor]:
    """What is known of every value that depends on the input, for so many images."""
    return {
        name: tensor
        if name in file.graph.constants
        else replace(tensor, shape=(batch, *tensor.shape[1:]))
        for name, tensor in file.tensors.items()
    }


def _network_bytes(network: Network, images: int) -> tuple[int, str]:
    """Most bytes of two values of the network in a row: channels as the kernels pad them."""
    sizes = {
        name: 4 * images * v.height * v.width * lanes(v.channels)
        for name, v in network.values.items()
    }
    return max(
        (sizes[layer.name] + sum(sizes[name] for name in set(layer.inputs)), layer.name)
        for layer in network.layers
    )


# One layer


def _layer_check(
    item: Checked, layer: Layer, values: Mapping[str, NDArray], made: dict[str, NDArray]
) -> LayerCheck:
    """One layer on the graph's values; what no node of the graph gives is put into `made`."""
    network = item.network
    inputs = [_input(item, name, values, made) for name in layer.inputs]
    try:
        with np.errstate(all="ignore"):  # what overflows counts as differing
            result = layer.compute(*inputs)
            limits = limits_of(layer, inputs, result)
        source = item.sources.get(layer.name)
        if source is None:
            made[layer.name] = result
            return compare(layer, network.values[layer.name], result, result, limits)
        truth = _ours(_ordered(values[source[0]], source[1]), network.values[layer.name])
        near = _near(item, source, values, network.values[layer.name])
    except (ValueError, ShapeError) as error:
        raise FileError(f"{item.file.label}: layer {layer.name!r}: {error}") from None
    return compare(layer, network.values[layer.name], result, truth, limits, near)


def _input(
    item: Checked, name: str, values: Mapping[str, NDArray], made: Mapping[str, NDArray]
) -> NDArray:
    """A layer's input: reals in float32, signs as int8."""
    value = item.network.values[name]
    if name in made:
        return made[name]
    source, order = item.sources[name]
    array = _ours(_ordered(values[source], order), value)
    if value.kind == "bits":
        return np.where(array >= 0, np.int8(1), np.int8(-1))
    return array.astype(np.float32, copy=False)


def _near(
    item: Checked, source: tuple[str, NDArray | None], values: Mapping[str, NDArray], value: Value
) -> NDArray | None:
    """Where a sign's input lies so near to the cut that rounding decides; None of other layers."""
    if source[0] not in item.signs:
        return None
    name, cut = item.signs[source[0]]
    before = values[name]
    largest = largest_of(before)
    close: NDArray = np.abs(before - cut) <= (NEAR * largest if np.isfinite(largest) else 0.0)
    return _ours(_ordered(close, source[1]), value)


def _ordered(array: NDArray, order: NDArray | None) -> NDArray:
    return array if order is None else array[:, order]


def _ours(array: NDArray, value: Value) -> NDArray:
    """[N, C, H, W] or [N, features] as [N, H, W, C]; a flattened image in our order."""
    if array.ndim == 4:
        array = array.transpose(0, 2, 3, 1)
    return np.ascontiguousarray(array).reshape(-1, value.height, value.width, value.channels)
