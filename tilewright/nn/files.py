"""Networks in files: an .npz of bits, half-precision weights, scales and thresholds.

    header        uint8: JSON in UTF-8: what `_describe` gives of every layer, and the network's
    N.weights     layer N. BitConv: uint8 [out, bytes], bit i of row o is weight i of [kernel,
                  kernel, in] (bit i % 8 of byte i // 8; 1 is +1). RealConv: float16
    N.scale, N.shift, N.cut  float32;  N.threshold  int32

`padding` of each binary convolution says what it was trained with: "zero" or "minus_one". Files are
read with the checks of files/npz.py, then with those of every layer and of the network as a whole.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tilewright.errors import FileError, TilewrightError
from tilewright.files.npz import read_arrays, write_arrays
from tilewright.files.whole import path_of
from tilewright.nn import layers as kinds
from tilewright.nn.layers import AveragePool, BitConv, Clamp, Layer, RealConv
from tilewright.nn.network import Network
from tilewright.nn.window import Window
from tilewright.onebit.matrix import BitMatrix, pack, unpack

NDArray = npt.NDArray[Any]
FORMAT = "tilewright onebit network"
VERSION = 1
_TYPES = (
    "Sign",
    "BitConv",
    "RealConv",
    "Affine",
    "Clamp",
    "Add",
    "MaxPool",
    "AveragePool",
    "Flatten",
)
_VECTORS = ("scale", "shift", "cut", "threshold")
_WINDOW = ("kernel", "stride", "dilation", "pads")


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
        "layers": [_describe(layer) for layer in network.layers],
    }
    text = json.dumps(header, separators=(",", ":"), allow_nan=False).encode()
    arrays: dict[str, NDArray] = {"header": np.frombuffer(text, np.uint8)}
    for index, layer in enumerate(network.layers):
        for name, array in _arrays(layer).items():
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
        why = " ".join(str(error).split()) or type(error).__name__
        raise FileError(f"{label}: its header is damaged ({why})") from None


def _describe(layer: Layer) -> dict[str, Any]:
    """A layer without its arrays, as JSON."""
    fields: dict[str, Any] = {
        "type": type(layer).__name__,
        "name": layer.name,
        "inputs": list(layer.inputs),
    }
    window = getattr(layer, "window", None)
    if window is not None:
        fields["window"] = {name: list(getattr(window, name)) for name in _WINDOW}
    if isinstance(layer, BitConv | RealConv):
        fields["groups"] = layer.groups
    if isinstance(layer, BitConv):
        fields |= {"shape": list(layer.weights.shape), "padding": layer.padding}
    if isinstance(layer, Clamp):
        limits = {"low": layer.low, "high": layer.high}
        fields |= {name: v if math.isfinite(v) else None for name, v in limits.items()}
    if isinstance(layer, AveragePool):
        fields["count_padding"] = layer.count_padding
    return fields


def _arrays(layer: Layer) -> dict[str, NDArray]:
    arrays = {}
    if isinstance(layer, RealConv):
        arrays["weights"] = layer.weights
    if isinstance(layer, BitConv):
        ones = unpack(layer.weights, dtype=bool).reshape(layer.outputs, -1)
        arrays["weights"] = np.packbits(ones, axis=-1, bitorder="little")
    for name in _VECTORS:
        array = getattr(layer, name, None)
        if array is not None:
            arrays[name] = array
    return arrays


def _build(index: int, fields: Any, arrays: dict[str, NDArray]) -> Layer:
    """A layer from its description; its arrays are taken out of `arrays`."""
    given = dict(fields)
    kind = given.pop("type")
    if kind not in _TYPES:
        raise FileError(f"layer {index}: type {kind!r}; accepted are {', '.join(_TYPES)}")
    given["inputs"] = tuple(given["inputs"])
    if "window" in given:
        given["window"] = Window(**{n: tuple(given["window"][n]) for n in _WINDOW})
    for name in ("low", "high"):
        if name in given and given[name] is None:
            given[name] = -math.inf if name == "low" else math.inf
    for name in ("weights", *_VECTORS):
        array = arrays.pop(f"{index}.{name}", None)
        if array is not None:
            given[name] = array
    if kind == "BitConv":
        given["weights"] = _bits(given["weights"], given.pop("shape"), given["name"])
    layer: Layer = getattr(kinds, kind)(**given)
    return layer


def _bits(octets: NDArray, shape: Any, name: str) -> BitMatrix:
    """Bits [out, bytes] as a BitMatrix of `shape`."""
    whole = isinstance(shape, list) and len(shape) == 4 and all(type(s) is int for s in shape)
    if not whole or min(shape) < 1:
        raise FileError(f"layer {name!r}: shape={shape!r}; accepted are four sizes")
    length = math.prod(shape[1:])
    if octets.dtype != np.uint8 or octets.shape != (shape[0], -(-length // 8)):
        raise FileError(
            f"layer {name!r}: weights {octets.dtype} {octets.shape} do not hold shape={shape}"
        )
    if length % 8 and np.any(octets[:, -1] >> (length % 8)):
        raise FileError(f"layer {name!r}: weights have bits past their {length}")
    ones = np.unpackbits(octets, axis=-1, count=length, bitorder="little").view(np.bool_)
    return pack(ones.reshape(shape))
