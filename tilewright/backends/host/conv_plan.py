"""Plans a chain of 3x3 convolutions: into which strips it is cut, and what memory a worker takes.

    picture   | strip 0    | strip 1    |     each strip all rows, or some bands of them
    layer n                [=====]            what the last layer computes
    layer n-1             [=======]           and each layer before it: a tile more on each side,
    layer n-2            [=========]          as tiles are computed as a whole

Pure: sizes in, numbers out.
"""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.engines.conv import ConvWork

LANES, CELL = 16, 64
FEW = 3  # input channels up to which a first layer is computed plainly
_SPARE = 64  # bytes between rings, so that they do not begin on the same lines of a cache


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
    memory     bytes that a worker takes; `tiles`, `sums`, `tables` begin in it
    """

    step: int
    bands: int
    stages: tuple[Stage, ...]
    strips: tuple[tuple[tuple[int, int, int, int], ...], ...]
    workers: int
    memory: int
    tiles: int
    sums: int
    tables: int


def plan_chain(
    work: ConvWork, step: int, cores: int, group: int, across: int | None = None, down: int = 1
) -> ChainPlan:
    """Cut a chain for so many cores; `group` tiles are computed together.

    `across` and `down` say into how many strips, and these into how many runs of bands.
    """
    width, bands = _up(work.width, step), -(-work.height // step)
    across = across or max(1, min(cores, width // step))
    cuts = _cuts(width // step, across)
    floors = _cuts(bands, down)
    strips = tuple(
        _strip(len(work.layers), left * step, right * step, top, bottom, width, bands, step)
        for left, right in cuts
        for top, bottom in floors
    )
    stages, size = _stages(work, step, strips)
    planes = (step + 2) ** 2
    blocks = max(-(-layer.inputs // LANES) for layer in work.layers)
    tiles = size
    sums = tiles + blocks * planes * (group + 1) * CELL + _SPARE
    tables = sums + planes * (2 * group + 1) * CELL + _SPARE
    memory = tables + 8 * 64
    workers = max(1, min(cores, len(strips) * work.images))
    return ChainPlan(step, bands, stages, strips, workers, memory, tiles, sums, tables)


def _strip(
    layers: int, left: int, right: int, top: int, bottom: int, width: int, bands: int, step: int
) -> tuple[tuple[int, int, int, int], ...]:
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


def _stages(
    work: ConvWork, step: int, strips: tuple[tuple[tuple[int, int, int, int], ...], ...]
) -> tuple[tuple[Stage, ...], int]:
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
            folded = number == last and not few and layer.outputs <= 4
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
    return list(zip(ends, ends[1:], strict=False))


def _up(count: int, multiple: int) -> int:
    return -(-count // multiple) * multiple
