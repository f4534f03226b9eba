"""New pictures in the memory that encoders take, and what is done to single planes.

Compiled on first use (`backends/host/kernels/pictures.py`); one thread a call, others run beside.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from tilewright.arrays.array import NDArray
from tilewright.backends.host import compiled
from tilewright.errors import DeviceError
from tilewright.video.decode import planes
from tilewright.video.look import Frame, Look
from tilewright.video.pyav import pyav

_CUBIC = -0.5  # of bicubic filters the one that leaves a ramp where it is
# By how many of its own samples chroma's first lies before the doubled picture's.
_FIRST, _MIDDLE, _LAST = -0.125, -0.25, -0.375


def blank(frame: Frame, look: Look) -> Frame:
    """A picture of the same moment in new memory, its samples yet to be written."""
    if look.kind == "packed":
        raise ValueError(f"{look.format} has no planes")
    carrier = pyav().VideoFrame(look.width, look.height, look.format)
    carrier.color_range, carrier.colorspace = look.range, look.matrix
    carrier.color_primaries, carrier.color_trc = look.primaries, look.transfer
    carrier.duration = frame.duration
    return replace(frame, planes=planes(carrier, look), look=look, carrier=carrier)


def kernels() -> Any:
    """The compiled loops over single planes. Raises DeviceError where Numba is absent."""
    return kernels_of("pictures")


def kernels_of(name: str) -> Any:
    """Compiled loops by their file in the host's kernels. Raises DeviceError without Numba."""
    if not compiled.available():
        raise DeviceError("stages need Numba; accepted is pip install 'tilewright[video]'")
    return compiled.kernels(name)


def flat(plane: NDArray) -> tuple[NDArray, int]:
    """A plane as one row of memory, and the distance of its rows; copied where rows run upwards."""
    rows, columns = plane.shape
    step = plane.strides[0]
    if step < columns * plane.itemsize or step % plane.itemsize or not plane.flags.writeable:
        plane = plane.copy()
        step = plane.strides[0]
    pitch = max(step // plane.itemsize, columns)
    length = (rows - 1) * pitch + columns
    return np.lib.stride_tricks.as_strided(plane, (length,), (plane.itemsize,)), pitch


def offsets(look: Look) -> tuple[float, float]:
    """Where chroma of a picture twice as large lies between the small one's: down, across."""
    across = look.halved[0] and look.siting in ("", "left", "topleft", "bottomleft")
    up, low = look.siting in ("topleft", "top"), look.siting in ("bottomleft", "bottom")
    down = (_FIRST if up else _LAST if low else _MIDDLE) if look.halved[1] else _MIDDLE
    return down, _FIRST if across else _MIDDLE


def doubled(plane: NDArray, out: NDArray, at: tuple[float, float], most: int) -> None:
    """A plane twice as large by a bicubic filter, its samples where `offsets` says."""
    run = kernels()
    source, pitch = flat(plane)
    into, pitch_out = flat(out)
    (rows, columns), (tall, wide) = plane.shape, out.shape
    between = np.empty(rows * wide, np.float32)
    run.stretch(source, pitch, rows, columns, between, wide, *phases(at[1]))
    run.pile(between, rows, wide, into, pitch_out, tall, *phases(at[0]), np.float32(most))


def phases(offset: float) -> tuple[NDArray, NDArray]:
    """Four taps for even and for odd samples, and which sample each set begins at."""
    taps, first = np.empty((2, 4), np.float32), np.empty(2, np.int64)
    for phase in range(2):
        place = phase / 2 + offset
        begin = int(np.floor(place)) - 1
        first[phase] = begin
        taps[phase] = [_cubic(abs(place - begin - tap)) for tap in range(4)]
    return taps, first


def _cubic(x: float) -> float:
    """Keys' kernel (1981)."""
    a = _CUBIC
    if x <= 1:
        return (a + 2) * x**3 - (a + 3) * x**2 + 1
    return a * x**3 - 5 * a * x**2 + 8 * a * x - 4 * a if x < 2 else 0.0
