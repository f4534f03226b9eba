"""Plans a chain of int8 convolutions: strips of rows, jobs in order, rings, and what it takes.

    strip   rows of the last layer; of each layer before it those that they read
    jobs    (stage, first row, row after the last), a few rows at a time: stage 0 is x, and a
            layer's rows are computed as soon as what they read is there
    rings   so many rows of each stage as somebody still reads

Pure: sizes in, numbers out. Rates are of the core that `rates` counts in, with VNNI (two dot
products of sixteen lanes a cycle), and are scaled as `rates.py` has it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise

from tilewright.backends.host import rates
from tilewright.engines.conv import Conv, ConvWork
from tilewright.facts.device import Device

Job = tuple[int, int, int]
COLUMNS = 7  # pixels of a group of the kernels, at most
LANES = 16
_LEAST, _ROOM = 4, 700 << 10  # rows of a job; bytes of rings that stay in a core's cache
_KEPT = 24 << 10  # bytes of weights that are read again for every few rows at no cost
_SLACK = 64  # bytes that kernels may read beyond a row
_SINGLE, _PAIR = 5.2e9, 5.7e9  # products of sixteen channels, four bytes each, a second
_END, _FLOAT = 1.2e-9, 9e-10  # seconds a vector that becomes bytes; a float that is put by itself
_TAKEN, _COPIED = 2.5e-10, 4e-11  # seconds a float32 that is rounded, a byte that is copied
_DEEP, _ROW = 64, 1.6e-9  # channels that go by themselves together; seconds of a row of a window
_START = 3e-5  # seconds of a call


@dataclass(frozen=True, slots=True)
class WholePlan:
    """Everything that sizes decide.

    strips   jobs of each strip of an image
    rows     that the ring of each stage keeps; 0 of the last, and of x where it is read as it lies
    lines    bytes of a row of each stage
    offsets  where each ring begins in a worker's memory, and the row outside of each
    memory   bytes that a worker takes, scratch not among them
    seconds  of one image's strips, each on one core
    """

    strips: tuple[tuple[Job, ...], ...]
    rows: tuple[int, ...]
    lines: tuple[int, ...]
    offsets: tuple[tuple[int, int], ...]
    memory: int
    workers: int
    seconds: tuple[float, ...]


def sums_of(work: ConvWork) -> list[tuple[int, int]]:
    """Rows and columns of each layer's sums, before a shuffle."""
    layers = zip(work.layers, work.sizes, strict=False)
    return [layer.sums(height, width) for layer, (_, height, width) in layers]


def pieces_of(layer: Conv) -> tuple[int, int, int]:
    """Pieces of a row of the window, bytes of each, and fours of bytes."""
    across = layer.kernel[1]
    channels = int(layer.weights.shape[1])
    if layer.groups == 1 and layer.dilations[1] == 1:
        return 1, across * channels, -(-across * channels // 4)
    return across, channels, -(-channels // 4)


def is_depth(layer: Conv, columns: int) -> bool:
    """Whether channels go by themselves and the kernels of three taps across take them."""
    alone = layer.groups == layer.outputs == layer.inputs and layer.kernel[1] == 3
    plain = layer.dilations[1] == 1 and layer.strides[1] in (1, 2) and columns >= COLUMNS
    return alone and plain and layer.whole is not None and layer.whole.step is not None


def is_read_directly(work: ConvWork) -> bool:
    """Whether the first layer reads x where it lies: bytes side by side, no borders."""
    layer = work.layers[0]
    whole = layer.whole
    assert whole is not None
    plain = whole.taken is None and whole.source == "uint8" and not any(layer.pads)
    side = work.source == "channels_last" or layer.inputs == 1
    return plain and side and pieces_of(layer)[1] % 16 == 0 and sums_of(work)[0][1] >= COLUMNS


def plan_whole(work: ConvWork, cores: int) -> WholePlan:
    """Cut a chain into strips for so many cores."""
    height = sums_of(work)[-1][0]
    count = max(1, min(height, -(-cores // max(1, work.images))))
    ends = [height * at // count for at in range(count + 1)]
    step = _step(work)
    found = [_jobs(work, *pair, step) for pair in pairwise(ends)]
    rows = [max(some) for some in zip(*(rings for _, rings in found), strict=True)]
    if is_read_directly(work):
        rows[0] = 0
    strips = tuple(tuple(job for job in jobs if job[0] or rows[0]) for jobs, _ in found)
    lines = _lines(work)
    offsets, end = [], 0
    for kept, line in zip(rows, lines, strict=True):
        offsets.append((end + line, end))
        end += -(-(kept + 1) * line // 64) * 64
    workers = max(1, min(cores, len(strips) * work.images))
    seconds = tuple(_seconds(work, jobs) for jobs in strips)
    return WholePlan(strips, tuple(rows), tuple(lines), tuple(offsets), end, workers, seconds)


def whole_seconds(work: ConvWork, plan: WholePlan, device: Device) -> float:
    """The prediction: the core that has most to do."""
    scale = rates.of(device).factor
    each = plan.seconds * work.images
    return _START + scale * max(max(each, default=0.0), sum(each) / plan.workers)


def _step(work: ConvWork) -> int:
    """Rows of the last layer in a job: more where weights are heavy, as far as rings stay small."""
    line = sum(_lines(work))
    weights = max(layer.weights.nbytes for layer in work.layers)
    if weights <= _KEPT:
        return _LEAST
    return max(_LEAST, min(64, _ROOM // max(1, line)))


def _read(layer: Conv, row: int) -> int:
    """The first row of the source that a row reads."""
    return row * layer.strides[0] - layer.pads[0]


def _needed(layer: Conv, end: int) -> int:
    """The row after the last that rows before `end` read."""
    return _read(layer, end - 1) + layer.dilations[0] * (layer.kernel[0] - 1) + 1


def _jobs(work: ConvWork, first: int, last: int, step: int) -> tuple[list[Job], list[int]]:
    """The jobs of a strip, and the rows that rings must keep."""
    layers, heights = work.layers, [work.height, *(rows for rows, _ in sums_of(work))]
    count = len(layers)
    done = [0] * count + [first]
    for at in reversed(range(count)):
        done[at] = max(0, _read(layers[at], done[at + 1]))
    jobs: list[Job] = []
    kept = [0] * (count + 1)
    # It begins so early that no stage has more than a few rows to do at once.
    target = first - step * (2 * count + 2)
    while done[count] < last:
        target += step
        wanted = [0] * count + [min(target, last)]
        for at in reversed(range(count)):
            if wanted[at + 1] > done[at + 1]:  # else nobody reads more, and no ring has room
                wanted[at] = min(heights[at], _needed(layers[at], wanted[at + 1]))
        for at, end in enumerate(wanted):
            if end <= done[at]:
                continue
            jobs.append((at, done[at], end))
            if at:
                lowest = max(0, _read(layers[at - 1], done[at]))
                kept[at - 1] = max(kept[at - 1], done[at - 1] - lowest)
            done[at] = end
    return jobs, kept


def _lines(work: ConvWork) -> list[int]:
    """Bytes of a row of each stage, borders among them."""
    found = []
    widths = [work.width, *(columns for _, columns in sums_of(work))]
    for at, layer in enumerate(work.layers):
        reach = layer.dilations[1] * (layer.kernel[1] - 1) + 1
        wide = (max(widths[at + 1], COLUMNS) - 1) * layer.strides[1] + reach
        wide = max(wide, layer.pads[1] + widths[at])
        found.append(-(-(wide * layer.inputs + _SLACK) // 64) * 64)
    return [*found, widths[-1] * work.layers[-1].outputs]


def _seconds(work: ConvWork, jobs: tuple[Job, ...]) -> float:
    """What a strip takes a core."""
    total = 0.0
    for at, first, last in jobs:
        if at == 0:
            kind = _TAKEN if work.source_dtype == "float32" else _COPIED
            total += (last - first) * work.width * work.layers[0].inputs * kind
        else:
            total += (last - first) * _row_seconds(work, at)
    return total


def _row_seconds(work: ConvWork, at: int) -> float:
    """One row of a layer."""
    layer = work.layers[at - 1]
    pixels = math.ceil(sums_of(work)[at - 1][1] / COLUMNS) * COLUMNS
    if is_depth(layer, pixels):
        blocks = math.ceil(layer.outputs / _DEEP)
        return pixels * blocks * (layer.kernel[0] * _ROW + 4 * _END)
    splits, _, quads = pieces_of(layer)
    each = layer.outputs // layer.groups
    vectors = math.ceil(each / LANES)
    products = layer.kernel[0] * splits * quads * layer.groups * pixels
    result = layer.whole.dtype if layer.whole else ""
    if result == "float32" and each <= 4:
        return products * math.ceil(quads / 4) / quads / _SINGLE + pixels * _END * 2
    pairs, rest = divmod(vectors, 2)
    found = products * (2 * pairs / _PAIR + rest / _SINGLE)
    found += pixels * vectors * layer.groups * _END
    return found + (pixels * layer.outputs * _FLOAT if result == "float32" else 0.0)
