"""`naive`: one element of C a work-item through any strides; the ladder's first rung."""

from tilewright.backends.opencl.strided_kernel import StridedKernel
from tilewright.kernel import Config

KERNEL = StridedKernel(
    "naive", entry="naive", ladder=(Config(),), cpu_ladder=(Config(),), smallest_k=0
)
