"""`image_b`: 4 x 8 elements of C a work-item; B as a texture, its row pitch the leading dimension.

Two load paths at once on Adreno 4xx and 5xx.
"""

from tilewright.backends.opencl.vector_kernel import Side, VectorKernel
from tilewright.facts.kernel import axis

KERNEL = VectorKernel(
    "image_b",
    a=Side(),
    b=Side(image=True),
    micro_m=4,
    micro_n=8,
    k_vector=4,
    axes=(axis("micro_m", 1, 2, 4, 8), axis("micro_n", 4, 8, 16)),
)
