"""Tilewright: matrix multiplication for the shapes and devices that vendor BLAS leaves behind."""

import importlib as _importlib
import types as _types

from tilewright.api import asarray, devices, empty, explain, kernels, matmul
from tilewright.device import Device
from tilewright.device_sizes import ragged_matmul, synchronize
from tilewright.grouped import GroupedPlan, grouped_matmul, plan_grouped
from tilewright.operands import Array
from tilewright.ragged import RaggedBatch
from tilewright.remember import forget

__all__ = [
    "Array",
    "Device",
    "GroupedPlan",
    "RaggedBatch",
    "asarray",
    "devices",
    "empty",
    "explain",
    "forget",
    "grouped_matmul",
    "kernels",
    "matmul",
    "plan_grouped",
    "ragged_matmul",
    "synchronize",
]
__version__ = "0.1.0"


def __getattr__(name: str) -> _types.ModuleType:
    """`tilewright.onebit`, loaded when somebody first asks for it."""
    if name != "onebit":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return _importlib.import_module("tilewright.onebit")
