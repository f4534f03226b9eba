"""`dilated`: convolutions whose taps lie far apart, region by region of the result.

    columns   | taps 1, 2 | tap 1 | taps 0, 1 |      where taps leave the picture the result is cut:
    rows      |           |       |           |      in a region all have the same taps inside

Nothing outside the picture is multiplied. A window of 3 x 3 dilated by 12 has 729 of 2601 products
inside a picture of 17 x 17, by 24 and 36 one in nine; `direct` copied zeros of three times the
picture's width for every two rows, which took ten times as long as a whole DeepLabV3.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from tilewright.arrays.array import NDArray
from tilewright.backends.host import compiled, conv_constants, rates, refusals
from tilewright.backends.host.conv_bind import Layout, described
from tilewright.backends.host.program import DIRECT, Program, joined
from tilewright.backends.host.values import ElementsEngine
from tilewright.engines.conv import Activation, Conv, ConvOperands, ConvWork
from tilewright.engines.values import Elements, ValueOperands
from tilewright.facts.device import Device
from tilewright.facts.verdict import Proposal

# On the core that `rates` counts in: multiply-adds of full tiles; seconds a tile takes
# besides, and a step.
_TILES, _TILE, _STEP, _COPY = 8.0e10, 4e-8, 2e-6, 4e9
_START = 1.5e-5
_ROWS, _COLUMNS, _WIDTH, _SLACK = 2, 7, 32, 8


@dataclass(frozen=True, slots=True)
class Region:
    """Rows and columns of the result, [begin, end), and the taps that are inside there."""

    rows: tuple[int, int]
    columns: tuple[int, int]
    down: range
    across: range

    @property
    def tiles(self) -> int:
        """Tiles of two rows of seven pixels."""
        high, wide = (end - begin for begin, end in (self.rows, self.columns))
        return math.ceil(high / _ROWS) * math.ceil(wide / _COLUMNS)

    @property
    def taps(self) -> int:
        """Of each of its windows."""
        return len(self.down) * len(self.across)


class Dilated:
    """Any window that is dilated; both formats."""

    name = "dilated"

    def why_not(self, work: ConvWork, device: Device) -> str | None:
        """Numba, float32, one layer whose window is dilated."""
        if not compiled.available():
            return compiled.why_none()
        if (why := refusals.but_one_of_floats(work)) is not None:
            return why
        layer = work.layers[0]
        if max(layer.dilations) == 1:
            return "dilations=(1, 1): takes windows whose taps lie 2 and more apart"
        if layer.adds and layer.shuffle > 1:
            return "adds no residual before a pixel shuffle"
        return None

    def propose(self, work: ConvWork, device: Device) -> Proposal:
        """Products of the taps that are inside, tile by tile."""
        layer, cores, found = work.layers[0], device.compute_units, rates.of(device)
        regions = regions_of(work)
        each = layer.outputs // layer.groups
        wide = math.ceil(each / _WIDTH) * _WIDTH * layer.groups
        channels = layer.inputs // layer.groups
        tiles = work.images * sum(region.tiles for region in regions)
        sums = sum(region.tiles * region.taps for region in regions) * work.images
        seconds = sums * _ROWS * _COLUMNS * channels * wide / _TILES + tiles * wide / _WIDTH * _TILE
        copied = work.images * math.prod(work.sizes[0])
        return Proposal(
            self.name,
            device,
            _START + len(regions) * _STEP + (seconds + copied / _COPY) / cores * found.factor,
            f"{len(regions)} regions, {sums * _ROWS * _COLUMNS * channels * wide / 1e6:.3g} M sums,"
            f" {found.origin}",
            scratch=4 * copied,
            decisions=(work, regions),
        )

    def bind(self, proposal: Proposal, operands: ConvOperands) -> Program:
        """The picture copied, so that tiles may read beyond it; then a step a region."""
        work, regions = proposal.decisions
        cores = proposal.device.compute_units
        layer = work.layers[0]
        picture = _with_room(work, layer)
        copy = Elements("none", Activation(), _same, picture.size)
        engine, source = ElementsEngine(), ValueOperands((operands.x,), picture)
        first = engine.bind(engine.propose(copy, proposal.device), source)
        inside = replace(work, source="channels_last")
        through = layer.shuffle > 1 or work.result == "channels_first"
        plan = Layout(DIRECT, _ROWS, 1, False, through, 4 * _ROWS * _COLUMNS * _WIDTH, 0.0)
        step, keep = described(inside, plan, replace(operands, x=picture))
        seconds = (proposal.seconds or 0.0) / len(regions)
        blocks = int(step["groups"] * step["blocks"])
        programs = [first]
        for region in regions:
            part, table = _of_region(step, layer, region)
            wanted = math.ceil(4 * cores / (work.images * int(part["bands"])))
            part["block_step"] = math.ceil(blocks / min(blocks, wanted))
            part["parts"] = math.ceil(blocks / int(part["block_step"]))
            part["tasks"] = part["bands"] * work.images * part["parts"]
            kept = [operands, picture, table, *keep]
            programs.append(Program(part.reshape(1), plan.scratch, cores, seconds, kept))
        return joined(programs)


def _same(
    sources: Sequence[NDArray], out: NDArray
) -> list[tuple[NDArray, NDArray | None, NDArray]]:
    return [(sources[0], None, out)]


def _with_room(work: ConvWork, layer: Conv) -> NDArray:
    """A picture channels last; zeros behind it, as tiles at the end read more than they use."""
    channels, height, width = work.sizes[0]
    size = work.images * height * width * channels
    room = np.zeros(size + _SLACK * layer.strides[1] * channels, np.float32)
    return room[:size].reshape(work.images, height, width, channels).transpose(0, 3, 1, 2)


def _of_region(step: np.void, layer: Conv, region: Region) -> tuple[np.void, NDArray]:
    """The step of a region, and its pieces."""
    part = step.copy()
    (top, bottom), (left, right) = region.rows, region.columns
    down = top * layer.strides[0] - layer.pads[0]
    across = left * layer.strides[1] - layer.pads[1]
    part["x"] += down * part["x_row"] + across * part["x_pixel"]
    part["out"] += top * part["out_row"] + left * part["out_pixel"]
    part["rows"], part["columns"] = bottom - top, right - left
    line, pixel = int(part["line"]), int(part["pixel"])
    table = conv_constants.pieces_of_taps(layer, line, pixel, region.down, region.across)
    part["pieces"], part["count"] = table.ctypes.data, len(table)
    part["band"] = math.ceil((bottom - top) / 4 / _ROWS) * _ROWS
    part["bands"] = math.ceil((bottom - top) / int(part["band"]))
    return part, table


def regions_of(work: ConvWork) -> tuple[Region, ...]:
    """The regions of the result of a work of one layer."""
    layer = work.layers[0]
    counts = layer.sums(work.height, work.width)
    spans = [
        list(_spans(layer, axis, size, counts[axis]))
        for axis, size in enumerate((work.height, work.width))
    ]
    return tuple(
        Region(rows, columns, down, across)
        for (rows, down), (columns, across) in itertools.product(*spans)
    )


def _spans(
    layer: Conv, axis: int, size: int, count: int
) -> Iterator[tuple[tuple[int, int], range]]:
    """Runs of results along an axis whose windows have the same taps inside."""
    stride, apart, pad = layer.strides[axis], layer.dilations[axis], layer.pads[axis]

    def inside(at: int) -> range:
        begin = at * stride - pad
        first = max(0, -(begin // apart))
        last = min(layer.kernel[axis], (size - 1 - begin) // apart + 1)
        return range(first, max(first, last))

    for taps, run in itertools.groupby(range(count), key=inside):
        found = list(run)
        yield (found[0], found[-1] + 1), taps
