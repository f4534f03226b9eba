"""Tilewright: matrix multiplication for the shapes and devices that vendor BLAS leaves behind."""

from tilewright.api import asarray, devices, empty, explain, kernels, matmul
from tilewright.device import Device
from tilewright.grouped import GroupedPlan, grouped_matmul, plan_grouped
from tilewright.operands import Array
from tilewright.ragged import RaggedBatch

__all__ = [
    "Array",
    "Device",
    "GroupedPlan",
    "RaggedBatch",
    "asarray",
    "devices",
    "empty",
    "explain",
    "grouped_matmul",
    "kernels",
    "matmul",
    "plan_grouped",
]
__version__ = "0.1.0"
