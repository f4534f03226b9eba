"""`image_a`: 4 x 4 elements of C a work-item; A as a texture, B as a buffer (Mali-G77)."""

from tilewright.backends.opencl.vector_kernel import Side, VectorKernel

KERNEL = VectorKernel("image_a", a=Side(image=True), b=Side())
