"""What layers that treat every element alone share: one kernel, one pass over memory."""

from __future__ import annotations

import math

import numpy as np

from tilewright.arrays.array import NDArray
from tilewright.backends.host import compiled
from tilewright.nn.binding_host import Binding, Ending
from tilewright.nn.layers.base import Layer
from tilewright.nn.weights import widened


def bind_map(
    layer: Layer,
    host: Binding,
    ending: Ending,
    *,
    scale: NDArray | None = None,
    shift: NDArray | None = None,
    low: float = -math.inf,
    high: float = math.inf,
    added: str | None = None,
) -> None:
    """A pass of min(max(scale * x + shift, low), high) and `added`; None changes nothing."""
    source = host.reals(layer.inputs[0])
    width = source.layout.pitch
    # -0 leaves every number as it is; 0 would turn -0 into 0.
    host.step(
        compiled.kernels("maps").map_real,
        source.data,
        np.ones(width, np.float32) if scale is None else widened(scale, 0),
        np.full(width, -0.0, np.float32) if shift is None else widened(shift, 0),
        np.float32(low),
        np.float32(high),
        host.tail(layer.name, layer.inputs, ending, added),
    )
