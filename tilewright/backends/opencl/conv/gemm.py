"""conv_gemm: implicit products over windows, blocks in local memory, for GPUs.

Nothing like im2col lies in memory: a small table says where each row of windows is, beside a
window's first number. Layers between ends lie channels first in scratch, read and written in turns.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

import numpy as np

from tilewright.arrays.array import NDArray
from tilewright.backends.opencl.conv import bound, endings, predict, refusals
from tilewright.backends.opencl.conv.bound import Bound, Lowered, Steps
from tilewright.backends.opencl.conv.weights import per_output
from tilewright.backends.opencl.lowering import round_up
from tilewright.engines.conv import Conv, ConvOperands, ConvWork
from tilewright.errors import OperandError
from tilewright.facts.device import Device
from tilewright.facts.kernel import Argument, Defines, Int, Launch, Long, Raw, Scratch
from tilewright.facts.limits import MOST
from tilewright.facts.verdict import Proposal

TURNS = ("conv_a", "conv_b")
_DEEP = 16  # TILE_K of conv_gemm.cl
_NOWHERE = -(1 << 30)  # a row past the last: outside every picture


class Gemm:
    """Takes any layers, where a work-group of 256 fits."""

    name = "conv_gemm"

    def why_not(self, work: ConvWork, device: Device) -> str | None:
        """Devices without local memory, or whose work-groups are small."""
        return refusals.why_not(work, device) or why_no_tiles(device)

    def propose(self, work: ConvWork, device: Device) -> Proposal:
        """Flops of whole tiles at the rules' share; pictures between layers through memory."""
        flops = sum(tiled_flops(work, index) for index in range(len(work.layers)))
        between = sum(c * h * w for c, h, w in work.sizes[1:-1])
        item = 4 if work.dtype == "float32" else 2
        return predict.propose(
            self.name,
            work,
            device,
            work,
            flops=flops,
            moved=work.bytes + 2.0 * item * work.images * between,
            launches=len(work.layers),
            scratch=refusals.check_memory(turns(work), device),
        )

    def bind(self, proposal: Proposal, operands: ConvOperands) -> Bound:
        """Weights and tables of windows, programs compiled."""
        work, device = proposal.decisions, proposal.device
        return bound.bind(work, device, operands, partial(_lower, work, device))


def _lower(work: ConvWork, device: Device, steps: Mapping[str, Steps]) -> Lowered:
    constants: dict[str, NDArray] = {}
    launches = []
    for index, layer in enumerate(work.layers):
        source, to = between(work, index, steps)
        product = Product.of(work, index, source)
        constants |= product.constants(f"{index}", work.dtype) | ends_of(layer, index)
        ending = (*endings.arguments(work, index, steps), *endings.stored(layer, to))
        defines = endings.defines(work, device, layer)
        launches.append(product.launch(f"{index}", defines, ending))
    return Lowered(tuple(launches), turns(work), constants)


@dataclass(frozen=True, slots=True, eq=False)
class Product:
    """One launch of conv_gemm.cl: a layer over pictures, or positions of Winograd's as groups."""

    layer: Conv
    images: int
    height: int
    width: int
    source: Steps

    @staticmethod
    def of(work: ConvWork, index: int, source: Steps) -> Product:
        """A layer of a chain."""
        return Product(work.layers[index], work.images, *work.sizes[index][1:], source)

    @property
    def depth(self) -> int:
        """Rows of windows, up to whole blocks."""
        return round_up(self.layer.weights[0].size, _DEEP)

    def constants(self, name: str, dtype: str) -> dict[str, NDArray]:
        """The weights [group][depth][outputs] and the table of rows."""
        layer, groups = self.layer, self.layer.groups
        each, rows = layer.outputs // groups, layer.weights[0].size
        laid = np.zeros((groups, self.depth, round_up(each, _tile(each)[0])), np.dtype(dtype))
        laid[:, :rows, :each] = layer.weights.reshape(groups, each, rows).swapaxes(1, 2)
        return {f"weights{name}": laid, f"table{name}": self._table()}

    def _table(self) -> NDArray:
        """Offset in x, row and column of every channel and tap of a window.

        Raises OperandError where x is so large, or so far apart, that 32 bits do not hold one.
        """
        _, channel, row, column = self.source.strides
        found = np.full((self.depth, 4), (0, _NOWHERE, 0, 0), np.int64)
        down, across = self.layer.dilations
        at = np.indices(self.layer.weights.shape[1:]).reshape(3, -1)
        taps = (at[1] * down, at[2] * across)
        found[: at.shape[1], 0] = at[0] * channel + taps[0] * row + taps[1] * column
        found[: at.shape[1], 1], found[: at.shape[1], 2] = taps
        if np.abs(found[:, 0]).max() > MOST:
            raise OperandError(
                f"{self.source.name}.strides={self.source.strides}: accepted are pictures of at"
                " most 2^31 elements from the first number to the last"
            )
        return found.astype(np.int32)

    def launch(self, name: str, defines: Defines, ending: tuple[Argument, ...]) -> Launch:
        """A work-group a tile of outputs and pixels of a group."""
        layer = self.layer
        rows, columns = layer.sums(self.height, self.width)
        each, pixels = layer.outputs // layer.groups, rows * columns
        tile_m, tile_n = _tile(each)
        sizes = (columns, pixels, each, self.depth, layer.groups, self.height, self.width)
        tiles = -(-each // tile_m) * layer.groups * self.images
        local = (tile_n // 4, tile_m // 4)
        arguments = (
            *map(Int, (*sizes, *layer.strides, *layer.pads[:2])),
            Long(layer.inputs // layer.groups * self.source.strides[1]),
            *(Raw(f"table{name}"), Raw(f"weights{name}")),
            *self.source.arguments,
            *ending,
        )
        size = (-(-pixels // tile_n) * local[0], tiles * local[1])
        shape = (("TILE_M", tile_m), ("TILE_N", tile_n), ("TILE_K", _DEEP))
        return Launch("conv_gemm", "conv_gemm", (*defines, *shape), size, local, arguments)


def tiled_flops(work: ConvWork, index: int) -> float:
    """Of a layer's products, edges of tiles included."""
    layer = work.layers[index]
    rows, columns = layer.sums(*work.sizes[index][1:])
    each = layer.outputs // layer.groups
    tile_m, tile_n = _tile(each)
    deep = round_up(layer.weights[0].size, _DEEP)
    tiles = -(-each // tile_m) * -(-(rows * columns) // tile_n) * layer.groups * work.images
    return 2.0 * tiles * tile_m * tile_n * deep


def _tile(outputs: int) -> tuple[int, int]:
    """Outputs and pixels of a tile: few outputs have more pixels."""
    return (16, 128) if outputs <= 16 else (64, 64)


def why_no_tiles(device: Device) -> str | None:
    """Why the device cannot run conv_gemm.cl's tiles."""
    if device.max_work_group < 256:
        return f"a work-group of 256, and the device has {device.max_work_group} at most"
    if device.local_memory < (wanted := 4 * _DEEP * (16 + 128)):
        return f"{wanted} bytes of local memory, and the device has {device.local_memory}"
    return None


def between(work: ConvWork, index: int, steps: Mapping[str, Steps]) -> tuple[Steps, Steps]:
    """Where a layer reads and writes: the operands at the ends, scratch in turns between."""
    last = index == len(work.layers) - 1
    source = _laid(work, index) if index else steps["x"]
    return source, steps["out"] if last else _laid(work, index + 1)


def _laid(work: ConvWork, index: int) -> Steps:
    """The picture before a layer in its scratch, channels first."""
    channels, height, width = work.sizes[index]
    plane = height * width
    return Steps(TURNS[index % 2], (channels * plane, plane, width, 1))


def turns(work: ConvWork) -> tuple[Scratch, ...]:
    """Two pictures that layers between the ends read and write in turns."""
    item = 4 if work.dtype == "float32" else 2
    most = dict.fromkeys(TURNS, 0)
    for index, (channels, height, width) in enumerate(work.sizes[1:-1], 1):
        size = work.images * channels * height * width * item
        most[TURNS[index % 2]] = max(most[TURNS[index % 2]], size)
    return tuple(Scratch(name, size) for name, size in most.items() if size)


def ends_of(layer: Conv, index: int) -> dict[str, NDArray]:
    """Bias and slopes."""
    return {
        f"bias{index}": per_output(layer.bias, layer, 1),
        f"slopes{index}": per_output(layer.activation.slopes, layer, 1),
    }
