"""Which device a network is bound to, and the memory that it gets there."""

from __future__ import annotations

from tilewright import settings
from tilewright.backends.cuda.machine import driver
from tilewright.facts.device import Device
from tilewright.inputs.devices import devices, host, resolve
from tilewright.nn.graph import Graph
from tilewright.nn.homes import Home, HostHome, TorchHome
from tilewright.nn.operators.bits import LAYER
from tilewright.nn.plan import Plan


def device_of(wanted: Device | str, graph: Graph) -> Device:
    """The device that `device=` means: "auto" is TILEWRIGHT_DEVICE, else a GPU, else the host.

    Layers of bits have kernels on the host alone, so "auto" is the host for them.
    """
    if wanted == "auto" and any(node.operator == LAYER for node in graph.nodes):
        return host()
    if wanted != "auto":
        return resolve(wanted)
    if settings.device():
        return resolve(None)
    return next((device for device in devices() if device.kind == "gpu"), host())


def home_of(plan: Plan) -> Home:
    """Memory for a plan's values on its device."""
    if plan.device.backend == "cuda":
        return TorchHome(plan.arena, f"cuda:{driver.ordinal_of(plan.device)}")
    return HostHome(plan.arena)
