"""The engines of convolutions on OpenCL devices, in the order in which they are asked."""

from __future__ import annotations

from collections.abc import Callable

from tilewright.backends.opencl.conv.chain import Chain
from tilewright.backends.opencl.conv.direct import Direct, DirectImage
from tilewright.backends.opencl.conv.gemm import Gemm
from tilewright.backends.opencl.conv.int8 import Int8
from tilewright.backends.opencl.conv.winograd import Winograd
from tilewright.engines.contract import Engine
from tilewright.engines.conv import ConvOperands, ConvWork

CONV_ENGINES: tuple[Engine[ConvWork, ConvOperands, Callable[[], None]], ...] = (
    Chain(),
    Direct(),
    DirectImage(),
    Gemm(),
    Winograd(),
    Int8(),
)
