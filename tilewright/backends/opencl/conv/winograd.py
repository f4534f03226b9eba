"""conv_winograd: 3x3 convolutions of stride 1 by Winograd, for GPUs: in, products, back.

Tiles of a picture are transformed into scratch, each position of a tile is a product of its own
(conv_gemm.cl, positions as groups of 1x1), and the products are transformed back. F(4, 3) needs 4
times fewer multiplications, F(2, 3), where `exact` is asked for, 2.25 times.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import numpy as np

from tilewright.arrays.array import NDArray
from tilewright.backends.opencl.conv import bound, endings, gemm, predict, refusals
from tilewright.backends.opencl.conv.bound import Bound, Lowered, Steps
from tilewright.backends.opencl.lowering import grid
from tilewright.engines.conv import Activation, Conv, ConvOperands, ConvWork
from tilewright.engines.winograd import transformed
from tilewright.facts.device import Device
from tilewright.facts.kernel import Int, Launch, Raw, Scratch
from tilewright.facts.verdict import Proposal

_NAMES = ("conv_in", "conv_back")  # scratch of transformed tiles and of their products


class Winograd:
    """Takes chains of 3x3 layers of stride and dilation 1, any pads, one group."""

    name = "conv_winograd"

    def why_not(self, work: ConvWork, device: Device) -> str | None:
        """Other windows, groups, and what conv_gemm cannot."""
        for layer in work.layers:
            if layer.kernel != (3, 3) or layer.strides != (1, 1) or layer.dilations != (1, 1):
                return "a layer that is not 3x3 of stride and dilation 1"
            if layer.groups != 1:
                return "a layer with groups"
        return refusals.why_not(work, device) or gemm.why_no_tiles(device)

    def propose(self, work: ConvWork, device: Device) -> Proposal:
        """Its products at the rules' share; transformed tiles once out and once in."""
        tile = _tile(work)
        flops = moved = 0.0
        for index, layer in enumerate(work.layers):
            grouped = _grouped(layer, tile)
            down, across = _tiles(work, index, tile)
            asked = ConvWork((grouped,), work.images, 1, down * across)
            flops += gemm.tiled_flops(asked, 0)
            moved += 8.0 * _floats(work, index, tile, layer.inputs)
            moved += 8.0 * _floats(work, index, tile, layer.outputs)
        return predict.propose(
            self.name,
            work,
            device,
            work,
            flops=flops,
            moved=work.bytes + moved,
            launches=3 * len(work.layers),
            scratch=refusals.check_memory(_scratch(work, tile), device),
        )

    def bind(self, proposal: Proposal, operands: ConvOperands) -> Bound:
        """Weights transformed, programs compiled."""
        work, device = proposal.decisions, proposal.device
        return bound.bind(work, device, operands, partial(_lower, work, device))


def _tile(work: ConvWork) -> int:
    return 2 if work.exact else 4


def _tiles(work: ConvWork, index: int, tile: int) -> tuple[int, int]:
    """Rows and columns of a layer's tiles."""
    rows, columns = work.layers[index].sums(*work.sizes[index][1:])
    return -(-rows // tile), -(-columns // tile)


def _floats(work: ConvWork, index: int, tile: int, channels: int) -> int:
    """Numbers of a layer's transformed tiles."""
    down, across = _tiles(work, index, tile)
    return (tile + 2) ** 2 * work.images * channels * down * across


def _scratch(work: ConvWork, tile: int) -> tuple[Scratch, ...]:
    layers = tuple(enumerate(work.layers))
    most_in = max(_floats(work, index, tile, layer.inputs) for index, layer in layers)
    most_back = max(_floats(work, index, tile, layer.outputs) for index, layer in layers)
    sizes = zip(_NAMES, (4 * most_in, 4 * most_back), strict=True)
    return (*gemm.turns(work), *(Scratch(name, size) for name, size in sizes))


def _grouped(layer: Conv, tile: int, planes: NDArray | None = None) -> Conv:
    """The products of a layer's positions as a grouped layer of 1x1 over tiles.

    planes: transformed weights; without them zeros of their sizes, for whoever only counts.
    """
    positions = (tile + 2) ** 2
    shape = (positions * layer.outputs, layer.inputs, 1, 1)
    weights = np.broadcast_to(np.float32(0), shape) if planes is None else planes.reshape(shape)
    return Conv(weights, groups=positions)


def _product(work: ConvWork, index: int, tile: int) -> gemm.Product:
    """The same as the launches want it."""
    layer, positions = work.layers[index], (tile + 2) ** 2
    down, across = _tiles(work, index, tile)
    tiles = down * across
    steps = Steps(_NAMES[0], (positions * layer.inputs * tiles, tiles, tiles, 1))
    grouped = _grouped(layer, tile, transformed(layer.weights, tile))
    return gemm.Product(grouped, work.images, 1, tiles, steps)


def _lower(work: ConvWork, device: Device, steps: Mapping[str, Steps]) -> Lowered:
    tile = _tile(work)
    constants: dict[str, NDArray] = {}
    launches: list[Launch] = []
    for index, layer in enumerate(work.layers):
        source, to = gemm.between(work, index, steps)
        product = _product(work, index, tile)
        none = np.zeros(product.layer.outputs, np.float32)
        constants |= product.constants(f"{index}", "float32") | gemm.ends_of(layer, index)
        constants |= {f"plain{index}": layer.weights.astype(np.float32), f"none{index}": none}
        launches += [
            _in(work, index, device, tile, source),
            _multiply(work, index, device, tile, product),
            _back(work, index, device, tile, source, to, steps),
        ]
    return Lowered(tuple(launches), _scratch(work, tile), constants)


def _in(work: ConvWork, index: int, device: Device, tile: int, source: Steps) -> Launch:
    """A work-item a tile of a channel."""
    layer, (channels, height, width) = work.layers[index], work.sizes[index]
    down, across = _tiles(work, index, tile)
    lines = work.images * channels
    size, local = grid((down * across, lines), device)
    numbers = (channels, height, width, down, across, *layer.pads[:2], lines)
    arguments = (*map(Int, numbers), *source.arguments, Raw(_NAMES[0]))
    defines = (*endings.defines(work, device), ("TILE", tile))
    return Launch("conv_winograd_in", "conv_winograd_in", defines, size, local, arguments)


def _multiply(
    work: ConvWork, index: int, device: Device, tile: int, product: gemm.Product
) -> Launch:
    """Every position's product, from scratch into scratch, in float32."""
    layer = work.layers[index]
    down, across = _tiles(work, index, tile)
    tiles = down * across
    plain = ConvWork((Conv(layer.weights, activation=Activation()),), 1, 3, 3)
    to = Steps(_NAMES[1], ((tile + 2) ** 2 * layer.outputs * tiles, tiles, tiles, 1))
    ending = endings.arguments(plain, 0, {}, names=(f"none{index}", f"none{index}", _NAMES[0]))
    defines = endings.defines(plain, device, *plain.layers)
    return product.launch(f"{index}", defines, (*ending, *endings.stored(plain.layers[0], to)))


def _back(
    work: ConvWork,
    index: int,
    device: Device,
    tile: int,
    source: Steps,
    to: Steps,
    steps: Mapping[str, Steps],
) -> Launch:
    """A work-item a tile of an output."""
    layer, (channels, height, width) = work.layers[index], work.sizes[index]
    rows, columns = layer.sums(height, width)
    down, across = _tiles(work, index, tile)
    lines = work.images * layer.outputs
    size, local = grid((down * across, lines), device)
    numbers = (layer.outputs, rows, columns, down, across, lines)
    arguments = (
        *map(Int, (*numbers, channels, height, width, *layer.pads[:2])),
        *(Raw(_NAMES[1]), Raw(f"plain{index}")),
        *source.arguments,
        *endings.arguments(work, index, steps),
        *endings.stored(layer, to),
    )
    defines = (*endings.defines(work, device, layer), ("TILE", tile))
    return Launch("conv_winograd_back", "conv_winograd_back", defines, size, local, arguments)
