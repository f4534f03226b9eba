"""`Network`: a graph of operators that somebody trained, to be run, explained and bound."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from tilewright.errors import ArgumentError, DtypeError, OperandError, ShapeError
from tilewright.nn import evaluate
from tilewright.nn.graph import Graph, Input
from tilewright.nn.infer import operator_of, types
from tilewright.wording import short


@dataclass(frozen=True, eq=False)
class Network:
    """A network of ONNX's operators.

    graph  its nodes, inputs, outputs and constants
    """

    graph: Graph

    @property
    def inputs(self) -> tuple[Input, ...]:
        """Names, sizes (free ones by name) and element types of what `run` takes."""
        return self.graph.inputs

    @property
    def outputs(self) -> tuple[str, ...]:
        """Names of what `run` gives."""
        return self.graph.outputs

    @cached_property
    def types(self) -> Mapping[str, str]:
        """The element type of every value."""
        return MappingProxyType(types(self.graph))

    def run(self, *inputs: Any, **named: Any) -> Any:
        """The outputs by the definitions of the operators alone: slow, and what all is held to.

        Args:
            inputs: arrays of NumPy, torch or CuPy, all of one library, in the order of `inputs`.
            named: arrays by the names of inputs.

        Returns:
            An array of the same library, or a tuple of them where there are several outputs.

        Raises ArgumentError, OperandError, DtypeError, ShapeError.
        """
        given = self._given(inputs, named)
        found = evaluate.run(self.graph, operator_of, self.types, given)
        made = tuple(found[name] for name in self.outputs)
        return made[0] if len(made) == 1 else made

    def _given(self, inputs: tuple[Any, ...], named: Mapping[str, Any]) -> dict[str, Any]:
        """Arrays by name, checked."""
        names = [source.name for source in self.inputs]
        if len(inputs) > len(names):
            raise ArgumentError(f"{len(inputs)} inputs; accepted are {len(names)}: {names}")
        found = dict(zip(names, inputs, strict=False))
        for name, array in named.items():
            if name in found or name not in names:
                raise ArgumentError(f"input {name!r}: accepted is each of {names} once")
            found[name] = array
        absent = [name for name in names if name not in found]
        if absent:
            raise ArgumentError(f"input {absent[0]!r} is absent; accepted are {names}")
        sizes: dict[str, int] = {}
        return {source.name: _fitting(source, found[source.name], sizes) for source in self.inputs}


def _fitting(source: Input, array: Any, sizes: dict[str, int]) -> Any:
    """An array as an input takes it; `sizes` of free dimensions are the same everywhere."""
    if not hasattr(array, "dtype") or not hasattr(array, "shape"):
        raise OperandError(
            f"input {source.name!r}: {short(array)}; accepted are NumPy, torch and CuPy arrays"
        )
    check_shape(source, tuple(array.shape), sizes)
    dtype = str(array.dtype).split(".")[-1]
    if dtype != source.dtype and not (source.dtype == "bfloat16" and dtype == "float32"):
        raise DtypeError(f"input {source.name!r}: {dtype}; accepted is {source.dtype}")
    if not isinstance(array, np.ndarray | np.generic):
        return array
    return evaluate.rounded(array, source.dtype)


def check_shape(source: Input, shape: tuple[int, ...], sizes: dict[str, int]) -> None:
    """Raise ShapeError for sizes that an input does not take; learn those of free dimensions."""
    wanted = source.shape
    fits = wanted is None or (
        len(wanted) == len(shape)
        and all(
            size == (sizes.setdefault(free, size) if isinstance(free, str) else free)
            for free, size in zip(wanted, shape, strict=True)
        )
    )
    if not fits:
        learnt = ", ".join(f"{name} = {size}" for name, size in sizes.items())
        raise ShapeError(
            f"input {source.name!r}: shape {list(shape)}; accepted is {list(wanted or ())}"
            + (f" where {learnt}" if learnt else "")
        )


def import_onnx(model: str | Path | bytes) -> Network:
    """A network from an ONNX file, or its bytes.

    Args:
        model: any inputs and outputs, sizes free or not; opsets 7 to 28. Weights may lie in other
            files of the model's folder.

    Raises FileError: a file that is damaged or lies; and for operators, versions, attributes and
    element types that are not implemented: all of a model's at once, with the names of its nodes.
    """
    from tilewright.nn.onnx.general import read_graph

    return Network(read_graph(model))
