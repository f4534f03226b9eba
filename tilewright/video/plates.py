"""Plates: the empty scene as a picture, brought along or found in a film whose camera holds still.

A plate goes with a stage's record as text (planes, deflated, base64), so that it stands in the
journal's recipe and every worker has it.
"""

from __future__ import annotations

import base64
import zlib
from collections.abc import Callable, Sequence
from contextlib import closing
from fractions import Fraction
from pathlib import Path

import numpy as np

from tilewright.arrays.array import NDArray
from tilewright.errors import ArgumentError
from tilewright.video import mattes
from tilewright.video.decode import decoded, planes
from tilewright.video.look import Frame, Look
from tilewright.video.planes import kernels_of
from tilewright.video.pyav import pyav
from tilewright.video.source import Film
from tilewright.video.stills import opened
from tilewright.wording import PATH, short

_PICTURES, _FEWEST, _BYTES = 31, 3, 512 << 20
_IN_ONE_GO = 400  # pictures: below this all are decoded, above it each that is looked at is sought
_EDGE, _APART = 24.0, 24.0  # codes of 255: a step that is seen well, and a change
_STILL, _MOVES, _OFTEN = 0.55, 1e-3, 0.06
_EMPTY, _HIDDEN = 0.6, 0.1


def packed(samples: Sequence[NDArray]) -> str:
    """Planes as text."""
    content = b"".join(np.ascontiguousarray(one).tobytes() for one in samples)
    return base64.b64encode(zlib.compress(content)).decode()


def unpacked(text: str, look: Look) -> Frame:
    """The picture of a look that `packed` made text of."""
    content = np.frombuffer(zlib.decompress(base64.b64decode(text)), look.dtype)
    found, begin = [], 0
    for rows, columns in look.shapes:
        found.append(content[begin : begin + rows * columns].reshape(rows, columns))
        begin += rows * columns
    return Frame(tuple(found), 0, 1, Fraction(1), look)


def of_file(path: Path, look: Look, argument: str) -> Frame:
    """A picture of a file in a film's samples.

    Raises FileError for what is no picture, ArgumentError for another size.
    """
    picture = opened(path, argument).convert("RGB")
    if picture.size != (look.width, look.height):
        raise ArgumentError(
            f"{argument}={short(str(path), PATH)}: {picture.width}x{picture.height}; accepted is"
            f" the film's size, {look.width}x{look.height}"
        )
    return of_image(picture, look)


def of_image(picture: object, look: Look) -> Frame:
    """A Pillow image in red, green and blue as a picture of a look of its size."""
    matrix, span = look.coding
    made = pyav().VideoFrame.from_image(picture)
    made = made.reformat(format=look.format, dst_colorspace=matrix, dst_color_range=span)
    samples = tuple(one.copy() for one in planes(made, look))
    return Frame(samples, 0, 1, Fraction(1), look)


def check_filled(plate: Frame, label: str) -> None:
    """Raise ArgumentError for a plate in which nothing is to be seen."""
    if all(int(one.max()) - int(one.min()) <= 1 for one in plate.planes):
        raise ArgumentError(
            f"{label}: one colour all over; accepted is a picture of the empty scene, or --key for"
            " a wall of one colour"
        )


def of_film(film: Film, progress: Callable[[int, int], None] | None = None) -> Frame:
    """The median of pictures evenly spread over a film.

    Raises ArgumentError where the camera moves, where nothing moves before it, and for fewer than
    three pictures.
    """
    label = f"source={short(str(film.path), PATH)}"
    frames = _spread(film, progress)
    if len(frames) < _FEWEST:
        raise ArgumentError(
            f"{label}: {len(frames)} pictures to find the empty scene in; accepted are {_FEWEST}"
            " and more, or --plate FILE"
        )
    samples = tuple(
        np.partition(np.stack(several), len(frames) // 2, axis=0)[len(frames) // 2]
        for several in zip(*(frame.planes for frame in frames), strict=True)
    )
    plate = Frame(samples, 0, 1, Fraction(1), film.look)
    alike, moved, hidden = held_still(frames, plate)
    if alike < _STILL:
        raise ArgumentError(
            f"{label}: the camera moves ({alike:.0%} of the median's edges are in its pictures);"
            " accepted are films of a still camera, --plate FILE, --key or --matte-model"
        )
    if moved < _MOVES:
        raise ArgumentError(
            f"{label}: nothing moves before the camera, so the median is no empty scene; accepted"
            " is --plate FILE"
        )
    if hidden > _HIDDEN:
        raise ArgumentError(
            f"{label}: {hidden:.0%} of what changes is hardly ever seen empty, as somebody stays"
            " there or light changes; accepted are --plate FILE, --key and --matte-model"
        )
    return plate


def _spread(film: Film, progress: Callable[[int, int], None] | None) -> list[Frame]:
    """Pictures evenly spread, in memory of their own."""
    count = min(_PICTURES, len(film.times), max(_FEWEST, _BYTES // max(1, film.look.bytes)))
    places = np.linspace(0, len(film.times) - 1, count).round().astype(int)
    wanted = [film.times[place] for place in places]
    found: list[Frame] = []

    def keep(frame: Frame) -> None:
        copies = tuple(plane.copy() for plane in frame.planes)
        found.append(Frame(copies, frame.pts, frame.duration, frame.time_base, frame.look))
        if progress is not None:
            progress(len(found), count)

    if film.numbered or len(film.times) <= _IN_ONE_GO:
        chosen = set(wanted)
        with closing(decoded(film)) as pictures:
            for frame in pictures:
                if frame.pts in chosen:
                    keep(frame)
        return found
    for pts in wanted:
        with closing(decoded(film, pts)) as pictures:
            if (one := next(pictures, None)) is not None:
                keep(one)
    return found


def held_still(frames: Sequence[Frame], plate: Frame) -> tuple[float, float, float]:
    """Which share of the plate's edges pictures have too, their median; the most of any that moved;
    the share of what changes that is as the plate in fewer than three of five pictures.

    Somebody before the plate hides some of its edges; a camera that moves leaves next to none where
    they were: of clips 0.61 and 0.68 where it holds still (one with a lens that adapts to light),
    0.05 to 0.18 where it moves, 0.35 to 0.49 of moving water, of a flower that opens, across a cut.
    """
    behind = mattes.halves(plate)
    rough = np.empty(behind.colours.shape[1:], np.float32)
    kernels_of("mattes").roughness(behind.colours, rough)
    edges = (rough > _EDGE)[:-1, :-1]
    own = _gradients(behind.colours[0], edges)
    alike, apart = [], []
    for frame in frames:
        seen = mattes.halves(frame)
        found = _gradients(seen.colours[0], edges)
        longer = np.maximum(np.abs(own).sum(0), np.abs(found).sum(0))
        if longer.size:
            alike.append(float((np.abs(own - found).sum(0) < longer / 2).mean()))
        step = np.abs(seen.colours - mattes.levelled(seen, behind).colours)
        apart.append(step.max(0).astype(np.float16))
    far = np.stack(apart) > _APART
    changes = far.mean(0) > _OFTEN
    alike_there = (np.stack(apart)[:, changes] < _APART / 2).mean(0)
    hidden = float((alike_there < _EMPTY).mean()) if changes.any() else 0.0
    return float(np.median(alike)) if alike else 1.0, float(far.mean((1, 2)).max()), hidden


def _gradients(luma: NDArray, where: NDArray) -> NDArray:
    return np.stack([np.diff(luma, axis=1)[:-1][where], np.diff(luma, axis=0)[:, :-1][where]])
