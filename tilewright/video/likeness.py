"""How like one picture is another: PSNR, and SSIM (Wang, Bovik, Sheikh, Simoncelli 2004)."""

from __future__ import annotations

import math

import numpy as np

from tilewright.arrays.array import NDArray

_TAPS, _DEVIATION = 11, 1.5  # of the paper's window
_K1, _K2 = 0.01, 0.03


def psnr(one: NDArray, right: NDArray, most: float) -> float:
    """Decibels between planes of equal shape, samples from 0 to `most`; infinite where equal."""
    error = float(np.mean((one.astype(np.float64) - right) ** 2))
    return 10 * math.log10(most**2 / error) if error else math.inf


def ssim(one: NDArray, right: NDArray, most: float) -> float:
    """Structural similarity, 1 where equal; of planes of 11 samples a side and more."""
    a, b = one.astype(np.float64), right.astype(np.float64)
    mean_a, mean_b = _smooth(a), _smooth(b)
    var_a, var_b = _smooth(a * a) - mean_a**2, _smooth(b * b) - mean_b**2
    both = _smooth(a * b) - mean_a * mean_b
    c1, c2 = (_K1 * most) ** 2, (_K2 * most) ** 2
    over = (2 * mean_a * mean_b + c1) * (2 * both + c2)
    return float(np.mean(over / ((mean_a**2 + mean_b**2 + c1) * (var_a + var_b + c2))))


def _smooth(x: NDArray) -> NDArray:
    """A Gaussian window, where it lies inside."""
    along = np.arange(_TAPS) - _TAPS // 2
    window = np.exp(-(along**2) / (2 * _DEVIATION**2))
    window /= window.sum()
    for axis in (0, 1):
        views = np.lib.stride_tricks.sliding_window_view(x, _TAPS, axis=axis)
        x = views @ window
    return x
