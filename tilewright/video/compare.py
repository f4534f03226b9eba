"""Pictures of a film beside those it was made of: which to show, how like, and as images.

At most 32 pictures, evenly spread, are looked at, so that a page about a long film is made in
seconds. Where a reference is given the worst is the least like it; else the least like its source,
brought back to the source's size.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from fractions import Fraction
from io import BytesIO
from typing import Any

import numpy as np

from tilewright.arrays.array import NDArray
from tilewright.errors import ArgumentError
from tilewright.video.decode import decoded
from tilewright.video.likeness import psnr, ssim
from tilewright.video.look import Frame, Look
from tilewright.video.source import Film
from tilewright.video.stills import pillow
from tilewright.wording import PATH, short

_LOOKED_AT = 32
_IN_ONE_GO = 400  # pictures: below this all are decoded, above it each that is looked at is sought
_WIDE = 1280  # of the images with a slider
_CROP = 240


@dataclass(frozen=True, slots=True, eq=False)
class Seen:
    """A picture before and after, and how like the latter is to what it is measured by."""

    before: Frame
    after: Frame
    right: Frame | None
    psnr: float
    ssim: float


def check_reference(reference: Film, look: Look, argument: str) -> None:
    """Raise ArgumentError for a film that is no reference of pictures of this look."""
    theirs = reference.look
    if (theirs.width, theirs.height, theirs.kind) != (look.width, look.height, look.kind):
        raise ArgumentError(
            f"{argument}={short(str(reference.path), PATH)}: {theirs.said()}; accepted is what the"
            f" film will be, {look.said()}"
        )


def seen(source: Film, out: Film, reference: Film | None) -> list[Seen]:
    """Pictures of a film beside its source's, in the order of time."""
    count = min(_LOOKED_AT, len(source.times), len(out.times))
    places = np.linspace(0, len(source.times) - 1, count).round().astype(int)
    times = [source.times[place] * source.time_base for place in places]
    rows = [_at(source, times), _at(out, times)]
    rights: Iterator[Frame | None] = _at(reference, times) if reference else iter([None] * count)
    return [_compared(a, b, c) for a, b, c in zip(*rows, rights, strict=False)]


def chosen(found: Sequence[Seen]) -> dict[str, Seen]:
    """The least, the middle and the most like, by what each is called."""
    order = sorted(found, key=lambda one: one.psnr)
    measured = found[0].right is not None
    names = ("worst", "median", "best") if measured else ("changed most", "median", "changed least")
    return dict(zip(names, (order[0], order[len(order) // 2], order[-1]), strict=True))


def _at(found: Film, times: Sequence[Fraction]) -> Iterator[Frame]:
    """The pictures shown at, or next to, some times, rising."""
    stamps = np.array(found.times)
    wanted = [found.times[int(np.abs(stamps - float(t / found.time_base)).argmin())] for t in times]
    if found.numbered or len(found.times) <= _IN_ONE_GO:
        chosen = set(wanted)
        with closing(decoded(found)) as pictures:
            yield from (frame for frame in pictures if frame.pts in chosen)
        return
    for pts in wanted:
        with closing(decoded(found, pts)) as pictures:
            yield from (frame for frame in [next(pictures, None)] if frame is not None)


def _compared(before: Frame, after: Frame, right: Frame | None) -> Seen:
    """By luma, or what the first plane holds; beside a source at the source's size."""
    if right is not None:
        one, other = _first(after), _first(right)
    else:
        size = (before.look.width, before.look.height)
        one, other = _small(after, size), _small(before, size)
    like = ssim(one, other, 255) if min(one.shape) >= 11 else float("nan")
    return Seen(before, after, right, psnr(one, other, 255), like)


def _first(frame: Frame) -> NDArray:
    scale = 1 << (frame.look.bits - 8)
    return frame.planes[0] / np.float64(scale)


def _small(frame: Frame, size: tuple[int, int]) -> NDArray:
    made = frame.carrier.reformat(*size, "gray", interpolation="AREA")
    return np.frombuffer(made.planes[0], np.uint8).reshape(size[1], -1)[:, : size[0]]


def image(frame: Frame, size: tuple[int, int]) -> Any:
    """A Pillow image of a picture, enlarged by a bicubic filter where it is smaller."""
    look = frame.look
    matrix, span = look.coding
    made = frame.carrier.reformat(
        *size, "rgb24", src_colorspace=matrix, src_color_range=span, interpolation="BICUBIC"
    )
    return made.to_image()


def pair_of_images(one: Seen) -> tuple[Any, Any]:
    """Before and after, as large as after, at most 1280 wide."""
    look = one.after.look
    wide = min(_WIDE, look.width)
    size = (wide, max(1, round(look.height * wide / look.width)))
    return image(one.before, size), image(one.after, size)


def crops(one: Seen, *, hidden: bool = False) -> list[tuple[str, Any]]:
    """The place where most was changed, sample by sample: before, after, and the reference.

    hidden: after alone.
    """
    look = one.after.look
    size = (look.width, look.height)
    frames = [("before", one.before), ("after", one.after)]
    frames += [("reference", one.right)] if one.right is not None else []
    images = [(name, image(frame, size)) for name, frame in frames]
    place = busiest(np.asarray(images[0][1]), np.asarray(images[1][1]))
    shown = images[1:2] if hidden else images
    return [(name, picture.crop(place)) for name, picture in shown]


def busiest(before: NDArray, after: NDArray, side: int = _CROP) -> tuple[int, int, int, int]:
    """Left, top, right, bottom of the square in which two images differ most."""
    rows, columns = before.shape[:2]
    high, wide = min(side, rows), min(side, columns)
    error = np.abs(before.astype(np.int32) - after).sum(-1)
    sums = np.pad(error.cumsum(0).cumsum(1), ((1, 0), (1, 0)))
    boxes = sums[high:, wide:] - sums[:-high, wide:] - sums[high:, :-wide] + sums[:-high, :-wide]
    top, left = np.unravel_index(int(boxes.argmax()), boxes.shape)
    return int(left), int(top), int(left) + wide, int(top) + high


def inline(picture: Any, *, exact: bool = False) -> str:
    """An image as the address that holds it: PNG where every sample counts, else JPEG."""
    kept, name = BytesIO(), "png" if exact else "jpeg"
    options = {} if exact else {"quality": 90, "subsampling": 0}
    picture.save(kept, name, **options)
    return f"data:image/{name};base64,{base64.b64encode(kept.getvalue()).decode()}"


def sheet(rows: Sequence[tuple[str, Any | None, Any]]) -> Any:
    """One image of several: what each is called, before at the left and after at the right.

    None as before: after alone.
    """
    from PIL import ImageDraw

    gap, head = 8, 18
    alone = rows[0][1] is None
    width = max(after.width for *_, after in rows) * (1 if alone else 2) + (0 if alone else gap)
    height = sum(after.height + head for *_, after in rows)
    made = pillow().new("RGB", (width, height), "white")
    pen, top = ImageDraw.Draw(made), 0
    for name, before, after in rows:
        left = 0 if before is None else before.width + gap
        if before is not None:
            pen.text((2, top + 3), f"{name}: before", fill="black")
            made.paste(before, (0, top + head))
        pen.text((left + 2, top + 3), f"{name}: after" if alone else "after", fill="black")
        made.paste(after, (left, top + head))
        top += after.height + head
    return made
