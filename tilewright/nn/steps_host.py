"""A network's steps on the host: its passes one after another, each bound to compiled kernels.

joined.py -> Layer.bind (layers/) -> binding_host.py: buffers, tables, weights -> Step
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tilewright.nn.binding_host import Binding
from tilewright.nn.joined import plan_passes
from tilewright.nn.layers.base import Layer
from tilewright.nn.value import Value


def build(
    layers: Sequence[Layer],
    values: Mapping[str, Value],
    output: str,
    images: int,
    *,
    keep: bool = False,
) -> Binding:
    """Steps, where the input goes and each stored value lies, and the bytes of all of it."""
    passes = plan_passes(layers, values, output)
    last = {name: at for at, item in enumerate(passes) for name in item.reads}
    kept = {output} | (set(values) if keep else set())
    host = Binding(values, images, _borders(layers), last, kept)
    for position, item in enumerate(passes):
        host.begin(position, item.covers)
        item.layer.bind(host, item.ending)
        host.release(item.reads)
    return host


def _borders(layers: Sequence[Layer]) -> dict[str, int]:
    """The border that each value of bits needs: the widest of its readers'."""
    borders: dict[str, int] = {}
    for layer in layers:
        for name in layer.inputs:
            borders[name] = max(borders.get(name, 0), layer.border)
    return borders
