"""Tilewright: matrix multiplication for the shapes and devices that vendor BLAS leaves behind."""

import importlib as _importlib
import types as _types

from tilewright.arrays.array import Array
from tilewright.facts.device import Device
from tilewright.inputs.devices import devices
from tilewright.inputs.make import asarray, empty
from tilewright.inputs.ragged_batch import RaggedBatch
from tilewright.products.dense import explain, kernels, matmul
from tilewright.products.grouped import GroupedPlan, grouped_matmul, plan_grouped
from tilewright.products.ragged import ragged_matmul, synchronize
from tilewright.remember import forget
from tilewright.version import __version__ as __version__

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


def __getattr__(name: str) -> _types.ModuleType:
    """`tilewright.models`, `.nn`, `.onebit`, `.video`: loaded when somebody first asks for them."""
    if name not in ("models", "nn", "onebit", "video"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return _importlib.import_module(f"tilewright.{name}")
