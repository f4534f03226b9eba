"""`image_ab`: 4 x 4 elements of C a work-item; A, B and by choice C as textures (Adreno 650)."""

from tilewright.backends.opencl.vector_kernel import Side, VectorKernel
from tilewright.facts.kernel import axis

KERNEL = VectorKernel(
    "image_ab",
    a=Side(image=True),
    b=Side(image=True),
    micro_m=4,
    micro_n=4,
    k_vector=4,
    stores_image=True,
    axes=(axis("micro_m", 1, 2, 4, 8), axis("micro_n", 4, 8, 16)),
)
