"""The layers of networks of bits, a file a family: what one computes, checks, stores and launches.

    base.py   what every layer offers       conv.py   what the convolutions share

Adding a layer is adding a class of `Layer` to a file here; `found` finds it by its name.
To be public it needs its name in onebit/layers.py, docs/names.md and docs/onebit-networks.md too.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import pkgutil
from collections.abc import Mapping
from typing import Any


@functools.cache
def found() -> Mapping[str, Any]:
    """The classes of all operators by name, as files of networks name them."""
    modules = [
        importlib.import_module(f"{__name__}.{item.name}")
        for item in pkgutil.iter_modules(__path__)
    ]
    return {
        name: thing
        for module in modules
        for name, thing in vars(module).items()
        if inspect.isclass(thing)
        and thing.__module__ == module.__name__
        and not inspect.isabstract(thing)
    }
