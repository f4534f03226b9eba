"""Which device a network is bound to, and the memory that it gets there."""

from __future__ import annotations

from tilewright import settings
from tilewright.backends.cuda.machine import driver
from tilewright.backends.host.products import PRODUCT_ENGINES
from tilewright.calls import network_gpu, network_opencl
from tilewright.engines.product import ProductEngine
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


def product_engines(device: Device) -> tuple[ProductEngine, ...]:
    """Who multiplies for networks there, in the order in which they are asked."""
    if device.backend == "cuda":
        return network_gpu.product_engines()
    if device.backend == "opencl":
        return network_opencl.product_engines(device)
    return PRODUCT_ENGINES


def home_of(plan: Plan) -> Home:
    """Memory for a plan's values on its device."""
    if plan.device.backend == "cuda":
        return TorchHome(plan.arena, f"cuda:{driver.ordinal_of(plan.device)}")
    return HostHome(plan.arena)
