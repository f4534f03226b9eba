"""Small objects by a map of heat, a cell for 4 x 4 samples: peaks are where their centres are.

    picture -> luma by places of 4 x 4, chroma by places of 2 x 2 -> network -> a plane of heat a
    kind, width and height, where in its cell the centre lies -> peaks, the largest of 3 x 3 cells

(Zhou, Wang, Krähenbühl 2019, "Objects as points".) A picture larger than a tile is read in tiles
that overlap by more than the network sees, and of each only the middle is kept: the map is the
same as of the whole picture at once, and memory that of a tile.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import numpy as np

from tilewright.arrays.array import NDArray
from tilewright.nn.infer import tensors
from tilewright.nn.sizes import sizes_of
from tilewright.video.detection.boxes import Boxes
from tilewright.video.detection.kinds import KINDS
from tilewright.video.look import FULL_RANGE, Frame
from tilewright.video.tables import LIGHT, lightness

if TYPE_CHECKING:
    from tilewright.nn.net import Network

CELL = 4
PLANES = CELL**2 + 2 * (CELL // 2) ** 2
SAID = len(KINDS) + 4
TILE = (136, 240)  # rows and columns of cells: 544 x 960 samples
SEEN = 12  # cells to each side that tiles overlap by; the network sees nine
_MIDDLE = 128 / 255  # chroma of what has none
_NARROW = 224 / 255  # what full-range chroma is times, to be as films have it


def planes(frame: Frame) -> NDArray:
    """What the network reads of a picture: float32 [1, PLANES, rows / 4, columns / 4].

    Luma is 0 (black) to 1 (white) less a half, chroma as films have it less a half; beyond the
    right and the lower edge lies the edge's sample, and grey pictures have no colour.
    """
    rows, columns = (-(-length // CELL) for length in frame.planes[0].shape)
    found = np.zeros((1, PLANES, rows, columns), np.float32)
    luma = lightness(frame) * np.float32(1 / LIGHT) - np.float32(0.5)
    _by_places(luma, found[0, : CELL**2], CELL)
    if frame.look.kind == "yuv":
        half = CELL // 2
        most = np.float32(1 / ((1 << frame.look.bits) - 1))
        wide = np.float32(_NARROW if frame.look.range == FULL_RANGE else 1)
        for number, plane in enumerate(frame.planes[1:3]):
            chroma = _halved(plane, frame.look.halved) * most - np.float32(_MIDDLE)
            chroma *= wide
            at = CELL**2 + number * half**2
            _by_places(chroma, found[0, at : at + half**2], half)
    return found


def _halved(plane: NDArray, halved: tuple[int, int]) -> NDArray:
    """A plane of chroma as float32, brought to half of luma's rows and columns."""
    found: NDArray = plane.astype(np.float32)
    for axis, times in ((1, halved[0]), (0, halved[1])):
        if times == 0:
            found = _padded(found, axis, 2)
            even, odd = (np.take(found, range(n, found.shape[axis], 2), axis) for n in (0, 1))
            found = (even + odd) / 2
        elif times == 2:
            found = np.repeat(found, 2, axis)
    return found


def _padded(plane: NDArray, axis: int, step: int) -> NDArray:
    """With as many rows or columns as `step` divides, the last one repeated."""
    more = -plane.shape[axis] % step
    ends = [(0, more if one == axis else 0) for one in (0, 1)]
    return np.pad(plane, ends, mode="edge") if more else plane


def _by_places(plane: NDArray, out: NDArray, step: int) -> None:
    """[rows, columns] into [step * step, rows / step, columns / step]."""
    _, rows, columns = out.shape
    wide = plane[: rows * step, : columns * step]
    ends = [(0, rows * step - wide.shape[0]), (0, columns * step - wide.shape[1])]
    if ends != [(0, 0), (0, 0)]:
        wide = np.pad(wide, ends, mode="edge")
    parts = wide.reshape(rows, step, columns, step).transpose(1, 3, 0, 2)
    out.reshape(step, step, rows, columns)[...] = parts


def classes(net: Network) -> int:
    """How many classes a network of this kind knows; 0 where it is of another."""
    shape = net.inputs[0].shape
    if len(net.inputs) != 1 or len(net.outputs) != 1 or len(shape or ()) != 4:
        return 0
    if shape is None or shape[1] != PLANES:
        return 0
    made = tensors(net.graph, sizes_of(net.graph, (1, PLANES, 8, 8)))[net.outputs[0]].shape
    fits = made is not None and len(made) == 4 and made[2:] == (8, 8)
    return made[1] - 4 if fits and made is not None else 0


def tiles(rows: int, columns: int) -> Iterator[tuple[slice, slice, slice, slice]]:
    """Tiles of a map: cells that are read, and cells of the map that are kept of them."""
    for above, down in _spans(rows, TILE[0]):
        for before, right in _spans(columns, TILE[1]):
            yield above, before, down, right


def _spans(length: int, tile: int) -> Iterator[tuple[slice, slice]]:
    """Along one side: what is read, and what is kept of it. Tiles are as long as each other."""
    if length <= tile:
        yield slice(0, length), slice(0, length)
        return
    step = tile - 2 * SEEN
    count = -(-(length - 2 * SEEN) // step)
    begins = [min(number * step, length - tile) for number in range(count)]
    kept = 0
    for number, begin in enumerate(begins):
        end = length if number == count - 1 else begin + tile - SEEN
        yield slice(begin, begin + tile), slice(kept, end)
        kept = end


def tile_of(rows: int, columns: int) -> tuple[int, int]:
    """Rows and columns of cells that a network is bound for."""
    return min(rows, TILE[0]), min(columns, TILE[1])


def mapped(run: Callable[[NDArray], NDArray], given: NDArray) -> NDArray:
    """What a network says of planes, [kinds + 4, rows, columns], tile by tile."""
    _, _, rows, columns = given.shape
    if (rows, columns) == tile_of(rows, columns):
        whole: NDArray = run(given)[0]
        return whole
    found = np.empty((0, rows, columns), np.float32)
    for above, before, down, right in tiles(rows, columns):
        said = run(np.ascontiguousarray(given[:, :, above, before]))[0]
        if not len(found):
            found = np.empty((len(said), rows, columns), np.float32)
        inside = (
            slice(down.start - above.start, down.stop - above.start),
            slice(right.start - before.start, right.stop - before.start),
        )
        found[:, down, right] = said[:, *inside]
    return found


_MIRRORED = [
    *(4 * row + 3 - column for row in range(4) for column in range(4)),
    *(16 + 4 * plane + 2 * row + 1 - column for plane in (0, 1) for row in (0, 1)
      for column in (0, 1)),
]  # fmt: skip


def both_ways(run: Callable[[NDArray], NDArray], given: NDArray) -> NDArray:
    """The mean of what a network says of planes and of their mirror image, mirrored back.

    A map [1, kinds + 4, rows, columns]. It takes twice as long; of photographs that were held out
    0.88 of the things are found so at a tenth of a false one a picture, and 0.87 at once.
    """
    found: NDArray = np.array(run(given))
    other = run(np.ascontiguousarray(given[:, _MIRRORED, :, ::-1]))[..., ::-1]
    found += other
    found *= 0.5
    # Places across are counted from the other side of a cell: a - b / 2 of the sum above.
    found[:, -2] += 0.5 - other[:, -2]
    return found


def peaks(said: NDArray, score: float) -> Boxes:
    """Boxes of a map [kinds + 4, rows, columns], whose heat is logits; scores from `score` on."""
    kinds = len(said) - 4
    logits = said[:kinds]
    least = np.log(score / (1 - score)) if score < 1 else np.inf
    kind, row, column = np.nonzero((logits >= least) & (logits >= _largest(logits)))
    wide, high, right, down = said[kinds:, row, column].astype(np.float64)
    wide, high = (np.maximum(length, 0.25) * CELL for length in (wide, high))
    x, y = (column + right.clip(0, 1)) * CELL, (row + down.clip(0, 1)) * CELL
    corners = np.stack([x - wide / 2, y - high / 2, x + wide / 2, y + high / 2], -1)
    scores = 1 / (1 + np.exp(-logits[kind, row, column].astype(np.float64)))
    return Boxes(corners, scores, kind)


def _largest(maps: NDArray) -> NDArray:
    """The largest of 3 x 3 cells, of maps [kinds, rows, columns]."""
    found = maps
    for axis in (1, 2):
        ends = [(1, 1) if one == axis else (0, 0) for one in range(3)]
        padded = np.pad(found, ends, constant_values=-np.inf)
        length = found.shape[axis]
        parts = [np.take(padded, range(n, n + length), axis) for n in range(3)]
        found = np.maximum.reduce(parts)
    return found
