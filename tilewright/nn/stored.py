"""Networks in files: a graph of operators as an .npz, or an ONNX file as it is.

    header    uint8: JSON in UTF-8: inputs, outputs, nodes with their attributes, types of constants
    N         constant N, or tensor N of an attribute, in the order of the header

Bfloat16 is held as float32, as in `graph.Tensor`. A file is read with distrust: first files/npz.py,
then every node by ONNX's own schemas, as those of an ONNX file are.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from tilewright.arrays.array import NDArray
from tilewright.errors import ArgumentError, FileError
from tilewright.facts.dtypes import VALUES
from tilewright.files.whole import path_of
from tilewright.nn import files
from tilewright.nn.archives import read, write
from tilewright.nn.graph import Graph, Input, Node, Tensor
from tilewright.nn.importing import import_onnx
from tilewright.nn.infer import types
from tilewright.nn.net import Network
from tilewright.nn.network_of_bits import bits_of, of_bits
from tilewright.nn.onnx.schemas import stored_node
from tilewright.nn.onnx.typed import mistyped
from tilewright.wording import short

FORMAT = "tilewright network"
VERSION = 1


def save(network: Network, path: str | Path) -> None:
    """Write a network as an .npz, a whole file or none.

    Raises FileError where the folder is absent or cannot be written, ArgumentError for what is no
    network, or has nodes that ONNX does not have. Networks of bits are written as by `onebit.save`.
    """
    if not isinstance(network, Network):
        raise ArgumentError(f"network={short(network)}: accepted are networks, as load gives them")
    bits = bits_of(network)
    if bits is not None:
        files.save(bits, path)
        return
    graph, arrays = network.graph, _Arrays()
    header = {
        "format": FORMAT,
        "version": VERSION,
        "inputs": [
            [s.name, None if s.shape is None else list(s.shape), s.dtype] for s in graph.inputs
        ],
        "outputs": list(graph.outputs),
        "constants": [[n, t.dtype, arrays.add(t.value)] for n, t in graph.constants.items()],
        "nodes": [_node_header(node, arrays) for node in graph.nodes],
    }
    write(path, header, arrays.found)


def load(path: str | Path) -> Network:
    """A network from a file: an .npz that `save` or `onebit.save` wrote, or an ONNX file.

    Raises FileError for whatever else, naming what is wrong with it; nothing is unpickled.
    """
    source = path_of(path)
    if source.suffix.lower() != ".npz":
        return import_onnx(source)

    def made(header: dict[str, Any], arrays: dict[str, NDArray]) -> Network:
        if header["format"] == files.FORMAT:
            return of_bits(files.network_of(header, arrays), source.stem)
        if header["format"] != FORMAT or header["version"] != VERSION:
            said = f"version {header['version']!r} of {header['format']!r}"
            raise FileError(f"{said}; accepted is version {VERSION} of {FORMAT!r}")
        graph = _graph(header, arrays)
        types(graph, mistyped)
        return Network(graph, source.stem)

    return read(path, "tilewright net convert", made)


class _Arrays:
    """Arrays by number."""

    def __init__(self) -> None:
        self.found: dict[str, NDArray] = {}

    def add(self, array: Any) -> str:
        name = str(len(self.found))
        self.found[name] = np.asarray(array)
        return name


def _node_header(node: Node, arrays: _Arrays) -> dict[str, Any]:
    if not all(_storable(value) for value in node.attributes.values()):
        raise ArgumentError(f"network: {node.title} is not ONNX's; accepted are operators of ONNX")
    return {
        "operator": node.operator,
        "version": node.version,
        "inputs": list(node.inputs),
        "outputs": list(node.outputs),
        "name": node.name,
        "attributes": {name: _plain(value, arrays) for name, value in node.attributes.items()},
    }


def _storable(value: Any) -> bool:
    if isinstance(value, tuple | list):
        return all(_storable(one) for one in value)
    return isinstance(value, np.ndarray | int | float | str)


def _plain(value: Any, arrays: _Arrays) -> Any:
    """An attribute as JSON has it; arrays, and numbers that JSON lacks, by a mark."""
    if isinstance(value, np.ndarray):
        return {"array": arrays.add(value)}
    if isinstance(value, float) and not math.isfinite(value):
        return {"number": str(value)}
    return [_plain(one, arrays) for one in value] if isinstance(value, tuple | list) else value


def _graph(header: Mapping[str, Any], arrays: dict[str, NDArray]) -> Graph:
    """The graph of a header; its arrays are taken out of `arrays`. Raises FileError and others."""
    constants = {}
    for name, dtype, at in header["constants"]:
        array = arrays.pop(at)
        held = "float32" if dtype == "bfloat16" else dtype
        if dtype not in VALUES or array.dtype.name != held:
            raise FileError(f"constant {name!r}: {array.dtype} as {dtype!r}; accepted is its type")
        constants[_text(name)] = Tensor(array.shape, dtype, array)
    nodes = tuple(_node(fields, arrays) for fields in header["nodes"])
    if arrays:
        raise FileError(f"arrays that belong to nothing: {', '.join(sorted(arrays)[:4])}")
    inputs = tuple(_input(*fields) for fields in header["inputs"])
    outputs = tuple(map(_text, header["outputs"]))
    if not outputs or len(set(outputs)) < len(outputs):
        raise FileError(f"outputs {list(outputs)}; accepted are one and more, each once")
    return Graph(nodes, inputs, outputs, constants)


def _input(name: Any, shape: Any, dtype: Any) -> Input:
    if dtype not in VALUES:
        raise FileError(f"input {name!r}: {dtype!r}; accepted are {', '.join(VALUES)}")
    sizes = None if shape is None else tuple(shape)
    for size in sizes or ():
        if not isinstance(size, str) and (type(size) is not int or size < 0):
            raise FileError(f"input {name!r}: size {size!r}; accepted are numbers from 0 and names")
    return Input(_text(name), sizes, dtype)


def _node(fields: Mapping[str, Any], arrays: dict[str, NDArray]) -> Node:
    given = {_text(n): _attribute(value, arrays) for n, value in fields["attributes"].items()}
    return stored_node(
        _text(fields["operator"]),
        fields["version"],
        [_text(name) for name in fields["inputs"]],
        [_text(name) for name in fields["outputs"]],
        given,
        _text(fields["name"]),
    )


def _attribute(value: Any, arrays: dict[str, NDArray]) -> Any:
    if isinstance(value, list):
        return tuple(_attribute(one, arrays) for one in value)
    if isinstance(value, dict):
        return float(value["number"]) if "number" in value else arrays.pop(value["array"])
    return value


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise FileError(f"{value!r} where a name is expected")
    return value
