"""Which tiles the convolutions in Triton are computed by, and what a layer takes with them; pure.

    many results   large tiles, a program each
    few results    smaller ones, and k cut in shares that other programs take: a picture of 7 x 7
                   has one tile of 64 results, whose 72 steps of k would run one after another
    depthwise      a program has 8 or 32 results of up to 64 channels; of windows of more than 7 x 7
                   one of up to 32, whose taps its threads share

What a program takes follows its steps of k: each waits for its loads, or for those of the programs
beside it on the multiprocessor. Numbers are an H200's, scaled to the device (facts/measured/): of
542 tiles of 34 layers one in three was off by more than a tenth, and the tile that is predicted to
be fastest took at most 1.09 times the time of the one that was.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from tilewright.engines.conv import Conv
from tilewright.facts.measured.h200 import TileRates

_SHARED = 227 * 1024  # bytes that a multiprocessor has for its programs
_WARPS, _REGISTERS, _MOST = 64, 65536, 16  # warps, registers, and programs at most
_SPLITS = (1, 2, 4, 8, 16)
_TAPS = 49  # of the largest depthwise windows that are written out: 7 x 7
_AT_ONCE = 2048  # elements of x that a program of larger windows asks for at once, at most
_FULL = 2.3  # programs a multiprocessor beyond which k is not cut


@dataclass(frozen=True, slots=True)
class Tile:
    """What a program computes and with how many warps: `k` at a time, of `splits` shares one."""

    m: int
    n: int
    k: int
    warps: int
    stages: int
    splits: int = 1


_HALVES = (
    *(Tile(128, 64, 64, 4, 3), Tile(128, 32, 32, 4, 3), Tile(64, 128, 64, 4, 3)),
    *(Tile(64, 64, 64, 4, 4), Tile(64, 32, 64, 4, 4), Tile(32, 64, 64, 4, 4)),
    *(Tile(32, 32, 64, 4, 4), Tile(16, 64, 64, 4, 4), Tile(16, 32, 128, 4, 4)),
)
_SINGLES = (
    *(Tile(64, 64, 32, 4, 3), Tile(64, 64, 16, 4, 3), Tile(64, 32, 16, 4, 3)),
    Tile(32, 32, 32, 4, 3),
)


def is_depthwise(layer: Conv) -> bool:
    """Whether each output has one input of its own."""
    return layer.groups > 1 and layer.weights.shape[1] == 1 and layer.outputs == layer.groups


def tile_of(layer: Conv, pixels: int, units: int, width: int, rates: TileRates) -> Tile:
    """The tile that is predicted to be fastest for so many results of `width` bytes an element."""
    if is_depthwise(layer):
        n, taps = min(64, power(layer.outputs)), math.prod(layer.kernel)
        if taps > _TAPS:
            n = min(32, n)
            return Tile(1, n, min(_AT_ONCE // n, power(taps)), 4, 1)
        return Tile(32 if pixels * layer.outputs >= 32 * n * units else 8, n, 16, 4, 1)
    asked = dict.fromkeys(_candidates(layer, pixels, units, width))
    return min(asked, key=lambda tile: seconds(layer, pixels, tile, units, width, rates))


def _candidates(layer: Conv, pixels: int, units: int, width: int) -> Iterator[Tile]:
    """Tiles no wider than the layer, whose steps of k stay in a tap where channels allow it."""
    depth, channels = int(layer.weights[0].size), int(layer.weights.shape[1])
    least = 32 if width == 1 else 16
    outputs = max(16, power(layer.outputs // layer.groups))
    for one in _SINGLES if width == 4 else _HALVES:
        k = one.k
        while k > least and (depth < k or (channels >= least and channels % k)):
            k //= 2
        for splits in _SPLITS:
            tile = Tile(one.m, min(one.n, outputs), k, one.warps, one.stages, splits)
            many = programs(layer, pixels, tile) > _FULL * units
            if splits == 1 or not (many or -(-depth // k) // splits < 2):
                yield tile


def seconds(
    layer: Conv, pixels: int, tile: Tile, units: int, width: int, rates: TileRates
) -> float:
    """Predicted of a layer's launches with a tile."""
    steps, loads = share(layer, tile) // tile.k, (tile.m + tile.n) * tile.k * width
    beside = resident(tile, width)
    each = programs(layer, pixels, tile) / units
    rounds, together = float(math.ceil(each / beside)), min(math.ceil(each), beside)
    if rounds > 2:
        rounds = (rounds + each / beside) / 2  # the last ones are not alone
    flow = together * (tile.m * tile.n * tile.k * rates.product + loads * rates.load)
    step = max(rates.step + rates.byte * loads, flow)
    step *= 1.0 if whole(layer, tile) else rates.torn
    spent = rates.launch + rounds * (rates.program + steps * step)
    if tile.splits > 1:
        spent += rates.finish + rates.part * tile.splits * pixels * layer.outputs
    return spent


def resident(tile: Tile, width: int) -> int:
    """Programs that a multiprocessor has at work at once."""
    shared = (tile.m + tile.n) * tile.k * width * max(1, tile.stages - 1)
    threads = 32 * tile.warps
    registers = threads * min(255.0, 64 + 1.2 * tile.m * tile.n / threads)
    most = min(_SHARED / shared, _WARPS / tile.warps, _REGISTERS / registers, _MOST)
    return max(1, int(most))


def programs(layer: Conv, pixels: int, tile: Tile) -> int:
    """Of a launch: tiles of all groups, times the shares of k."""
    groups = 1 if is_depthwise(layer) else layer.groups
    across = -(-(layer.outputs // groups) // tile.n)
    return -(-pixels // tile.m) * across * groups * tile.splits


def share(layer: Conv, tile: Tile) -> int:
    """How much of k a program has: whole steps."""
    depth = int(layer.weights[0].size)
    return -(-depth // (tile.k * tile.splits)) * tile.k


def whole(layer: Conv, tile: Tile) -> bool:
    """Whether no step of k reaches from one tap into the next."""
    return int(layer.weights.shape[1]) % tile.k == 0


def power(number: int) -> int:
    """The least power of two that is not less."""
    return 1 << (number - 1).bit_length()
