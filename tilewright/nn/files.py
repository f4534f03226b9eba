"""Networks in files: an .npz of bits, half-precision weights, scales and thresholds.

    header        uint8: JSON in UTF-8: what `Layer.header` gives of every layer, and the network's
    N.weights     layer N. BitConv: uint8 [out, bytes], bit i of row o is weight i of [kernel,
                  kernel, in] (bit i % 8 of byte i // 8; 1 is +1). RealConv: float16
    N.scale, N.shift, N.cut  float32;  N.threshold  int32

`padding` of each binary convolution says what it was trained with: "zero" or "minus_one". Files are
read with the checks of files/npz.py, then with those of every layer and of the network as a whole.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from tilewright.arrays.array import NDArray
from tilewright.errors import FileError, TilewrightError
from tilewright.files.npz import read_arrays, write_arrays
from tilewright.files.whole import path_of
from tilewright.nn.layers import found
from tilewright.nn.layers.base import Layer
from tilewright.nn.network_of_bits import Network
from tilewright.wording import in_one_line

FORMAT = "tilewright onebit network"
VERSION = 1


def save(network: Network, path: str | Path) -> None:
    """Write a network. Raises FileError where the folder is absent or cannot be written."""
    target = path_of(path)
    if target.suffix.lower() != ".npz":
        raise FileError(f"path={str(path)!r}: suffix {target.suffix!r}; accepted is .npz")
    header = {
        "format": FORMAT,
        "version": VERSION,
        "input": list(network.input_shape),
        "output": network.output,
        "labels": list(network.labels),
        "layers": [layer.header() for layer in network.layers],
    }
    text = json.dumps(header, separators=(",", ":"), allow_nan=False).encode()
    arrays: dict[str, NDArray] = {"header": np.frombuffer(text, np.uint8)}
    for index, layer in enumerate(network.layers):
        for name, array in layer.arrays().items():
            arrays[f"{index}.{name}"] = array
    write_arrays(target, arrays, "path")


def load(path: str | Path) -> Network:
    """Read a network. Raises FileError for whatever `save` did not write; nothing is unpickled."""
    label = f"path={str(path)!r}"
    arrays = read_arrays(path_of(path), "path")
    text = arrays.pop("header", None)
    if text is None or text.dtype != np.uint8:
        raise FileError(f"{label}: no network, but arrays; `tilewright onebit convert` makes one")
    try:
        header = json.loads(text.tobytes())
        if header["format"] != FORMAT or header["version"] != VERSION:
            raise FileError(f"version {header['version']!r} of {header['format']!r}")
        layers = tuple(_build(i, fields, arrays) for i, fields in enumerate(header["layers"]))
        if arrays:
            raise FileError(f"arrays that belong to no layer: {', '.join(sorted(arrays)[:4])}")
        labels = tuple(str(name) for name in header["labels"])
        return Network(tuple(header["input"]), layers, header["output"], labels)
    except TilewrightError as error:
        raise FileError(f"{label}: {error}") from None
    except KeyError as error:
        raise FileError(f"{label}: {error.args[0]!r} is missing") from None
    except (ValueError, TypeError, AttributeError, RecursionError, MemoryError) as error:
        raise FileError(f"{label}: its header is damaged ({in_one_line(error)})") from None


def _build(index: int, header: Mapping[str, Any], arrays: dict[str, NDArray]) -> Layer:
    """A layer from its header; its arrays are taken out of `arrays`."""
    given = dict(header)
    kind = given.pop("type")
    if kind not in found():
        raise FileError(f"layer {index}: type {kind!r}; accepted are {', '.join(found())}")
    layer: type[Layer] = found()[kind]
    named = {name: arrays.pop(f"{index}.{name}", None) for name in layer.vectors}
    return layer.restored(given, {n: array for n, array in named.items() if array is not None})
