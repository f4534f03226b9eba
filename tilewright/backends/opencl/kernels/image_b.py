"""`image_b`: 4 x 8 elements of C a work-item; B as a texture, its row pitch the leading dimension.

Two load paths at once on Adreno 4xx and 5xx.
"""

from tilewright.backends.opencl.vector_kernel import Side, VectorKernel

KERNEL = VectorKernel("image_b", a=Side(), b=Side(image=True), micro_n=8)
