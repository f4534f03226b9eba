"""How well a small picture correlates with every place of a larger one: plain NumPy, by its FFT."""

from __future__ import annotations

import numpy as np

from tilewright.arrays.array import NDArray

_LEAST = 1.0  # variance of light, of 255, that even places are taken to have


def correlated(light: NDArray, wanted: NDArray) -> NDArray:
    """Correlation of a small picture with every place of a larger one it fits in, -1 to 1."""
    rows, columns = wanted.shape
    small = wanted.astype(np.float64) - wanted.mean()
    large = light.astype(np.float64) - light.mean()
    sums, squares = _sums(large, rows, columns), _sums(large * large, rows, columns)
    shape = large.shape
    turned = np.fft.rfft2(large) * np.conj(np.fft.rfft2(small, shape))
    both = np.fft.irfft2(turned, shape)[: shape[0] - rows + 1, : shape[1] - columns + 1]
    spread = np.maximum(squares - sums * sums / small.size, _LEAST * small.size)
    found: NDArray = both / np.sqrt(spread * max(float((small * small).sum()), 1e-6))
    return found


def _sums(values: NDArray, rows: int, columns: int) -> NDArray:
    """Sums over rows x columns, by where those begin."""
    whole = np.pad(values.cumsum(0).cumsum(1), ((1, 0), (1, 0)))
    found: NDArray = (
        whole[rows:, columns:] - whole[:-rows, columns:] - whole[rows:, :-columns]
        + whole[:-rows, :-columns]
    )  # fmt: skip
    return found
