"""`image_a`: 4 x 4 elements of C a work-item; A as a texture, B as a buffer (Mali-G77)."""

from tilewright.backends.opencl.vector_kernel import Side, VectorKernel
from tilewright.facts.kernel import axis

KERNEL = VectorKernel(
    "image_a",
    a=Side(image=True),
    b=Side(),
    micro_m=4,
    micro_n=4,
    k_vector=4,
    axes=(axis("micro_m", 1, 2, 4, 8), axis("micro_n", 4, 8, 16)),
)
