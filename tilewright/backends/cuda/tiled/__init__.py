"""Batches by tiles, in our Triton kernels on every GPU, in CUDA C++ where fp32 gains by it."""

from tilewright.backends.cuda.tiled.engine import CudaGrouped, TritonGrouped, TritonWhole

ENGINES = (CudaGrouped(), TritonGrouped(), TritonWhole())
