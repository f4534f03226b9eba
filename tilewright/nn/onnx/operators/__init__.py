"""ONNX's operators that the importer takes, by family; files here are found, nothing lists them."""

import importlib
import pkgutil

from tilewright.nn.onnx.table import OPERATORS

__all__ = ["OPERATORS"]

for _item in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_item.name}")
