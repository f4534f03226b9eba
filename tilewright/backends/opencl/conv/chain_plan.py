"""How conv_chain.cl cuts a work: strips of columns, parts of rows, memory of each; pure numbers.

A strip's sides are computed by its neighbours too, a column a layer; strips of whole blocks of
tiles waste no sums. So every number of strips and of parts is priced, and the cheapest taken.
"""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.backends.opencl.lowering import round_up
from tilewright.engines.conv import Conv, ConvWork
from tilewright.facts.device import Device

_FEW = 4  # inputs of a first layer that is summed plainly: Winograd would pad them to 16
_WIDEST = 128
_KINDS = 4  # K0 .. K3 of conv_chain.cl
# Measured with the sketch of this kernel on an AVX-512 core of 152 GFLOP/s: seconds of a product's
# flop, and of a tile's channel transformed in and back.
_FLOP, _IN, _BACK = 6.3e-12, 7e-9, 3.5e-9
# Measured with the kernel, a 32 to 32 layer at 360 x 640: seconds of a core for a number of x or of
# the result, by how they lie.
_END = {"channels_first": 1.14e-9, "channels_last": 0.39e-9}
_LAUNCH = 3e-5
_ROUNDS = 4  # items a compute unit has memory for at once


@dataclass(frozen=True, slots=True)
class Cut:
    """Strips of `strip` columns, parts of `part` bands, and items that have memory at once."""

    tile: int
    strips: int
    strip: int
    parts: int
    part: int
    items: int
    slots: int
    seconds: float


def why_not(work: ConvWork) -> str | None:
    """What such a chain must be: 3x3, stride 1, padded by 1, at most 128 channels."""
    for layer in work.layers:
        if layer.kernel != (3, 3) or layer.strides != (1, 1) or layer.dilations != (1, 1):
            return "a layer that is not 3x3 of stride and dilation 1"
        if layer.pads != (1, 1, 1, 1) or layer.groups != 1:
            return "a layer with other pads than 1, or with groups"
        if max(layer.inputs, layer.outputs) > _WIDEST:
            return f"a layer of more than {_WIDEST} channels"
        if layer.adds:
            return "a layer that adds a residual"
    if any(layer.shuffle > 1 for layer in work.layers[:-1]):
        return "a pixel shuffle before the last layer"
    if len(kinds(work)) > _KINDS:
        return f"layers of more than {_KINDS} different numbers of channels"
    return None


def is_few(work: ConvWork, index: int) -> bool:
    """Whether this layer is the plain sum of few inputs."""
    return index == 0 < len(work.layers) - 1 and work.layers[0].inputs <= _FEW


def stored(work: ConvWork, index: int) -> int:
    """Channels of a layer's input in its ring."""
    inputs = work.layers[index].inputs
    return inputs if is_few(work, index) else -(-inputs // 16) * 16


def kinds(work: ConvWork) -> tuple[int, ...]:
    """The different numbers of stored channels of layers by Winograd: K0, K1 ..."""
    found = {stored(work, i) for i in range(len(work.layers)) if not is_few(work, i)}
    return tuple(sorted(found))


def ring_columns(work: ConvWork, cut: Cut) -> int:
    """Columns of a ring's row: the strip, what its sides add, and what tiles may hang over."""
    return cut.strip + 2 * (len(work.layers) + 1) + 12


def ring_size(work: ConvWork, cut: Cut) -> int:
    """Floats of an item's rings."""
    channels = sum(stored(work, index) for index in range(len(work.layers)))
    return channels * 3 * cut.tile * ring_columns(work, cut) + 256


def block_sizes(work: ConvWork, tile: int) -> tuple[int, int]:
    """Floats of an item's transformed tiles, in and back: the largest of its layers'."""
    positions = (tile + 2) ** 2
    tiles = {k: 56 if k == 16 or tile == 2 else 28 for k in kinds(work)}
    most_in = max(positions * (count * k + 16) for k, count in tiles.items())
    return most_in, max(positions * (count * 32 + 16) for count in tiles.values())


def cut(work: ConvWork, device: Device) -> Cut:
    """The cheapest cut for the device's compute units."""
    tile = 2 if work.exact else 4
    units = max(1, device.compute_units)
    bands = -(-work.height // tile)
    found = []
    for strips in range(1, min(64, -(-work.width // 16)) + 1):
        strip = round_up(-(-work.width // strips), tile)
        for parts in (1, 2, 3, 4, 6, 8, 12, 16):
            if parts > bands:
                break
            part = -(-bands // parts)
            found.append(_cut(work, units, tile, strip, part))
    return min(found, key=lambda one: one.seconds)


def _cut(work: ConvWork, units: int, tile: int, strip: int, part: int) -> Cut:
    bands = -(-work.height // tile)
    strips, parts = -(-work.width // strip), -(-bands // part)
    items = strips * parts * work.images
    seconds = _item_seconds(work, tile, strip, part, strips, parts)
    rounds = -(-items // units)
    slots = min(items, _ROUNDS * units)
    return Cut(tile, strips, strip, parts, part, items, slots, rounds * seconds + _LAUNCH)


def _item_seconds(
    work: ConvWork, tile: int, strip: int, part: int, strips: int, parts: int
) -> float:
    """Of an item inside the picture: every layer's tiles, with what its sides add."""
    total = 0.0
    bands = -(-work.height // tile)
    sides, over = min(2, strips - 1), min(2, parts - 1)
    for index, layer in enumerate(work.layers):
        halo = len(work.layers) - 1 - index
        columns = min(work.width, strip + sides * halo)
        high = min(bands, part + over * halo)
        total += high * _band_seconds(work, index, layer, tile, columns)
    ends = ((work.sizes[0], work.source), (work.sizes[-1], work.result))
    numbers = sum(c * h * w * _END[how] for (c, h, w), how in ends)
    return total + numbers / (strips * parts)


def _band_seconds(work: ConvWork, index: int, layer: Conv, tile: int, columns: int) -> float:
    if is_few(work, index):
        return 2.0 * _FLOP * 9 * layer.inputs * columns * tile * -(-layer.outputs // 16) * 16
    tiles, k = -(-columns // tile), stored(work, index)
    outputs = -(-layer.outputs // 16) * 16
    if index == len(work.layers) - 1 and layer.outputs <= 4:
        outputs = 4
    whole = 14 if outputs % 32 == 0 else 28
    scale = ((tile + 2) / 6) ** 2
    product = 2.0 * _FLOP * (tile + 2) ** 2 * k * outputs * -(-tiles // whole) * whole
    return product + scale * tiles * (k * _IN + max(outputs, 16) * _BACK)
