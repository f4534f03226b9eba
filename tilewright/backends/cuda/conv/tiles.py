"""Which tiles the convolutions in Triton are computed by, and what a layer takes with them; pure.

    many results   large tiles, a program each
    few results    smaller ones, and k cut in shares that other programs take: a picture of 7 x 7
                   has one tile of 64 results, whose 72 steps of k would run one after another

Seconds are an H200's, scaled to the device (facts/measured/).
"""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.engines.conv import Conv


@dataclass(frozen=True, slots=True)
class Tile:
    """What a program computes and with how many warps: `k` at a time, of `splits` shares one."""

    m: int
    n: int
    k: int
    warps: int
    stages: int
    splits: int = 1


def is_depthwise(layer: Conv) -> bool:
    """Whether each output has one input of its own."""
    return layer.groups > 1 and layer.weights.shape[1] == 1 and layer.outputs == layer.groups


def tile_of(layer: Conv, pixels: int, units: int) -> Tile:
    """The tile for a layer of so many results, on so many multiprocessors."""
    if is_depthwise(layer):
        n = min(64, power(layer.outputs))
        return Tile(32 if pixels * layer.outputs >= 32 * n * units else 8, n, 16, 4, 1)
    outputs = layer.outputs // layer.groups
    wide = layer.whole is not None and layer.weights.shape[1] % 64 == 0
    return Tile(64, min(64, max(16, power(outputs))), 64 if wide else 32, 4, 3)


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
