"""A network as plain records: nodes in an order in which they can be computed, values by name.

    Graph(nodes, inputs, outputs, constants)        Node: an operator of ONNX, its version, names
    Tensor: sizes and element type of a value, and its content where that is known before a run

Everything is frozen: passes make new graphs. A name belongs to one value; "" is an input that is
absent. Sizes of an input are numbers, or names of dimensions that are free until it is bound.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

from tilewright.arrays.array import NDArray
from tilewright.errors import ArgumentError
from tilewright.facts.dtypes import VALUES

Shape = tuple[int, ...]
Dimensions = tuple[int | str, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Tensor:
    """What is known of a value: sizes, element type, and content where it is known.

    dtype  a name of `facts.dtypes.VALUES`
    value  a NumPy array; numbers of "bfloat16" are held as float32, which NumPy has
    """

    shape: Shape
    dtype: str
    value: NDArray | None = None

    @property
    def size(self) -> int:
        """Elements."""
        return math.prod(self.shape)

    @property
    def bytes(self) -> int:
        """Of the elements as they lie on a device."""
        return self.size * VALUES[self.dtype]


@dataclass(frozen=True, slots=True)
class Input:
    """An input of a graph: sizes, free ones by name, and the element type.

    shape  None where a file does not say how many dimensions there are
    """

    name: str
    shape: Dimensions | None
    dtype: str


@dataclass(frozen=True, slots=True, eq=False)
class Node:
    """An operator at work.

    operator    its name, as ONNX has it
    version     the version of ONNX's operators that gave it its present meaning
    inputs      names of values, "" for one that is absent
    outputs     names of what it gives, "" for one that nobody wants
    attributes  all that have a value, defaults among them; tensors as NumPy arrays
    name        what errors and `explain()` call it
    """

    operator: str
    version: int
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    name: str = ""

    def __reduce__(self) -> Any:
        parts = (self.operator, self.version, self.inputs, self.outputs)
        return Node, (*parts, dict(self.attributes), self.name)

    @property
    def title(self) -> str:
        """`node 'name' (Conv)`."""
        return f"node {self.name or self.outputs[0]!r} ({self.operator})"


@dataclass(frozen=True, slots=True, eq=False)
class Graph:
    """Nodes, each after those whose values it reads.

    inputs     what is passed at every run
    outputs    names of the values that a run gives, in order
    constants  weights and other values known from the start

    Raises ArgumentError where a name is given twice, or a node reads what is not there before it.
    """

    nodes: tuple[Node, ...]
    inputs: tuple[Input, ...]
    outputs: tuple[str, ...]
    constants: Mapping[str, Tensor]

    def __post_init__(self) -> None:
        known = set(self.constants)
        for source in self.inputs:
            if source.name in known:
                raise ArgumentError(f"input {source.name!r}: the name is taken")
            known.add(source.name)
        for node in self.nodes:
            for name in node.inputs:
                if name and name not in known:
                    raise ArgumentError(f"{node.title}: input {name!r} is no value before it")
            for name in filter(None, node.outputs):
                if name in known:
                    raise ArgumentError(f"{node.title}: {name!r} is there already")
                known.add(name)
        absent = [name for name in self.outputs if name not in known]
        if absent:
            raise ArgumentError(f"output {absent[0]!r}: no node gives it")

    def readers(self) -> dict[str, list[Node]]:
        """The nodes that read each value, a node as often as it does; none for what nobody reads.

        That a value is an output of the graph counts for nothing here.
        """
        found: dict[str, list[Node]] = {name: [] for name in self.names()}
        for node in self.nodes:
            for name in filter(None, node.inputs):
                found[name].append(node)
        return found

    def makers(self) -> dict[str, Node]:
        """The node that gives each value that a node gives."""
        return {name: node for node in self.nodes for name in node.outputs if name}

    def names(self) -> Iterator[str]:
        """Every value."""
        yield from self.constants
        yield from (source.name for source in self.inputs)
        for node in self.nodes:
            yield from filter(None, node.outputs)

    def with_nodes(
        self, nodes: Sequence[Node], constants: Mapping[str, Tensor] | None = None
    ) -> Graph:
        """The same inputs and outputs with other nodes, and other constants where given."""
        kept = self.constants if constants is None else constants
        return replace(self, nodes=tuple(nodes), constants=kept)
