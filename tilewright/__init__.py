"""Tilewright: matrix multiplication for the shapes and devices that vendor BLAS leaves behind."""

from tilewright.api import asarray, devices, empty, explain, kernels, matmul
from tilewright.device import Device
from tilewright.operands import Array

__all__ = ["Array", "Device", "asarray", "devices", "empty", "explain", "kernels", "matmul"]
__version__ = "0.1.0"
