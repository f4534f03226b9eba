"""A detector that the user brings: its classes, its input and output, and what it finds.

Classes are those that are named, or those of the file's own metadata (`names`, as Ultralytics
writes them); without either they are numbers.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tilewright.arrays.array import NDArray
from tilewright.errors import ArgumentError, TilewrightError
from tilewright.facts.device import Device
from tilewright.video.detection.boxes import Boxes, joined, merged
from tilewright.video.detection.heads import ACCEPTED, Head, head_of
from tilewright.video.detection.letterbox import Fitting, coloured, letterboxed
from tilewright.video.look import Frame
from tilewright.wording import PATH, in_one_line, short

if TYPE_CHECKING:
    from tilewright.nn.net import Network

_FREE = 640  # samples of a side that a file leaves free
_LONGEST = 1 << 16  # characters of names in a file
_OVERLAP = 0.2  # of a tile, by the one beside it
_WANTED = f"one input float32 [1, 3, height, width], one output {ACCEPTED}"


def names_in(path: Path) -> tuple[str, ...]:
    """Names of classes that an ONNX file has in its metadata; () where it has none."""
    if path.suffix.lower() != ".onnx":
        return ()
    import onnx

    with suppress(Exception):  # what is damaged is said by whoever reads the network
        found = onnx.load(str(path), load_external_data=False).metadata_props
        text = next((one.value for one in found if one.key == "names"), "")
        if len(text) > _LONGEST:
            return ()
        names = ast.literal_eval(text) if text else {}
        if isinstance(names, dict):
            names = [names[number] for number in range(len(names))]
        return tuple(str(name) for name in names)
    return ()


def named(path: str, classes: int, names: Sequence[str]) -> tuple[str, ...]:
    """Names of so many classes. Raises ArgumentError where there are more or fewer."""
    if not names:
        return tuple(f"class {number}" for number in range(classes))
    if len(names) != classes:
        raise ArgumentError(
            f"names={short(','.join(names))}: {len(names)} names; accepted for"
            f" {short(path, PATH)} are {classes}"
        )
    return tuple(names)


def read(net: Network, path: str) -> Head:
    """What a network's input and output are. Raises ArgumentError for what is no such detector."""
    label = f"model={short(path, PATH)}"
    sources = [f"{one.name} {one.dtype} {list(one.shape or ())}" for one in net.inputs]
    first = net.inputs[0]
    sizes = tuple(first.shape or ())
    fits = len(sizes) == 4 and sizes[0] in (1, *_strings(sizes[:1])) and sizes[1] == 3
    if len(net.inputs) != 1 or len(net.outputs) != 1 or first.dtype != "float32" or not fits:
        raise ArgumentError(
            f"{label}: inputs {sources}, {len(net.outputs)} outputs; accepted is {_WANTED}"
        )
    height, width = (one if isinstance(one, int) else _FREE for one in sizes[2:])
    from tilewright.nn.infer import tensors
    from tilewright.nn.sizes import sizes_of

    try:
        made = tensors(net.graph, sizes_of(net.graph, (1, 3, height, width)))[net.outputs[0]].shape
    except TilewrightError as error:
        raise ArgumentError(
            f"{label}: does not take [1, 3, {height}, {width}] ({in_one_line(error)}); accepted is"
            f" {_WANTED}"
        ) from None
    head = head_of(tuple(made or ()), height, width)
    if head is None:
        raise ArgumentError(f"{label}: its output is {list(made or ())}; accepted is {ACCEPTED}")
    return head


def _strings(sizes: Sequence[Any]) -> list[str]:
    return [one for one in sizes if isinstance(one, str)]


class Brought:
    """Such a network, bound; a picture in, its boxes out, merged.

    tiles: whether a picture that is larger than the input is looked at in tiles too
    """

    def __init__(self, net: Network, path: str, device: Device, score: float, tiles: bool) -> None:
        self._head, self._score, self._tiles = read(net, path), score, tiles
        shape = (1, 3, self._head.height, self._head.width)
        self._run: Callable[[NDArray], NDArray] = net.bind(shape, device=device)

    def __call__(self, frame: Frame) -> Boxes:
        """What is found in a picture, in its samples."""
        head, look = self._head, frame.look
        pixels, fitting = letterboxed(frame, head.width, head.height)
        parts = [self._one(pixels, fitting)]
        if self._tiles and (look.width > head.width or look.height > head.height):
            whole = coloured(frame, look.width, look.height)
            parts += [self._tile(whole, top, left) for top in _begins(look.height, head.height)
                      for left in _begins(look.width, head.width)]  # fmt: skip
        return merged(joined(parts).inside(look.width, look.height))

    def _one(self, pixels: NDArray, fitting: Fitting) -> Boxes:
        said = np.asarray(self._run(self._head.given(pixels)))
        return fitting.back(self._head.boxes(said, self._score))

    def _tile(self, whole: NDArray, top: int, left: int) -> Boxes:
        """Boxes of a tile, without those that its edges cut: the tile beside has them whole."""
        head = self._head
        part = whole[top : top + head.height, left : left + head.width]
        pixels = np.full((head.height, head.width, 3), 114, np.uint8)
        pixels[: part.shape[0], : part.shape[1]] = part
        found = self._one(pixels, Fitting(1.0, 0, 0))
        corners, edge = found.corners, 1.0
        cut = (corners[:, 0] < edge) & (left > 0)
        cut |= (corners[:, 1] < edge) & (top > 0)
        cut |= (corners[:, 2] > head.width - edge) & (left + head.width < whole.shape[1])
        cut |= (corners[:, 3] > head.height - edge) & (top + head.height < whole.shape[0])
        return found.chosen(~cut).moved(1.0, left, top)


def _begins(length: int, tile: int) -> list[int]:
    """Where tiles along a side begin."""
    if length <= tile:
        return [0]
    step = int(tile * (1 - _OVERLAP))
    return [min(begin, length - tile) for begin in range(0, length - tile + step, step)]
