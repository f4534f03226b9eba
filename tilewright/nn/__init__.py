"""Networks: graphs of ONNX's operators, bound to a device and sizes, run by our own kernels.

import_onnx    a Network from an ONNX file, of any inputs, outputs and free sizes
load, save     of a file of ours, or of ONNX
Network        what it computes, by its operators' definitions; `bind` makes it ready for a device
Bound          what `bind` gives: called, it computes; Input, BoundStep, Row: what those tell
of_bits        a network of bits (`tilewright.onebit.Network`) as a Network, a node for each layer
quantise       the same network in int8, calibrated on samples; damage: what that costs
choose_types   a type for each layer: float32, float16 or int8
"""

import importlib as _importlib
import typing as _typing

if _typing.TYPE_CHECKING:
    from tilewright.nn.bound import Bound, BoundStep
    from tilewright.nn.choosing import LayerTypes, Types, choose_types
    from tilewright.nn.damages import Damage, damage
    from tilewright.nn.graph import Input
    from tilewright.nn.importing import import_onnx
    from tilewright.nn.net import Network
    from tilewright.nn.network_of_bits import of_bits
    from tilewright.nn.profile import Row
    from tilewright.nn.quantising import quantise
    from tilewright.nn.stored import load, save

__all__ = [
    "Bound",
    "BoundStep",
    "Damage",
    "Input",
    "LayerTypes",
    "Network",
    "Row",
    "Types",
    "choose_types",
    "damage",
    "import_onnx",
    "load",
    "of_bits",
    "quantise",
    "save",
]
_PLACES = {
    "Bound": "bound",
    "BoundStep": "bound",
    "Damage": "damages",
    "Input": "graph",
    "LayerTypes": "choosing",
    "Network": "net",
    "Row": "profile",
    "Types": "choosing",
    "choose_types": "choosing",
    "damage": "damages",
    "import_onnx": "importing",
    "load": "stored",
    "of_bits": "network_of_bits",
    "quantise": "quantising",
    "save": "stored",
}


def __getattr__(name: str) -> _typing.Any:
    """What the files here have under this name, loaded when somebody first asks for it."""
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = getattr(_importlib.import_module(f"{__name__}.{_PLACES[name]}"), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted([*globals(), *_PLACES])
