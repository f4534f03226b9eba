"""Back ends, discovered by folder: nothing else in the project lists them.

A back end is a folder here whose package has a `BACKEND` object with the methods of
`engines.backend.Backend`. A module or package `bits` there with a `PLACE` offers one-bit products.
"""

from __future__ import annotations

import importlib
import importlib.util
import pkgutil
from collections.abc import Callable
from functools import cache

from tilewright.engines.backend import Backend
from tilewright.engines.bits import BitPlace
from tilewright.engines.contract import Engine
from tilewright.engines.conv import ConvOperands, ConvWork
from tilewright.engines.values import ValueOperands, ValueWork

ValueEngine = Engine[ValueWork, ValueOperands, Callable[[], None]]
ConvEngine = Engine[ConvWork, ConvOperands, Callable[[], None]]


@cache
def backends() -> dict[str, Backend]:
    """Every back end whose folder is here, by name."""
    return {name: _load(name) for name in _folders()}


@cache
def places() -> dict[str, BitPlace]:
    """The place of every back end that has one, by the back end's name; the host last."""
    found: dict[str, BitPlace] = {}
    for name in sorted(_folders(), key=lambda name: (name == "host", name)):
        module = f"{__name__}.{name}.bits"
        if importlib.util.find_spec(module) is not None:
            found[name] = importlib.import_module(module).PLACE
    return found


@cache
def conv_engines(name: str) -> tuple[ConvEngine, ...]:
    """The engines of convolutions of a back end, in the order in which they are asked."""
    for module in (f"{__name__}.{name}.conv.engines", f"{__name__}.{name}.conv"):
        try:
            found = importlib.util.find_spec(module)
        except ModuleNotFoundError:  # its parent is no package, or is not there
            found = None
        if found is not None:
            engines: tuple[ConvEngine, ...] = importlib.import_module(module).CONV_ENGINES
            return engines
    return ()


@cache
def value_engines(name: str) -> tuple[ValueEngine, ...]:
    """The engines of other operators of a back end: windows, elements, sums along axes."""
    module = f"{__name__}.{name}.values"
    if importlib.util.find_spec(module) is None:
        return ()
    engines: tuple[ValueEngine, ...] = importlib.import_module(module).VALUE_ENGINES
    return engines


def _folders() -> list[str]:
    return sorted(module.name for module in pkgutil.iter_modules(__path__) if module.ispkg)


def _load(name: str) -> Backend:
    backend: Backend = importlib.import_module(f"{__name__}.{name}").BACKEND
    return backend
