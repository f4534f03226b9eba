"""An ONNX file as a network of bits is made of it: one input, one output, constants computed.

    bytes -> general.py: a Graph, or one error -> sizes of every value -> what constants decide, and
    what changes nothing, is gone -> File

Sizes are inferred before anything is computed, so what asks for more memory than it may is refused.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from tilewright.arrays.array import NDArray
from tilewright.errors import FileError, ShapeError
from tilewright.nn.graph import Graph, Node, Shape, Tensor
from tilewright.nn.infer import tensors
from tilewright.nn.onnx.general import parsed_graph
from tilewright.nn.passes.constants import folded
from tilewright.nn.passes.unchanged import without_unchanged

FREE_BATCH = 2  # images of a graph that takes any number: what joins them shows in the sizes
_LARGEST_INPUT = 1 << 28  # elements


@dataclass(frozen=True, slots=True, eq=False)
class File:
    """A graph of one input and one output.

    label    what errors call the file
    content  its bytes
    graph    its nodes, without those of constants alone and those that change nothing
    tensors  what is known of each value, for `batch` images or for `FREE_BATCH`
    batch    the first size of its input, or None where any will do
    """

    label: str
    content: bytes
    graph: Graph
    tensors: Mapping[str, Tensor]
    batch: int | None

    @property
    def input(self) -> str:
        """Name of the input."""
        return self.graph.inputs[0].name

    @property
    def input_shape(self) -> Shape:
        """Sizes of the input, the batch left out."""
        return self.tensors[self.input].shape[1:]

    @property
    def output(self) -> str:
        """Name of the output."""
        return self.graph.outputs[0]

    def shape(self, name: str) -> Shape:
        """Sizes of a value, the batch first."""
        return self.tensors[name].shape

    def constant(self, name: str) -> NDArray | None:
        """A constant's value, or None for what depends on the input."""
        found = self.graph.constants.get(name)
        return None if found is None else found.value

    def refuse(self, node: Node, why: str) -> FileError:
        """An error that names the node."""
        return FileError(f"{self.label}: {node.title} is not supported: {why}")

    def check_memory(self, needed: int, memory: int, what: str) -> None:
        """Raise FileError where `what` needs more than `memory` bytes."""
        if needed > memory:
            raise FileError(
                f"{self.label}: {what} takes about {needed} bytes; memory={memory} is what it may"
                " take"
            )


def parsed_file(content: bytes, memory: int, label: str = "content") -> File:
    """The file of these bytes; constants that its nodes compute take up to `memory` bytes.

    Raises FileError for what is damaged, hostile or of another kind.
    """
    graph = parsed_graph(content, label, None)
    batch, sizes = _sizes_of_input(graph, label)
    if len(graph.outputs) != 1:
        raise FileError(f"{label}: {len(graph.outputs)} outputs; accepted is one")
    for name, tensor in graph.constants.items():
        if tensor.value is not None and not np.isfinite(tensor.value).all():
            raise FileError(f"{label}: {name!r} has NaN or infinities; accepted are numbers")
    try:
        found = tensors(graph, {graph.inputs[0].name: (batch or FREE_BATCH, *sizes)})
    except ShapeError as error:
        raise FileError(f"{label}: {error}") from None
    file = File(label, content, graph, found, batch)
    _check_constants(file, memory)
    return replace(file, graph=without_unchanged(folded(graph, found, memory), found))


def _sizes_of_input(graph: Graph, label: str) -> tuple[int | None, Shape]:
    """The batch of the only input, None where it is free, and the other sizes."""
    if len(graph.inputs) != 1:
        names = ", ".join(repr(value.name) for value in graph.inputs) or "none"
        raise FileError(f"{label}: inputs {names}; accepted is one")
    (source,) = graph.inputs
    if source.dtype != "float32":
        raise FileError(
            f"{label}: input {source.name!r} is of type {source.dtype}; accepted is float32"
        )
    batch, *others = source.shape or (0,)
    fixed = tuple(size for size in others if isinstance(size, int) and 0 < size < 1 << 16)
    images = 1 if isinstance(batch, str) else batch
    if (
        len(others) not in (1, 3)
        or len(fixed) < len(others)
        or not 0 < images <= _LARGEST_INPUT // math.prod(fixed)
    ):
        raise FileError(
            f"{label}: input {source.name!r} is {list(source.shape or ())}; accepted are [batch,"
            " features] and [batch, channels, height, width], fixed but for the batch, up to 2^28"
            " elements"
        )
    return (None if isinstance(batch, str) else batch), fixed


def _check_constants(file: File, memory: int) -> None:
    """Raise where a constant that a node computes would not fit beside those before it."""
    known, held = set(file.graph.constants), 0
    for node in file.graph.nodes:
        if not known.issuperset(filter(None, node.inputs)):
            continue
        known.update(node.outputs)
        sizes = [file.shape(name) for name in node.outputs if name]
        held += 8 * sum(map(math.prod, sizes))
        if held > memory:
            raise file.refuse(
                node,
                f"a constant of {list(sizes[0])} brings the graph's to {held} bytes;"
                f" memory={memory} is what they may take",
            )


def peak(file: File, tensors: Mapping[str, Tensor], readers: Mapping[str, int]) -> tuple[int, Node]:
    """Most bytes of values at once when each goes after its last reader, and at which node.

    tensors: of every value, for as many images as are compared at once.
    readers: the position of the last node after which a value is still wanted.
    """

    def size(name: str) -> int:
        return 4 * math.prod(tensors[name].shape)  # an element taken as a float32 or more

    live = {file.input: size(file.input)}
    most, where = 0, file.graph.nodes[0]
    for position, node in enumerate(file.graph.nodes):
        live[node.outputs[0]] = size(node.outputs[0])
        # Beside the values, a comparison holds a few arrays of the sizes that it compares.
        work = sum(size(name) for name in {*node.inputs, node.outputs[0]} if name in live)
        if sum(live.values()) + 4 * work > most:
            most, where = sum(live.values()) + 4 * work, node
        live = {name: bytes_ for name, bytes_ in live.items() if readers.get(name, 0) > position}
    return most, where
