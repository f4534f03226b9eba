"""One-bit matrices: elements of {-1, +1} packed 64 a word, multiplied by xor and popcount.

pack, unpack     arrays to `BitMatrix` and back
matmul           exact products of bits; scale and shift, or a threshold and bits again, in one pass
grouped_matmul   many products of different sizes in one call
explain          which kernel a product would run on, and why
Conv2d           convolution of bits, exact zeros or -1 round the image
Network          layers of bits and of reals (`tilewright.onebit.layers`), run on the host
import_onnx      a Network from a float graph, every layer compared with it
load, save       networks in files
"""

from tilewright.onebit.bits import BitMatrix, pack, unpack
from tilewright.onebit.conv import Conv2d
from tilewright.onebit.files import load, save
from tilewright.onebit.network import Network
from tilewright.onebit.onnx_import import import_onnx
from tilewright.onebit.product import explain, grouped_matmul, kernels, matmul

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
