"""One-bit matrices: elements of {-1, +1} packed 64 a word, multiplied by xor and popcount.

pack, unpack     arrays to `BitMatrix` and back
matmul           exact products of bits; scale and shift, or a threshold and bits again, in one pass
grouped_matmul   many products of different sizes in one call
explain          which kernel a product would run on, and why
Conv2d           convolution of bits, exact zeros or -1 round the image
Network          layers of bits and of reals (`tilewright.onebit.layers`), run on the host
import_onnx      a Network from a float graph, every layer compared with it
load, save       networks in files

The last four lie in `tilewright.nn`, which is built on what is here, and are imported when first
asked for.
"""

import importlib as _importlib
import typing as _typing

from tilewright.onebit.matrix import BitMatrix, pack, unpack
from tilewright.onebit.product import explain, grouped_matmul, kernels, matmul

if _typing.TYPE_CHECKING:
    from tilewright.nn.conv2d import Conv2d
    from tilewright.nn.files import load, save
    from tilewright.nn.network_of_bits import Network
    from tilewright.nn.onnx.load import import_onnx

__all__ = [
    "BitMatrix",
    "Conv2d",
    "Network",
    "explain",
    "grouped_matmul",
    "import_onnx",
    "kernels",
    "load",
    "matmul",
    "pack",
    "save",
    "unpack",
]
_NETWORKS = {
    "Conv2d": "conv2d",
    "Network": "network_of_bits",
    "import_onnx": "onnx.load",
    "load": "files",
    "save": "files",
}


def __getattr__(name: str) -> _typing.Any:
    """What `tilewright.nn` has under this name; the modules of layers among them."""
    if name == "layers":
        return _importlib.import_module("tilewright.onebit.layers")
    if name not in _NETWORKS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = getattr(_importlib.import_module(f"tilewright.nn.{_NETWORKS[name]}"), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted([*globals(), *_NETWORKS, "layers"])
