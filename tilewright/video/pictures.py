"""Pictures through the same stages as films: PNG, JPEG and WebP, alone, by folder or by pattern.

Colours become luma and chroma of sixteen bits (BT.601, full range, not halved) for the stages, and
colours again after them; without a stage samples are not touched. The colour profile, orientation
and what else a camera noted go along, but where somebody is hidden: a camera notes small pictures.
"""

from __future__ import annotations

import os
import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import numpy as np

from tilewright.arrays.array import NDArray
from tilewright.errors import ArgumentError, FileError
from tilewright.files.whole import check_writable, path_of, replacing
from tilewright.video.look import FULL_RANGE, Frame, Look
from tilewright.video.stages.contract import Stage, Window, Work, hides, looks
from tilewright.video.stills import FORMATS, SUFFIXES, bared, noted, opened, pillow, saving
from tilewright.wording import PATH, in_one_line, short

_BT601, _BT601_PRIMARIES, _SRGB = 6, 1, 13
_DEEP = 257  # eight bits as sixteen
# Y, Cb, Cr of R, G, B: rows of BT.601.
_TO = np.array([[0.299, 0.587, 0.114], [-0.168736, -0.331264, 0.5], [0.5, -0.418688, -0.081312]])
_SAME = {"MPO": "JPEG"}  # what Pillow calls a JPEG with more pictures behind it
_WIDEST = {"PNG": (1 << 31) - 1, "JPEG": 65500, "WEBP": 16383}  # a side, as their writers have it


@dataclass(frozen=True, slots=True)
class Pair:
    """A picture, and where it goes.

    folder  what it lies in there is made where it is absent
    """

    source: Path
    out: Path
    folder: bool = False


def pairs(source: str | os.PathLike[str], out: str | os.PathLike[str]) -> tuple[Pair, ...] | None:
    """What `source` means: a picture, a folder of them, or a pattern as `photos/*.jpg`.

    Of several `out` is a folder, and they keep their names. None where it is no picture's name.

    Raises ArgumentError where a folder or pattern has none, or two would have one name.
    """
    given, target = path_of(source, "source"), path_of(out, "out")
    if given.is_file():
        return (Pair(given, target),) if given.suffix.lower() in SUFFIXES else None
    if given.is_dir():
        found = sorted(given.iterdir())
    elif set(str(given)) & set("*?["):
        found = sorted(Path(given.anchor or ".").glob(str(given.relative_to(given.anchor))))
    else:
        return None
    chosen = [path for path in found if path.is_file() and path.suffix.lower() in SUFFIXES]
    if not chosen:
        raise ArgumentError(
            f"source={short(str(given), PATH)}: no picture; accepted are {', '.join(SUFFIXES)}, and"
            " films one by one, as by a loop of the shell"
        )
    names = Counter(path.name for path in chosen)
    if twice := next((name for name, count in names.items() if count > 1), None):
        raise ArgumentError(f"source={short(str(given), PATH)}: two pictures named {twice!r}")
    return tuple(Pair(path, target / path.name, folder=True) for path in chosen)


def enhanced(
    wanted: Sequence[Pair],
    stages: Sequence[Stage],
    *,
    overwrite: bool = False,
    progress: Callable[[int], None] | None = None,
) -> None:
    """Every picture through the stages. Raises as `enhance` does, before the first is written."""
    made: dict[Look, tuple[Work, ...]] = {}
    check(wanted, stages, overwrite=overwrite)
    with _folder(wanted[0]):
        for pair in wanted:
            check_writable(pair.out, "out")
    for number, pair in enumerate(wanted):
        _one(pair, stages, made)
        if progress is not None:
            progress(number + 1)


def check(wanted: Sequence[Pair], stages: Sequence[Stage], *, overwrite: bool = False) -> None:
    """Raise for what cannot be done; nothing is written."""
    for pair in wanted:
        _check(pair, overwrite)
        look, name = _look(*_size(pair.source)), FORMATS[pair.out.suffix.lower()]
        label = f"out={short(str(pair.out), PATH)}"
        if look.alpha and name == "JPEG":
            raise ArgumentError(f"{label}: JPEG keeps no opacity; accepted are .png and .webp")
        after = looks(stages, look)[-1]
        if max(after.width, after.height) > _WIDEST[name]:
            raise ArgumentError(
                f"{label}: {after.width}x{after.height} samples; accepted for {name} are"
                f" {_WIDEST[name]} a side"
            )
    folder = wanted[0].out.parent
    if wanted[0].folder and not folder.is_dir():
        if folder.exists():
            raise _no_folder(folder, "it exists, and is a file")
        if not folder.parent.is_dir():
            raise _no_folder(folder, "No such file or directory")


@contextmanager
def _folder(pair: Pair) -> Iterator[None]:
    """The folder that pictures go to, made where it is absent; gone again where one cannot."""
    folder = pair.out.parent
    try:
        fresh = pair.folder and not folder.is_dir()
        if fresh:
            folder.mkdir()
    except OSError as error:
        raise _no_folder(folder, error.strerror or str(error)) from None
    try:
        yield
    except BaseException:
        if fresh:
            with suppress(OSError):
                folder.rmdir()
        raise


def _no_folder(folder: Path, why: str) -> FileError:
    return FileError(
        f"out={short(str(folder), PATH)}: cannot be made ({why}); accepted is a folder, or a name"
        " in one that can be written"
    )


def _check(pair: Pair, overwrite: bool) -> None:
    label = f"out={short(str(pair.out), PATH)}"
    if pair.out.suffix.lower() not in SUFFIXES:
        raise ArgumentError(
            f"{label}: suffix {pair.out.suffix!r}; accepted are {', '.join(SUFFIXES)}"
        )
    if pair.out.exists():
        if pair.out.samefile(pair.source):
            raise ArgumentError(f"{label}: is the source itself; accepted is another file")
        if not overwrite:
            raise FileError(
                f"{label}: exists; accepted is another name, or overwrite=True (--overwrite)"
            )


def _size(path: Path) -> tuple[int, int, str]:
    picture = opened(path)
    return picture.width, picture.height, picture.mode


def _look(width: int, height: int, mode: str) -> Look:
    grey = mode in ("L", "LA")
    alpha = mode in ("LA", "RGBA")
    # FFmpeg has no sixteen bits of grey with opacity in planes: grey is the luma of colours then.
    name = "gray16le" if mode == "L" else "yuva444p16le" if alpha else "yuv444p16le"
    return Look(
        width,
        height,
        name,
        16,
        "grey" if grey and not alpha else "yuv",
        alpha=alpha,
        range=FULL_RANGE,
        matrix=_BT601,
        primaries=_BT601_PRIMARIES,
        transfer=_SRGB,
        siting="center",
    )


def _one(pair: Pair, stages: Sequence[Stage], made: dict[Look, tuple[Work, ...]]) -> None:
    picture = opened(pair.source)
    form = _SAME.get(picture.format, picture.format)
    if not stages and form == FORMATS[pair.out.suffix.lower()]:
        with replacing(pair.out, "out") as temporary:
            shutil.copyfile(pair.source, temporary)
        return
    if stages:
        look = _look(picture.width, picture.height, picture.mode)
        if look not in made:
            made.clear()  # networks of one size at a time are kept
            passed = looks(stages, look)
            made[look] = tuple(s.bound(one) for s, one in zip(stages, passed, strict=False))
        pixels = _through(np.asarray(picture), look, made[look])
        telling = bared if hides(stages) else noted
        picture = telling(pillow().fromarray(pixels), picture)
    with replacing(pair.out, "out") as temporary:
        try:
            picture.save(temporary, **saving(picture, pair.out))
        except ValueError as error:
            raise FileError(
                f"out={short(str(pair.out), PATH)}: cannot be written ({in_one_line(error)});"
                " accepted is another suffix"
            ) from None


def _through(pixels: NDArray, look: Look, works: Sequence[Work]) -> NDArray:
    """Samples [rows, columns] or [rows, columns, colours] through bound stages."""
    frames: Iterator[Frame] = iter((Frame(_planes(pixels, look), 0, 1, Fraction(1), look),))
    for work in works:
        frames = iter([made for frame in frames for made in work(Window(frame))])
    frame = next(frames)
    colours = 1 if pixels.ndim == 2 else pixels.shape[2]
    return _pixels(frame.planes, colours)


def _planes(pixels: NDArray, look: Look) -> tuple[NDArray, ...]:
    """Luma, chroma and opacity of sixteen bits."""
    if pixels.ndim == 2:
        return (pixels.astype(np.uint16) * _DEEP,)
    colours = pixels[..., :3] if pixels.shape[2] > 2 else pixels[..., :1].repeat(3, 2)
    turned = colours @ (_TO.T * _DEEP)
    turned[..., 1:] += 32768
    found = np.rint(turned).clip(0, 65535).astype(np.uint16)
    planes = tuple(np.ascontiguousarray(found[..., number]) for number in range(3))
    if look.alpha:
        return (*planes, pixels[..., -1].astype(np.uint16) * _DEEP)
    return planes


def _pixels(planes: Sequence[NDArray], colours: int) -> NDArray:
    """Eight bits of grey or colours, and opacity."""
    alpha = [_shallow(planes[-1])] if colours in (2, 4) else []
    if colours < 3:
        found = [_shallow(planes[0]), *alpha]
        return found[0] if len(found) == 1 else np.stack(found, -1)
    turned = np.stack(planes[:3], -1).astype(np.float64)
    turned[..., 1:] -= 32768
    back = (turned / _DEEP) @ np.linalg.inv(_TO).T
    return np.concatenate(
        [np.rint(back).clip(0, 255).astype(np.uint8), *(one[..., None] for one in alpha)], -1
    )


def _shallow(plane: NDArray) -> NDArray:
    found: NDArray = np.rint(plane / np.float64(_DEEP)).astype(np.uint8)
    return found
