"""Engines for every GPU that torch and Triton reach: the vendor's BLAS, and our Triton kernels."""

from tilewright.backends.cuda.portable.grouped import CudaGrouped, TritonGrouped, TritonWhole
from tilewright.backends.cuda.portable.vendor import VendorBlas

ENGINES = (VendorBlas(), CudaGrouped(), TritonGrouped(), TritonWhole())
