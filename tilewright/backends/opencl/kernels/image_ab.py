"""`image_ab`: 4 x 4 elements of C a work-item; A, B and by choice C as textures (Adreno 650)."""

from tilewright.backends.opencl.vector_kernel import Side, VectorKernel

KERNEL = VectorKernel("image_ab", a=Side(image=True), b=Side(image=True), stores_image=True)
