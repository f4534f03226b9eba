"""Pictures as networks take and give them: decoded, resized, scaled, written.

Wrong files are one clear error.
"""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np

from tilewright.arrays.array import NDArray
from tilewright.errors import ArgumentError, FileError
from tilewright.files.whole import check_writable, replacing

MISSING = "Pillow is not installed; 'pip install tilewright[onebit]' brings it"
SUFFIXES = (".png", ".jpg", ".jpeg")


def picture(
    path: Path, shape: tuple[int, ...], mean: tuple[float, ...], deviation: tuple[float, ...]
) -> NDArray:
    """The input of a network of `shape` from a picture: (pixel / 255 - mean) / deviation, float32.

    One channel is grey, three are red, green and blue; features are a square's, row by row. The
    whole picture is resized to the network's size, bilinearly.

    Raises FileError for what is no picture, ArgumentError for a shape that no picture has.
    """
    height, width, channels = shape if len(shape) == 3 else _square(shape[0])
    if channels not in (1, 3):
        raise ArgumentError(f"the network takes {channels} channels; pictures have 1 or 3")
    label = f"IMAGE={str(path)!r}"
    pixels = _decoded(path, label, (width, height), "L" if channels == 1 else "RGB")
    values = pixels.reshape(height, width, channels) / np.float32(255)
    scaled: NDArray = (values - _per_channel(mean, channels, "--mean")) / _per_channel(
        deviation, channels, "--std"
    )
    return scaled.reshape(shape).astype(np.float32)


def planes(
    path: Path, argument: str, channels: int, height: int | None, width: int | None
) -> NDArray:
    """A picture as float32 [1, channels, height, width] from 0 to 1, in its own sizes where None.

    Raises FileError for what is no picture.
    """
    pixels = _decoded(
        path, f"{argument}={str(path)!r}", (width, height), "L" if channels == 1 else "RGB"
    )
    values = pixels.reshape(*pixels.shape[:2], channels) / np.float32(255)
    return np.ascontiguousarray(values.transpose(2, 0, 1))[None]


def save_planes(path: Path, argument: str, values: NDArray) -> None:
    """Write [1, H, W] or [3, H, W] from 0 to 1 as a picture, a whole file or none.

    What lies outside is cut off; NaN becomes 0. Raises FileError.
    """
    image = _pillow(f"{argument}={str(path)!r}")
    scaled = np.nan_to_num(values.astype(np.float32), nan=0.0) * np.float32(255)
    pixels = np.clip(np.rint(scaled), 0, 255).astype(np.uint8).transpose(1, 2, 0)
    made = image.fromarray(pixels[:, :, 0] if pixels.shape[2] == 1 else pixels)
    with replacing(path, argument) as temporary:
        made.save(temporary, format="PNG" if path.suffix.lower() == ".png" else "JPEG")


def check(path: Path, argument: str) -> None:
    """Raise FileError where `save_planes` could not write; asked before anything is computed."""
    _pillow(f"{argument}={str(path)!r}")
    check_writable(path, argument)


def _pillow(label: str) -> Any:
    try:
        from PIL import Image
    except ImportError:
        raise FileError(f"{label}: {MISSING}") from None
    return Image


def _decoded(path: Path, label: str, sizes: tuple[int | None, int | None], mode: str) -> NDArray:
    """Pixels of a picture, resized to (width, height); where one is None it keeps its own."""
    try:
        from PIL import Image, UnidentifiedImageError
    except ImportError:
        raise FileError(f"{label}: {MISSING}") from None
    try:
        with warnings.catch_warnings():
            # A picture of more pixels than Pillow thinks sane: an error, not a warning.
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            with Image.open(path) as image:
                wanted = sizes[0] or image.width, sizes[1] or image.height
                found = image.convert(mode)
                if found.size != wanted:
                    found = found.resize(wanted, Image.Resampling.BILINEAR)
                return np.asarray(found, np.float32)
    except FileNotFoundError:
        raise FileError(f"{label}: no such file; accepted is a picture that Pillow reads") from None
    except UnidentifiedImageError:
        raise FileError(f"{label}: no picture; accepted is what Pillow reads (PNG, JPEG)") from None
    except (
        OSError,
        ValueError,
        SyntaxError,
        MemoryError,
        OverflowError,
        Image.DecompressionBombError,
        Image.DecompressionBombWarning,
    ) as error:
        raise FileError(f"{label}: a damaged or oversized picture ({error})") from None


def _square(features: int) -> tuple[int, int, int]:
    side = int(features**0.5 + 0.5)
    if side * side != features:
        raise ArgumentError(f"the network takes {features} features, which no square picture has")
    return side, side, 1


def _per_channel(numbers: tuple[float, ...], channels: int, option: str) -> NDArray:
    if len(numbers) not in (1, channels) or not np.isfinite(numbers).all():
        raise ArgumentError(f"{option}={numbers}: accepted are one number and {channels}")
    if option == "--std" and not all(numbers):
        raise ArgumentError(f"{option}={numbers}: accepted are numbers that are not 0")
    return np.asarray(numbers, np.float32)
