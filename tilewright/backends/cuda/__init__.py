"""CUDA and ROCm on PyTorch's streams and memory: kernels in Triton, and in CUDA C++ for NVIDIA.

Nothing here imports torch or Triton before a GPU's driver and both packages are known to be there.
"""

from tilewright.backends.cuda.backend import Cuda

BACKEND = Cuda()
