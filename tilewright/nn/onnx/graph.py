"""The graph of an ONNX file as plain records; read.py makes and checks them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tilewright.arrays.array import NDArray
from tilewright.errors import FileError

OPSETS = (7, 28)  # below 7 constants are broadcast by attributes; beyond 28 nothing was tried
IR_VERSIONS = (3, 14)


@dataclass(frozen=True, slots=True, eq=False)
class Node:
    """One node: `title` is what errors call it; `proto` is what the file has.

    `attributes` are all that its version has a value for, defaults among them.
    """

    op: str
    title: str
    inputs: tuple[str, ...]
    output: str
    attributes: Mapping[str, Any]
    proto: Any


@dataclass(frozen=True, slots=True, eq=False)
class Graph:
    """A graph of one input and one output, in an order in which it can be computed.

    opset        the version of ONNX's own operators that it is written for
    batch        the first size of its input, or None where any will do
    input_shape  the other sizes
    content      the file
    """

    label: str
    opset: int
    nodes: tuple[Node, ...]
    constants: Mapping[str, NDArray]
    input: str
    batch: int | None
    input_shape: tuple[int, ...]
    output: str
    content: bytes

    def refuse(self, node: Node, why: str) -> FileError:
        """An error that names the node."""
        return FileError(f"{self.label}: {node.title} is not supported: {why}")
