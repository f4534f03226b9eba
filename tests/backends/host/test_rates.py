"""What engines of the host predict goes by the processor's own peak, where that was measured."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.support.nets import attention, plain_net, residual_blocks, upscaler
from tilewright.backends.host import rates
from tilewright.facts.ceilings import FMA, Ceilings, Rate
from tilewright.facts.device import Device
from tilewright.nn.net import Network

pytest.importorskip("numba")
PLAIN = Device("host", "host", "made up", compute_units=2, memory=1 << 34)
REFERENCE = 1.75e11 * 2


def measured(*rows: Rate) -> Device:
    return replace(PLAIN, ceilings=Ceilings(PLAIN.key, "2026-01-01", rows, ()))


def half(way: str = FMA) -> Device:
    """A processor of half the speed."""
    return measured(Rate("float32", way, 16, 8, REFERENCE / 2))


@pytest.mark.parametrize(
    ("net", "shape"),
    [
        (plain_net(*upscaler(16, 3)), (1, 1, 360, 640)),
        (plain_net(*residual_blocks()), (2, 3, 300, 410)),
        (plain_net(*attention(1, 512, 384, 6)), (1, 512, 384)),
    ],
)
def test_half_the_peak_is_twice_the_time_for_every_engine(net: Network, shape: object) -> None:
    for one, other in zip(
        net.planned(shape, PLAIN).steps, net.planned(shape, half()).steps, strict=True
    ):
        assert one.engine == other.engine
        if one.seconds is None or other.seconds is None:
            continue
        assert 1.4 * one.seconds < other.seconds <= 2.0 * one.seconds + 1e-9
        assert "assumed 175 GFLOP/s" in one.reason
        assert "by 87.5 GFLOP/s a core, measured here" in other.reason


def test_the_blas_goes_by_its_own_measured_rate() -> None:
    blas = Rate("float32", "numpy.matmul, 1024", value=9e10)
    found = rates.of(measured(Rate("float32", FMA, 16, 8, REFERENCE / 2), blas))
    assert found.blas == 9e10
    assert found.blas_origin == "at its measured rate"
    assert rates.of(PLAIN).factor == 1.0
