"""Networks in files: an .npz of bits, half-precision weights, scales and thresholds.

    header        uint8: JSON in UTF-8: what `Layer.header` gives of every layer, and the network's
    N.weights     layer N. BitConv: uint8 [out, bytes], bit i of row o is weight i of [kernel,
                  kernel, in] (bit i % 8 of byte i // 8; 1 is +1). RealConv: float16
    N.scale, N.shift, N.cut  float32;  N.threshold  int32

`padding` of each binary convolution says what it was trained with: "zero" or "minus_one". Files are
read as `archives.py` does, then checked by every layer and by the network as a whole.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tilewright.arrays.array import NDArray
from tilewright.errors import FileError
from tilewright.nn.archives import read, write
from tilewright.nn.layers import found
from tilewright.nn.layers.base import Layer
from tilewright.nn.network_of_bits import Network

FORMAT = "tilewright onebit network"
VERSION = 1


def save(network: Network, path: str | Path) -> None:
    """Write a network. Raises FileError where the folder is absent or cannot be written."""
    header = {
        "format": FORMAT,
        "version": VERSION,
        "input": list(network.input_shape),
        "output": network.output,
        "labels": list(network.labels),
        "layers": [layer.header() for layer in network.layers],
    }
    write(
        path,
        header,
        {
            f"{index}.{name}": array
            for index, layer in enumerate(network.layers)
            for name, array in layer.arrays().items()
        },
    )


def load(path: str | Path) -> Network:
    """Read a network. Raises FileError for whatever `save` did not write; nothing is unpickled."""
    return read(path, "tilewright onebit convert", network_of)


def network_of(header: Mapping[str, Any], arrays: dict[str, NDArray]) -> Network:
    """The network of a header and of the arrays beside it. Raises FileError and others."""
    if header["format"] != FORMAT or header["version"] != VERSION:
        raise FileError(f"version {header['version']!r} of {header['format']!r}")
    layers = tuple(_build(i, fields, arrays) for i, fields in enumerate(header["layers"]))
    if arrays:
        raise FileError(f"arrays that belong to no layer: {', '.join(sorted(arrays)[:4])}")
    labels = tuple(str(name) for name in header["labels"])
    return Network(tuple(header["input"]), layers, header["output"], labels)


def _build(index: int, header: Mapping[str, Any], arrays: dict[str, NDArray]) -> Layer:
    """A layer from its header; its arrays are taken out of `arrays`."""
    given = dict(header)
    kind = given.pop("type")
    if kind not in found():
        raise FileError(f"layer {index}: type {kind!r}; accepted are {', '.join(found())}")
    layer: type[Layer] = found()[kind]
    named = {name: arrays.pop(f"{index}.{name}", None) for name in layer.vectors}
    return layer.restored(given, {n: array for n, array in named.items() if array is not None})
