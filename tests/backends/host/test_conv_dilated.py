"""`dilated`: windows whose taps lie far apart, beside float64."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.support.conv_chains import drawn, layer, reference
from tilewright.backends.host.conv import CONV_ENGINES
from tilewright.backends.host.conv_dilated import Dilated, regions_of
from tilewright.backends.host.native import host
from tilewright.engines.choose import choose
from tilewright.engines.conv import Activation, ConvOperands, ConvWork

pytest.importorskip("numba")
pytest.importorskip("torch")

LAST, FIRST = "channels_last", "channels_first"


def work(
    inputs: int, outputs: int, size: tuple[int, int, int], source: Any = LAST, result: Any = LAST,
    **facts: Any,
) -> ConvWork:  # fmt: skip
    """A single layer."""
    single = layer(np.random.default_rng(5), inputs, outputs, **facts)
    return ConvWork((single,), *size, source=source, result=result)


def by(number: int) -> dict[str, Any]:
    """Dilated and padded alike."""
    return {"dilations": (number, number), "pads": (number,) * 4}


WORKS = {
    "by 2": work(16, 40, (2, 15, 13), **by(2)),
    "by 12 in 17": work(32, 24, (1, 17, 17), **by(12)),
    "further than the picture": work(32, 24, (1, 9, 9), **by(12)),
    "rows alone": work(16, 17, (1, 20, 5), dilations=(6, 1), pads=(6, 1, 6, 1)),
    "no pads": work(16, 16, (1, 12, 9), dilations=(3, 2), pads=(0,) * 4),
    "a stride": work(16, 33, (2, 20, 21), strides=(2, 2), **by(4)),
    "groups": work(32, 64, (1, 14, 14), groups=4, **by(5)),
    "long sums": work(500, 16, (1, 10, 10), **by(4)),
    "channels first": work(5, 20, (2, 12, 11), FIRST, FIRST, **by(3)),
    "pixels": work(16, 16, (1, 12, 11), shuffle=2, **by(3)),
    "pads without any tap": work(16, 16, (1, 4, 4), dilations=(2, 2), pads=(7, 0, 7, 9)),
    "a residual": work(16, 20, (1, 12, 11), adds=True, activation=Activation("relu"), **by(3)),
    "an activation": work(16, 20, (1, 12, 11), activation=Activation("silu"), **by(3)),
}


@pytest.mark.parametrize("name", WORKS)
def test_windows_with_taps_far_apart_are_right(name: str) -> None:
    one, engine = WORKS[name], Dilated()
    x, out, residuals = drawn(one)
    right = reference(one, x, residuals).numpy()
    last = [r.contiguous() for r in residuals]
    if one.result == LAST:
        last = [r.permute(0, 2, 3, 1).contiguous().permute(0, 3, 1, 2) for r in residuals]
    operands = ConvOperands(x.numpy(), out.numpy(), tuple(r.numpy() for r in last))
    for cores in (1, 2):
        device = replace(host(), compute_units=cores)
        operands.out[...] = np.nan
        engine.bind(engine.propose(one, device), operands)()
        allowed = 3e-6 * max(1, np.abs(right).max())
        np.testing.assert_allclose(operands.out, right, rtol=0, atol=allowed)


def test_of_a_window_wider_than_the_picture_one_tap_is_left() -> None:
    (region,) = regions_of(work(16, 16, (1, 9, 9), **by(12)))
    assert region.taps == 1
    assert len(regions_of(work(16, 16, (1, 17, 17), **by(12)))) == 9


def test_it_wins_where_taps_are_far_apart() -> None:
    wide = work(960, 256, (1, 17, 17), **by(12))
    assert choose(wide, host(), CONV_ENGINES).best.engine == "dilated"
    assert "dilations" in str(Dilated().why_not(work(16, 16, (1, 9, 9)), host()))


def test_nan_reaches_the_pixels_whose_windows_hold_it() -> None:
    one = work(16, 16, (1, 14, 15), **by(5))
    x, out, _ = drawn(one)
    x[0, 3, 6, 7] = np.nan
    engine = Dilated()
    engine.bind(engine.propose(one, host()), ConvOperands(x.numpy(), out.numpy()))()
    np.testing.assert_array_equal(np.isnan(out.numpy()), np.isnan(reference(one, x).numpy()))
