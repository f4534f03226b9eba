"""`dot4`: one element of C a work-item, 4-wide dot products along a zero-padded k (Midgard)."""

from tilewright.backends.opencl.vector_kernel import Side, VectorKernel
from tilewright.facts.kernel import axis

KERNEL = VectorKernel(
    "dot4",
    a=Side(),
    b=Side(transposed=True),
    micro_m=1,
    micro_n=1,
    k_vector=4,
    own_multiply_add=True,
    axes=(axis("micro_m", 1, 2, 4), axis("micro_n", 1, 2, 4), axis("wide_sum", 0, 1)),
)
