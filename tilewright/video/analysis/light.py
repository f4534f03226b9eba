"""What of a picture tells how dark it was made: quantiles of its light, and how steep it is.

A curve y = k x**g makes logarithms of light g times as far apart, and so their differences between
neighbours, of which photographs have much alike amounts (Ruderman 1994): from both, and from the
lightest parts, `train/low_light.py` learns to tell g and k.
"""

from __future__ import annotations

import numpy as np

from tilewright.arrays.array import NDArray
from tilewright.video.analysis.small import shrunk, small

QUANTILES = (0.005, 0.02, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.98, 0.995)
TONES = (0.0, 0.002, 0.01, 0.05, 0.1, 0.2, 0.35, 0.5, 0.65, 0.8, 0.9, 0.95, 0.99, 0.998, 1.0)
STEPS = (0.25, 0.5, 0.75, 0.9, 0.97)
SCALES = (1, 2, 4, 8)
COUNT = len(QUANTILES) + len(STEPS) * len(SCALES) + 1
_DARK, _FLAT = 0.004, 0.01  # light and differences that count as none


def tones(luma: NDArray) -> tuple[float, ...]:
    """Quantiles of a picture's light, 0 to 1."""
    return tuple(float(one) / 255 for one in np.quantile(small(luma), TONES))


def traits(luma: NDArray, noise: float) -> tuple[float, ...]:
    """COUNT numbers of a picture of 0 (black) to 255, whose noise has that deviation."""
    light = small(luma) / 255
    found = [np.quantile(np.log(np.maximum(light, 0) + _DARK), QUANTILES)]
    for scale in SCALES:
        logs = np.log(np.maximum(shrunk(light, scale), 0) + _DARK)
        apart = [np.abs(np.diff(logs, axis=axis)).ravel() for axis in (0, 1)]
        steps = np.concatenate(apart) if logs.size > 1 else np.zeros(1)
        found.append(np.log(np.quantile(steps, STEPS) + _FLAT))
    return (*(float(one) for one in np.concatenate(found)), float(np.log(noise)))
