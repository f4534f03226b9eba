"""What converters of ONNX nodes work with: the values of the graph so far, and drafts of layers.

    @operator("Relu", note="...")          a line for each operator: what of it is taken, and which
    def clamp(at, node): ...               values alone its attributes may have; then its converter

A value of the graph is a draft's value, and sometimes more: in what order its features lie, whether
it is bits for certain, what was padded round it, or that it is a comparison a Where will use.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from tilewright.arrays.array import NDArray
from tilewright.errors import FileError
from tilewright.nn.graph import Node
from tilewright.nn.layers.base import Layer
from tilewright.nn.onnx.drafts import Draft, LayerDraft
from tilewright.nn.onnx.file import File


@dataclass(frozen=True, slots=True)
class Traced:
    """What a value of the graph is in the network.

    order     for features that were images: which of ONNX's each of ours is, else None
    is_bits   -1 and +1 for certain
    pads      what a Pad node put around it, and the number
    condition of a comparison: input, cut, and whether it is flipped and strict
    """

    draft: str
    order: NDArray | None = None
    is_bits: bool = False
    pads: tuple[tuple[int, int, int, int], float] | None = None
    condition: tuple[NDArray, bool, bool] | None = None


class Importer:
    """An import under way: what is known of each value, and the drafts made so far.

    signs   by the name of a value of bits: the value of the graph whose sign it is, and the cut
    """

    def __init__(self, file: File) -> None:
        self.file = file
        self.found = {file.input: Traced("input")}
        self.made: list[Draft] = []
        self.signs: dict[str, tuple[str, NDArray]] = {}

    def sources(self) -> dict[str, tuple[str, NDArray | None]]:
        """By our name of a value, the graph's, and which of ONNX's features each of ours is."""
        found: dict[str, tuple[str, NDArray | None]] = {}
        for name, value in self.found.items():
            found.setdefault(value.draft, (name, value.order))
        return found

    def optional(self, node: Node, position: int, what: str) -> NDArray | None:
        """A constant that need not be there."""
        name = node.inputs[position] if position < len(node.inputs) else ""
        found = self.file.constant(name)
        if name and found is None:
            raise FileError(f"{what} that depends on the input")
        return found

    def shape(self, node: Node, position: int = 0) -> tuple[int, ...]:
        """Sizes of an input, the batch first."""
        return self.file.shape(node.inputs[position])

    def image(self, node: Node) -> tuple[int, int]:
        """Height and width of the first input. Raises FileError for features."""
        sizes = self.shape(node)
        if len(sizes) != 4:
            raise FileError(f"of {list(sizes)}; accepted are images")
        return sizes[2], sizes[3]

    def plain(self, name: str) -> Traced:
        """An input that is no comparison and has nothing around it."""
        value = self.found[name]
        if value.condition is not None or value.pads is not None:
            raise FileError(f"of {name!r}, a comparison or a padded image, this is")
        return value

    def beside(self, node: Node) -> tuple[Traced, NDArray, int, NDArray] | None:
        """A value beside a constant: the value, the constant by channels, its place, as it is.

        None of two values.
        """
        constants = [self.file.constant(name) for name in node.inputs]
        place = next((at for at, array in enumerate(constants) if array is not None), None)
        if place is None:
            return None
        value, constant = self.plain(node.inputs[1 - place]), constants[place]
        assert constant is not None
        return value, self.channels(node, constant, value, 1 - place), place, constant

    def emit(self, node: Node, kind: type[Draft | Layer], *inputs: str, **fields: Any) -> str:
        """Add a draft, or a layer as it is, under the name of the node's value."""
        own = node.outputs[0]
        name: str = fields.pop("name", own if own != "input" else "input, later")
        if issubclass(kind, Draft):
            self.made.append(kind(name=name, inputs=inputs, **fields))
        else:
            self.made.append(LayerDraft(name=name, inputs=inputs, kind=kind, fields=fields))
        return name

    def channels(self, node: Node, array: NDArray, value: Traced, position: int = 0) -> NDArray:
        """A constant that is added or multiplied, as a vector over our channels."""
        shape = self.shape(node, position)
        if array.ndim > len(shape):
            raise FileError(f"a constant of shape {array.shape}; the value's is {list(shape)}")
        wide = array.reshape((1,) * (len(shape) - array.ndim) + array.shape)
        if any(size != 1 for axis, size in enumerate(wide.shape) if axis != 1):
            raise FileError(f"a constant of shape {array.shape}; accepted is one for each channel")
        if wide.shape[1] not in (1, shape[1]):
            raise FileError(f"a constant of shape {array.shape} makes {shape[1]} channels more")
        vector = np.broadcast_to(wide.reshape(-1), shape[1]).astype(np.float64)
        return vector if value.order is None else vector[value.order]


Convert = Callable[[Importer, Node], Traced]
_FLAGS = ("allowzero", "ceil_mode", "count_include_pad", "keepdims", "storage_order", "transB")


@dataclass(frozen=True, slots=True)
class Converter:
    """What is taken of an operator.

    note     in words, for the docs
    only     values that attributes may have, where not all are taken
    convert  makes drafts of a node, and says what its value is in the network
    """

    note: str
    only: Mapping[str, tuple[Any, ...]]
    convert: Convert

    def __call__(self, at: Importer, node: Node) -> Traced:
        """Convert a node. Raises FileError for what of it is not taken."""
        if any(node.outputs[1:]):
            raise FileError("more than one output")
        for name, value in node.attributes.items():
            accepted = self.only.get(name, (0, 1) if name in _FLAGS else None)
            if accepted is not None and value not in accepted:
                raise FileError(f"{name}={value!r}; accepted is {' or '.join(map(str, accepted))}")
            if isinstance(value, float) and not np.isfinite(value):
                raise FileError(f"{name}={value!r}; accepted is a finite number")
        return self.convert(at, node)


OPERATORS: dict[str, Converter] = {}


def operator(name: str, note: str = "", **only: tuple[Any, ...]) -> Callable[[Convert], Convert]:
    """Take an operator; the function below converts its nodes."""

    def take(convert: Convert) -> Convert:
        OPERATORS[name] = Converter(note, only, convert)
        return convert

    return take
