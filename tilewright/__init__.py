"""Tilewright: matrix multiplication for the shapes and devices that vendor BLAS leaves behind."""

import importlib as _importlib
import typing as _typing

if _typing.TYPE_CHECKING:
    from tilewright.arrays.array import Array
    from tilewright.facts.device import Device
    from tilewright.inputs.devices import devices
    from tilewright.inputs.make import asarray, empty
    from tilewright.inputs.ragged_batch import RaggedBatch
    from tilewright.planning.ranks import Share, split
    from tilewright.products.block_sparse import bsr_matmul
    from tilewright.products.dense import explain, kernels, matmul
    from tilewright.products.fp8 import quantise_fp8, quantise_int8
    from tilewright.products.grouped import GroupedPlan, grouped_matmul, plan_grouped
    from tilewright.products.moe import explain_moe, moe
    from tilewright.products.ragged import explain_ragged, ragged_matmul, synchronize
    from tilewright.remember import forget
    from tilewright.version import __version__ as __version__

__all__ = [
    "Array",
    "Device",
    "GroupedPlan",
    "RaggedBatch",
    "Share",
    "asarray",
    "bsr_matmul",
    "devices",
    "empty",
    "explain",
    "explain_moe",
    "explain_ragged",
    "forget",
    "grouped_matmul",
    "kernels",
    "matmul",
    "moe",
    "plan_grouped",
    "quantise_fp8",
    "quantise_int8",
    "ragged_matmul",
    "split",
    "synchronize",
]
_PACKAGES = ("errors", "models", "nn", "onebit", "video")
# Where each lies. Loaded when somebody first asks, so that a command hears Ctrl-C from the start.
_PLACES = {
    "Array": "arrays.array",
    "Device": "facts.device",
    "GroupedPlan": "products.grouped",
    "RaggedBatch": "inputs.ragged_batch",
    "Share": "planning.ranks",
    "__version__": "version",
    "asarray": "inputs.make",
    "bsr_matmul": "products.block_sparse",
    "devices": "inputs.devices",
    "empty": "inputs.make",
    "explain": "products.dense",
    "explain_moe": "products.moe",
    "explain_ragged": "products.ragged",
    "forget": "remember",
    "grouped_matmul": "products.grouped",
    "kernels": "products.dense",
    "matmul": "products.dense",
    "moe": "products.moe",
    "plan_grouped": "products.grouped",
    "quantise_fp8": "products.fp8",
    "quantise_int8": "products.fp8",
    "ragged_matmul": "products.ragged",
    "split": "planning.ranks",
    "synchronize": "products.ragged",
}


def __getattr__(name: str) -> _typing.Any:
    """A public name, `.errors`, or one of the packages `.models`, `.nn`, `.onebit`, `.video`."""
    if name in _PACKAGES:
        return _importlib.import_module(f"tilewright.{name}")
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = getattr(_importlib.import_module(f"tilewright.{_PLACES[name]}"), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *_PLACES, *_PACKAGES})
