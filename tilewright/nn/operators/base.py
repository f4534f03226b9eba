"""What every operator of networks offers: its name, versions, types, sizes, definition, work.

    node, element types of its inputs   --types-->    element types of its outputs
    node, tensors of its inputs         --shapes-->   sizes of its outputs
                                        --known-->    contents of its outputs, without any input's
    xp, node, arrays                    --compute-->  arrays: the definition

An operator holds nothing: what a node sets is in `node.attributes`, with ONNX's defaults filled in.
An input that is absent is None. Which versions, attributes, defaults and element types ONNX has is
read from ONNX's own schemas when a file is imported, so it is not repeated here.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

from tilewright.arrays.array import NDArray
from tilewright.errors import ShapeError
from tilewright.facts.dtypes import VALUES
from tilewright.nn.graph import Node, Shape, Tensor

Given = Sequence[Tensor | None]
FLOATS = ("float16", "bfloat16", "float32", "float64")
SIGNED = ("int8", "int16", "int32", "int64")
UNSIGNED = ("uint8", "uint16", "uint32", "uint64")
NUMBERS = (*FLOATS, *SIGNED, *UNSIGNED)
ALL = tuple(VALUES)


class Operator(ABC):
    """One meaning of an operator.

    name      as ONNX has it
    versions  of ONNX's operators whose meaning this is: each `since_version` by itself
    dtypes    element types that its inputs may have
    note      what of it is not taken, for the table of the docs
    """

    name: str
    versions: tuple[int, ...]
    dtypes: tuple[str, ...] = ALL
    note: str = ""

    def why_not(self, node: Node) -> str | None:
        """Why a node with these attributes, inputs and outputs cannot be taken; None where it can.

        Asked when a file is imported, before sizes are known.
        """
        return None

    def types(self, node: Node, given: Sequence[str]) -> tuple[str, ...]:
        """Element types of the outputs; "" among `given` where an input is absent.

        Those of the first input unless an operator says otherwise.
        """
        return (given[0],) * len(node.outputs)

    @abstractmethod
    def shapes(self, node: Node, given: Given) -> tuple[Shape, ...]:
        """Sizes of the outputs. Raises ShapeError for inputs that do not fit each other.

        Where sizes depend on an input's content (the shape given to Reshape), that input's `value`
        is there, or `content_of` raises.
        """

    def known(self, node: Node, given: Given) -> tuple[NDArray, ...] | None:
        """What the outputs hold although inputs are not known: the sizes that Shape gives, say."""
        return None

    @abstractmethod
    def compute(self, xp: Any, node: Node, *given: Any) -> Any:
        """The definition: an array, or a tuple of them where there are several outputs.

        xp     NumPy's namespace, or that of array-api-compat for torch or CuPy
        given  arrays of that namespace, None where an input is absent. On NumPy halves come as
               float32, and what is returned is rounded to the types that `types` gives
        """

    def scratch(self, node: Node, given: Given) -> int:
        """Bytes that the definition takes besides what it is given and gives, where that may be
        more than these: of padded copies, above all."""
        return 0

    def flops(self, node: Node, given: Given, made: Sequence[Tensor]) -> float:
        """Operations: an addition, a multiplication, a comparison each count one.

        One for each element that is given unless an operator says otherwise.
        """
        return float(sum(tensor.size for tensor in made))


class Elementwise(Operator):
    """Of inputs that broadcast against each other, one output of their common sizes."""

    def shapes(self, node: Node, given: Given) -> tuple[Shape, ...]:
        """The common sizes."""
        return (broadcast(*(tensor.shape for tensor in given if tensor is not None)),)


def broadcast(*shapes: Shape) -> Shape:
    """The common sizes of several arrays, by NumPy's rules. Raises ShapeError."""
    rank = max(map(len, shapes), default=0)
    found = []
    for sizes in zip(*((1,) * (rank - len(s)) + tuple(s) for s in shapes), strict=True):
        others = {size for size in sizes if size != 1}
        if len(others) > 1:
            texts = " and ".join(str(list(shape)) for shape in shapes)
            raise ShapeError(f"sizes {texts} do not broadcast")
        found.append(others.pop() if others else 1)
    return tuple(found)


def content_of(tensor: Tensor | None, what: str) -> NDArray:
    """An input's content where the sizes depend on it. Raises ShapeError where it is not known."""
    if tensor is None or tensor.value is None:
        raise ShapeError(f"{what} depends on what is passed at a run; accepted are constants")
    return tensor.value


def axis_of(axis: int, rank: int, what: str = "axis") -> int:
    """An axis counted from the front. Raises ShapeError where there is none of this number."""
    if not -rank <= axis < rank:
        raise ShapeError(f"{what}={axis}: accepted are {-rank} to {rank - 1}")
    return axis % rank


def computed_bytes(tensor: Tensor | None) -> int:
    """Of an element as definitions compute with it: NumPy takes halves as float32."""
    return 0 if tensor is None else max(4, VALUES[tensor.dtype])


def elements(shape: Shape) -> int:
    """How many."""
    return math.prod(shape)
