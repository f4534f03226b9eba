"""Turns exact integer sums into results, in NumPy; one-bit kernels must equal it bit for bit."""

from __future__ import annotations

from typing import Any

import numpy as np

from tilewright.arrays.array import NDArray
from tilewright.engines.bits import WORD, BitWork


def finish(values: NDArray, work: BitWork, rows: slice) -> None:
    """The epilogue in NumPy: what every kernel's must equal bit for bit."""
    if work.problem.out == "bits":
        ones = (values >= work.threshold) ^ work.flip.view(np.bool_)
        work.out[rows] = sign_words(ones)
        return
    if work.problem.out == "int32":
        work.out[rows] = values
        return
    real = values.astype(np.float32)
    with np.errstate(over="ignore"):
        if work.scale is not None:
            real = real * work.scale
        if work.shift is not None:
            real = real + work.shift
        work.out[rows] = real


def sign_words(ones: NDArray) -> NDArray:
    """Booleans [..., k] to words [..., ceil(k / 64)], zeros past k."""
    octets = np.packbits(ones, axis=-1, bitorder="little")
    words = np.zeros((*ones.shape[:-1], -(-ones.shape[-1] // WORD)), "<u8")
    words.view(np.uint8)[..., : octets.shape[-1]] = octets
    return words.astype(np.uint64, copy=False)


def is_fixed(words: Any) -> bool:
    """Whether the elements never change: neither the array nor what it is a view of is writable."""
    while isinstance(words, np.ndarray):
        if words.flags.writeable:
            return False
        words = words.base
    return words is None or isinstance(words, bytes)


def fixed(words: NDArray) -> NDArray:
    """The array itself, which nobody writes to from here on."""
    words.flags.writeable = False
    return words


def frozen(words: NDArray) -> NDArray:
    """A view that nobody writes through."""
    view = words.view()
    view.flags.writeable = False
    return view
