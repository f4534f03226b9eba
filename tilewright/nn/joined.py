"""Joins layers into passes over memory: a convolution, a shortcut and a sign may be one.

    conv -> add -> sign           one pass: the float is stored only if somebody else reads it
             |
             +---> next shortcut

A pure function of the layers. A pass begins with a layer that computes and may end with the
addition of a value that is there already, and with a sign, where `Layer.may_go_on` says so.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from tilewright.nn.binding_host import Ending
from tilewright.nn.layers.base import Layer
from tilewright.nn.layers.maps import Add, Sign
from tilewright.nn.value import Value


@dataclass(frozen=True, slots=True, eq=False)
class Pass:
    """One pass: what engines of layers are asked.

    layers   the one that computes, and those that its end does
    ending   what is added to the result, and what of it is stored
    values   kinds and sizes of what its layers read and give, for one picture
    borders  pixels of zeros round values of bits, where their readers need any
    """

    layers: tuple[Layer, ...]
    ending: Ending
    values: Mapping[str, Value]
    borders: Mapping[str, int]

    @property
    def covers(self) -> tuple[str, ...]:
        """Names of its layers."""
        return tuple(layer.name for layer in self.layers)

    @property
    def kind(self) -> str:
        """Its layers in a few words."""
        return " + ".join(type(layer).__name__ for layer in self.layers)

    @property
    def reads(self) -> tuple[str, ...]:
        """Names of the values that it reads."""
        residual, inputs = self.ending.residual, self.layers[0].inputs
        return tuple(dict.fromkeys(inputs if residual is None else (*inputs, residual)))

    @property
    def stores(self) -> tuple[str, ...]:
        """Names of the values that it stores."""
        return tuple(name for name in (self.ending.real, self.ending.sign) if name is not None)


def plan_passes(
    layers: Sequence[Layer],
    values: Mapping[str, Value],
    wanted: Collection[str],
    there: Collection[str] = ("input",),
) -> tuple[Pass, ...]:
    """The passes of layers, in their order.

    Args:
        layers: each after those whose values it reads.
        values: kinds and sizes of what they read and give.
        wanted: values that others read.
        there: values that exist before the first layer.
    """
    users: dict[str, list[Layer]] = {name: [] for name in values}
    borders: dict[str, int] = {}
    for layer in layers:
        for name in set(layer.inputs):
            users[name].append(layer)
            borders[name] = max(borders.get(name, 0), layer.border)
    known, absorbed = set(there), set[str]()
    passes = []
    for layer in layers:
        if layer.name in absorbed:
            continue
        covers, ending = _joined(layer, values, users, known, wanted)
        names = {name for one in covers for name in (one.name, *one.inputs)}
        made = Pass(covers, ending, {name: values[name] for name in names}, borders)
        absorbed.update(made.covers)
        known.update(made.covers)
        passes.append(made)
    return tuple(passes)


def _joined(
    layer: Layer,
    values: Mapping[str, Value],
    users: Mapping[str, list[Layer]],
    there: set[str],
    wanted: Collection[str],
) -> tuple[tuple[Layer, ...], Ending]:
    """The layers of the pass that begins with a layer, and how it ends."""
    name, residual, covers = layer.name, None, [layer]
    if not layer.may_go_on(values[name]):
        return (layer,), Ending(real=name)
    following = users[name]
    alone = len(following) == 1 and name not in wanted
    if alone and isinstance(following[0], Add) and not isinstance(layer, Add):
        other = next((i for i in following[0].inputs if i != name), name)
        if other in there:
            residual, name = other, following[0].name
            covers.append(following[0])
    sign = next((user for user in users[name] if isinstance(user, Sign)), None)
    if sign is not None:
        covers.append(sign)
    stored = name in wanted or any(user is not sign for user in users[name])
    real = name if stored or sign is None else None
    bits, cut = (None, None) if sign is None else (sign.name, sign.cut)
    return tuple(covers), Ending(residual, real, bits, cut)
