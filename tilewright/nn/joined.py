"""Joins layers into passes over memory: a convolution, a shortcut and a sign may be one.

    conv -> add -> sign           one pass: the float is stored only if somebody else reads it
             |
             +---> next shortcut

A pure function of the layers. A pass begins with a layer that computes and may end with the
addition of a value that is there already, and with a sign, where `Layer.may_go_on` says so.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tilewright.nn.binding_host import Ending
from tilewright.nn.layers.add import Add
from tilewright.nn.layers.base import Layer
from tilewright.nn.layers.sign import Sign
from tilewright.nn.value import Value


@dataclass(frozen=True, slots=True)
class Pass:
    """One pass: the layer that computes, how it ends, and the names of all layers in it."""

    layer: Layer
    ending: Ending
    covers: tuple[str, ...]

    @property
    def reads(self) -> tuple[str, ...]:
        """Names of the values that it reads."""
        residual = self.ending.residual
        return self.layer.inputs if residual is None else (*self.layer.inputs, residual)


def plan_passes(
    layers: Sequence[Layer], values: Mapping[str, Value], output: str
) -> tuple[Pass, ...]:
    """The passes of a network, in the order of its layers."""
    users: dict[str, list[Layer]] = {name: [] for name in values}
    for layer in layers:
        for name in set(layer.inputs):
            users[name].append(layer)
    there = set(values) - {layer.name for layer in layers}
    absorbed: set[str] = set()
    passes = []
    for layer in layers:
        if layer.name in absorbed:
            continue
        made = _pass(layer, values, users, there, output)
        absorbed.update(made.covers)
        there.update(made.covers)
        passes.append(made)
    return tuple(passes)


def _pass(
    layer: Layer,
    values: Mapping[str, Value],
    users: Mapping[str, list[Layer]],
    there: set[str],
    output: str,
) -> Pass:
    name, residual, covers = layer.name, None, [layer.name]
    if not layer.may_go_on(values[name]):
        return Pass(layer, Ending(real=name), (name,))
    following = users[name]
    alone = len(following) == 1 and name != output
    if alone and isinstance(following[0], Add) and not isinstance(layer, Add):
        other = next((i for i in following[0].inputs if i != name), name)
        if other in there:
            residual, name = other, following[0].name
            covers.append(name)
    sign = next((user for user in users[name] if isinstance(user, Sign)), None)
    if sign is not None:
        covers.append(sign.name)
    stored = name == output or any(user is not sign for user in users[name])
    real = name if stored or sign is None else None
    bits, cut = (None, None) if sign is None else (sign.name, sign.cut)
    return Pass(layer, Ending(residual, real, bits, cut), tuple(covers))
