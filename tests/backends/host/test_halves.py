"""float32 to halves and back: every bit as NumPy has it, whatever the order in memory."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright.arrays.array import NDArray
from tilewright.backends.host import halves
from tilewright.nn.evaluate import rounded

pytest.importorskip("numba")

EVERY = np.arange(1 << 16, dtype=np.uint16).view(np.float16)


def converted(array: NDArray, dtype: str) -> NDArray:
    out = np.full(array.shape, np.nan, "float16" if dtype == "float16" else "float32")
    assert halves.copied(out, array, dtype)
    return out


def same(made: NDArray, wanted: NDArray) -> None:
    """Bit for bit, but for what NaN holds."""
    number = ~np.isnan(wanted)
    np.testing.assert_array_equal(np.isnan(made), ~number)
    kind = f"u{made.itemsize}"
    np.testing.assert_array_equal(made[number].view(kind), wanted[number].view(kind))


def test_every_float16_is_widened() -> None:
    same(converted(EVERY, "float32"), EVERY.astype(np.float32))


@pytest.mark.parametrize("dtype", halves.HALVES)
def test_float32_is_rounded_to_the_nearest(dtype: str) -> None:
    """Numbers of the type, those halfway between two, their neighbours, and any bits."""
    if dtype == "float16":
        held = np.unique(EVERY[np.isfinite(EVERY)]).astype(np.float32)
    else:
        held = (np.arange(1 << 16, dtype=np.uint32) << 16).view(np.float32)
        held = np.unique(held[np.isfinite(held)])
    middle = ((held[1:].astype(np.float64) + held[:-1]) / 2).astype(np.float32)
    bits = np.concatenate([held, middle]).view(np.uint32)
    drawn = np.random.default_rng(0).integers(0, 1 << 32, 1 << 16, np.uint32)
    special = np.array([0, 1 << 31, 0x7F800000, 0xFF800000, 0x7FC00001, 0x7F7FFFFF], np.uint32)
    array = np.concatenate([bits, bits + 1, bits - 1, drawn, special]).view(np.float32)
    same(converted(array, dtype), rounded(array, dtype))


def test_arrays_may_lie_in_any_order() -> None:
    x = np.random.default_rng(0).standard_normal((2, 6, 20, 30)).astype(np.float32)
    wanted = x.astype(np.float16)
    last = np.empty((2, 20, 30, 6), np.float16).transpose(0, 3, 1, 2)
    for out in (np.empty_like(wanted), last, np.empty((2, 6, 20, 60), np.float16)[..., ::2]):
        for source in (x, np.asarray(x, order="F"), np.repeat(x, 2, axis=3)[..., ::2]):
            out[...] = np.nan
            assert halves.copied(out, source, "float16")
            np.testing.assert_array_equal(out, wanted)


def test_what_needs_no_rounding_is_left_to_numpy() -> None:
    out = np.zeros(5000, np.float32)
    assert not halves.copied(out, np.ones(5000, np.float32), "float32")
    assert not halves.copied(out, np.ones(5000, np.int32), "float32")
    assert not out.any()
