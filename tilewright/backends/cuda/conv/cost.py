"""Predicts convolutions that run layer by layer, in Triton or by the vendor, from an H200's.

Triton      its launches by their tiles (tiles.py), or what memory takes
the vendor  a launch + the longest of: its products, slow for few outputs or inputs; k from its
            first to its last, one after another; its bytes. Behind it a pass over the result for
            each of bias, residual and activation that it does not do itself
"""

from __future__ import annotations

import math

from tilewright.backends.cuda.conv import tiles
from tilewright.backends.cuda.conv.tiles import Tile
from tilewright.engines.conv import Conv, ConvWork
from tilewright.facts.device import Device
from tilewright.facts.dtypes import VALUES
from tilewright.facts.measured import h200
from tilewright.facts.measured.h200 import LibraryRates, TileRates
from tilewright.facts.measured.scale import scale

_FEW = 8  # inputs


def kind_of(work: ConvWork) -> str:
    """Whose rates count: tiles of whole numbers are chosen by those of halves."""
    return "float32" if work.dtype == "float32" else "float16"


def tile_rates(work: ConvWork, device: Device) -> TileRates:
    """Those of the work's element type, scaled to the device."""
    rates = h200.CONV_TILES[kind_of(work)]
    return rates.scaled(scale(device, kind_of(work)).multiply)


def in_triton(work: ConvWork, device: Device, chosen: tuple[Tile, ...]) -> float:
    """Seconds of all layers with these tiles."""
    rates, units = tile_rates(work, device), max(1, device.compute_units)
    if work.layers[0].whole is not None:
        rates = h200.CONV_TILES["int8"].scaled(scale(device, kind_of(work)).multiply)
    memory = h200.CONV_MEMORY * scale(device, kind_of(work)).bandwidth
    total, width = 0.0, VALUES[work.dtype]
    for index, (layer, tile) in enumerate(zip(work.layers, chosen, strict=True)):
        pixels = pixels_of(work, index)
        moved = rates.launch + _moved(work, index) / memory
        if tiles.is_depthwise(layer):
            total += max(moved, rates.launch + _alone(layer, pixels) / units * rates.program)
        else:
            total += max(moved, tiles.seconds(layer, pixels, tile, units, width, rates))
    return total


def by_library(work: ConvWork, device: Device, passes: tuple[int, ...]) -> float | None:
    """Seconds of all layers; `passes`: how often each one's result is read and written anew."""
    if work.dtype not in ("float16", "bfloat16", "float32"):
        return None
    rates, scaled = h200.CONV_LIBRARY[kind_of(work)], scale(device, kind_of(work))
    multiply, memory = scaled.multiply * scaled.share, h200.CONV_MEMORY * scaled.bandwidth
    total = 0.0
    for index, (layer, again) in enumerate(zip(work.layers, passes, strict=True)):
        speed = _speed(layer, rates) * multiply
        depth = int(layer.weights[0].size) * rates.depth
        spent = max(_flops(work, index) / speed, depth, _moved(work, index) / memory)
        odd = index == 0 and work.source == "channels_first" and layer.inputs >= _FEW
        given = 2 * VALUES[work.dtype] * work.images * math.prod(work.sizes[index + 1])
        total += rates.launch + spent * (rates.turned if odd else 1.0)
        total += again * (rates.apart + given / memory)
    return total


def pixels_of(work: ConvWork, index: int) -> int:
    """Results of a layer, each of all outputs."""
    rows, columns = work.layers[index].sums(*work.sizes[index][1:])
    return work.images * rows * columns


def _alone(layer: Conv, pixels: int) -> float:
    """Programs of 32 results and 64 channels, each of nine taps."""
    return pixels * layer.outputs / 2048 * float(layer.weights[0].size) / 9


def _flops(work: ConvWork, index: int) -> float:
    return 2.0 * pixels_of(work, index) * work.layers[index].weights.size


def _moved(work: ConvWork, index: int) -> float:
    """Bytes that a layer reads and writes, weights and residual among them."""
    layer, width = work.layers[index], VALUES[work.dtype]
    given = math.prod(work.sizes[index + 1]) * (2 if layer.adds else 1)
    values = work.images * (math.prod(work.sizes[index]) + given)
    return float(width * (values + layer.weights.size))


def _speed(layer: Conv, rates: LibraryRates) -> float:
    """Flops a second of its products."""
    channels, outputs = layer.weights.shape[1], layer.outputs // layer.groups
    speed = min(rates.most, rates.each * outputs)
    return min(speed, rates.few * channels) if channels < _FEW else speed
