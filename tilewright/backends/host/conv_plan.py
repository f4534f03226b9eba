"""Plans a chain of 3x3 convolutions: into which strips it is cut, and what memory a worker takes.

    picture   | strip 0    | strip 1    |     each strip all rows, or some bands of them
    layer n                [=====]            what the last layer computes
    layer n-1             [=======]           and each layer before it: a tile more on each side,
    layer n-2            [=========]          as tiles are computed as a whole

Pure: sizes in, numbers out. Rates are those of the core that `rates` counts in (two fused
multiply-adds of sixteen floats a cycle); they are scaled by the device's own peak.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

from tilewright.backends.host import rates
from tilewright.engines.conv import Conv, ConvWork
from tilewright.facts.device import Device

LANES, CELL = 16, 64
_GROUP = 28  # tiles that are computed together, at most: kernels know how many
FEW = 3  # input channels up to which a first layer is computed plainly
_NARROW = 4  # tiles of a strip below which it is not cut further
# Multiplications and additions a second of a core, as products of planes reach: into four outputs,
# sixteen, and more.
_FOLDED, _SINGLE, _PAIRS = 6e10, 1.2e11, 1.5e11
_IN, _OUT = 2.2e-9, 1.4e-9  # seconds a plane of sixteen channels of a tile, there and back
_STORE, _END = 2e-10, 4e-10  # seconds a result of a layer of few channels; a number in or out
# Bytes of weights that stay in a core's cache; others are read for every band, bytes a second.
_KEPT, _READ = 1.5e6, 2e10
_FINISH = 3e-10  # seconds a result of a residual or of an activation that is no limit
_START = 3e-5  # seconds of a call
_DEALT = 64  # pictures a core that are dealt strip by strip; of more the rest is shared evenly
_CACHED, _STREAM = 1 << 20, 5e9  # bytes of weights that a core's cache keeps; a second of others
_SPARE = 64  # bytes between rings, so that they do not begin on the same lines of a cache


Strip = tuple[tuple[int, int, int, int], ...]  # a row a stage
Strips = tuple[Strip, ...]


@dataclass(frozen=True, slots=True)
class Stage:
    """One layer, or x itself, as the kernels keep it; offsets in a worker's memory are bytes."""

    kind: str  # "planes", "blocked", "few", "winograd"
    channels: int
    blocks: int
    cell: int
    rows: int
    columns: int
    ring: int
    inputs: int = 0
    folded: bool = False


@dataclass(frozen=True, slots=True)
class ChainPlan:
    """Everything that sizes decide.

    step       rows of a band and width of a tile's results: 4 or 2
    strips     for each strip a row a stage: left and right column, first and last band
    memory     bytes that a worker takes; `tiles`, `sums`, `tables`, `spare` begin in it
    """

    step: int
    bands: int
    stages: tuple[Stage, ...]
    strips: Strips
    workers: int
    memory: int
    tiles: int
    sums: int
    tables: int
    spare: int


def plan_chain(
    work: ConvWork, step: int, cores: int, across: int | None = None, down: int | None = None
) -> ChainPlan:
    """Cut a chain for so many cores into the strips that finish first, or into those given.

    `across` and `down` say into how many strips of columns, and these into how many runs of bands.
    """
    width, bands = max(step, _up(work.width, step)), max(1, -(-work.height // step))
    shapes = [(across, down or 1)] if across else _shapes(work, width // step, bands, cores)
    options = [_cut(len(work.layers), width, bands, step, *shape) for shape in shapes]
    strips = min(options, key=lambda strips: _longest(work, strips, step, cores))
    stages, size = _stages(work, step, strips)
    planes = (step + 2) ** 2
    blocks = max(-(-layer.inputs // LANES) for layer in work.layers)
    tiles = size
    sums = tiles + blocks * planes * (_GROUP + 1) * CELL + _SPARE
    tables = sums + planes * (2 * _GROUP + 1) * CELL + _SPARE
    spare = tables + 8 * 64
    memory = spare + CELL * max(stage.columns for stage in stages)
    workers = max(1, min(cores, len(strips) * work.images))
    return ChainPlan(step, bands, stages, strips, workers, memory, tiles, sums, tables, spare)


def _shapes(work: ConvWork, tiles: int, bands: int, cores: int) -> list[tuple[int, int]]:
    """Strips across and down worth a prediction: one in all, or one or two a core."""
    each = -(-cores // max(1, work.images))
    totals = {1, each, 2 * each}
    return [
        (across, total // across)
        for total in sorted(totals)
        for across in range(1, total + 1)
        if total % across == 0 and across <= max(1, tiles // _NARROW)
        if total // across <= bands
    ] or [(1, 1)]


def needs_finish(layer: Conv) -> bool:
    """Whether more than limits is left to do once the sums are there."""
    return layer.adds or layer.activation.kind not in ("none", "relu", "clip")


def chain_seconds(work: ConvWork, plan: ChainPlan, device: Device) -> float:
    """The prediction: the longest worker's strips at measured rates."""
    scale = rates.of(device).factor
    return _START + scale * _longest(work, plan.strips, plan.step, device.compute_units)


def _longest(work: ConvWork, strips: Strips, step: int, cores: int) -> float:
    """Seconds of the core that has most to do, strips being dealt as cores become free."""
    each = sorted((_strip_seconds(work, strip, step) for strip in strips), reverse=True)
    loads = [0.0] * max(1, min(cores, len(each) * work.images))
    dealt = min(work.images, _DEALT * len(loads))
    for seconds in each * dealt:
        least = loads.index(min(loads))
        loads[least] += seconds
    return max(loads) + (work.images - dealt) * sum(each) / len(loads)


def _strip_seconds(work: ConvWork, strip: Strip, step: int) -> float:
    """Products, transforms and both ends of a strip on one core."""
    total = 0.0
    read_again = 4 * (step + 2) ** 2 * sum(layer.weights.size // 9 for layer in work.layers) > _KEPT
    for number, (layer, part) in enumerate(zip(work.layers, strip[1:], strict=True)):
        tiles = (part[1] - part[0]) // step * (part[3] - part[2])
        outputs = _up(layer.outputs, LANES) if layer.outputs > 4 else 4
        if number == 0 and layer.inputs <= FEW:
            total += (
                tiles * step * step * _up(outputs, LANES) * (18 * layer.inputs / _PAIRS + _STORE)
            )
            continue
        planes = (step + 2) ** 2
        rate = _FOLDED if outputs == 4 else _SINGLE if outputs == LANES else _PAIRS
        weights = planes * outputs * _up(layer.inputs, 4)
        multiplied = tiles * 2 * weights / rate
        if read_again:
            multiplied = max(multiplied, (part[3] - part[2]) * 4 * weights / _READ)
        total += multiplied + tiles * (
            planes * (-(-layer.inputs // LANES) * _IN + -(-outputs // LANES) * _OUT)
        )
        if needs_finish(layer):
            total += tiles * step * step * _up(outputs, LANES) * _FINISH
        weights = 4 * planes * outputs * layer.inputs
        if weights > _CACHED:  # read anew for every group of tiles
            total += -(-tiles // _GROUP) * weights / _STREAM
    ends = work.sizes[0][0] + work.layers[-1].outputs
    share = (strip[-1][1] - strip[-1][0]) * (strip[-1][3] - strip[-1][2]) * step
    return total + share * ends * _END


def _cut(layers: int, width: int, bands: int, step: int, across: int, down: int) -> Strips:
    """So many strips across and down."""
    return tuple(
        _strip(layers, left * step, right * step, top, bottom, width, bands, step)
        for left, right in _cuts(width // step, across)
        for top, bottom in _cuts(bands, down)
    )


def _strip(
    layers: int, left: int, right: int, top: int, bottom: int, width: int, bands: int, step: int
) -> Strip:
    """What each stage computes of a strip of the last layer's columns and bands."""
    found = []
    for layer in range(layers):
        further = layers - 1 - layer
        found.append(
            (
                max(0, left - step * further),
                min(width, right + step * further),
                max(0, top - further),
                min(bands, bottom + further),
            )
        )
    first = found[0]
    # x: the columns of the first layer, and a band above and below its bands.
    found.insert(0, (first[0], first[1], max(0, first[2] - 1), min(bands, first[3] + 1)))
    return tuple(found)


def _stages(work: ConvWork, step: int, strips: Strips) -> tuple[tuple[Stage, ...], int]:
    """Stages with their rings laid side by side, and where the rings end."""
    found: list[Stage] = []
    offset = 0
    last = len(work.layers)
    for number in range(last + 1):
        columns = max(strip[number][1] - strip[number][0] for strip in strips) + 2
        rows = step if number == last else 3 * step
        if number == 0:
            channels = work.layers[0].inputs
            planes = channels <= FEW
            blocks, cell = (channels, 4) if planes else (-(-channels // LANES), CELL)
            stage = Stage(
                "planes" if planes else "blocked", channels, blocks, cell, rows, columns, offset
            )
        else:
            layer = work.layers[number - 1]
            few = number == 1 and layer.inputs <= FEW
            folded = number == last and not few and layer.outputs <= 4 and not needs_finish(layer)
            blocks, cell = (1, CELL // 4) if folded else (-(-layer.outputs // LANES), CELL)
            stage = Stage(
                "few" if few else "winograd",
                layer.outputs,
                blocks,
                cell,
                rows,
                columns,
                offset,
                layer.inputs,
                folded,
            )
        found.append(stage)
        offset += -(-stage.rows * stage.blocks * stage.columns * stage.cell // CELL) * CELL + _SPARE
    return tuple(found), offset


def _cuts(size: int, parts: int) -> list[tuple[int, int]]:
    """A range in parts of about equal size, none of them empty."""
    parts = max(1, min(parts, size))
    ends = [size * part // parts for part in range(parts + 1)]
    return list(itertools.pairwise(ends))


def _up(count: int, multiple: int) -> int:
    return -(-count // multiple) * multiple
