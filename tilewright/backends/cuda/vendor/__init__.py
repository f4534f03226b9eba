"""The vendor's own BLAS: cuBLAS or hipBLASLt."""

from tilewright.backends.cuda.vendor.engine import VendorBlas

ENGINES = (VendorBlas(),)
