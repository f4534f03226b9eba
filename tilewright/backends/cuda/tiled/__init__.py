"""Batches by tiles: our Triton kernels on every GPU, CUDA C++ where fp32 and fp64 gain by it."""

from tilewright.backends.cuda.tiled.engine import CudaGrouped, TritonGrouped, TritonWhole
from tilewright.backends.cuda.tiled.small import CudaSmall

ENGINES = (CudaGrouped(), TritonGrouped(), CudaSmall(), TritonWhole())
