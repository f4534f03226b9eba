"""Pictures as the input of a network: decoded, resized, scaled; wrong files are one clear error."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np

from tilewright.arrays.array import NDArray
from tilewright.errors import ArgumentError, FileError

MISSING = "Pillow is not installed; 'pip install tilewright[onebit]' brings it"


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
    pixels = _decoded(path, height, width, "L" if channels == 1 else "RGB")
    values = pixels.reshape(height, width, channels) / np.float32(255)
    scaled: NDArray = (values - _per_channel(mean, channels, "--mean")) / _per_channel(
        deviation, channels, "--std"
    )
    return scaled.reshape(shape).astype(np.float32)


def _decoded(path: Path, height: int, width: int, mode: str) -> NDArray:
    label = f"IMAGE={str(path)!r}"
    try:
        from PIL import Image, UnidentifiedImageError
    except ImportError:
        raise FileError(f"{label}: {MISSING}") from None
    try:
        with warnings.catch_warnings():
            # A picture of more pixels than Pillow thinks sane: an error, not a warning.
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            with Image.open(path) as image:
                resized = image.convert(mode).resize((width, height), Image.Resampling.BILINEAR)
                return np.asarray(resized, np.float32)
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
