"""What was measured of a chip predicts a device, scaled by the ceilings that the device has."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.support.dense_work import dense_work
from tests.support.made_up import H200 as OPENCL_H200
from tests.support.triton_proof import CUDA_H200
from tilewright.backends.cuda import choose
from tilewright.backends.cuda.bits.engines import ENGINES
from tilewright.backends.cuda.hopper import engine as hopper
from tilewright.backends.cuda.machine import driver, nvrtc
from tilewright.backends.cuda.vendor import cublas
from tilewright.backends.cuda.work import Work
from tilewright.engines.bits import BitProblem
from tilewright.facts.ceilings import Bandwidth, Ceilings, Rate
from tilewright.facts.device import Device
from tilewright.facts.measured import h200
from tilewright.facts.measured.scale import Scale, scale
from tilewright.inputs import devices
from tilewright.tuning import store
from tilewright.tuning.peak import with_ceilings


def ceilings(device: Device, multiply: float = 1.0, memory: float = 1.0) -> Ceilings:
    """Of a device whose units and memory are so many times as fast as an H200's."""
    share = multiply * device.compute_units / h200.UNITS
    rates = tuple(Rate(dtype, "fma", value=peak * share) for dtype, peak in h200.PEAKS.items())
    return Ceilings(device.key, "", rates, (Bandwidth("read", 1 << 30, h200.READ * memory),))


def measured(device: Device, multiply: float = 1.0, memory: float = 1.0) -> Device:
    return replace(device, ceilings=ceilings(device, multiply, memory))


def batch(count: int, high: int, dtype: str = "float32", precision: str = "ieee") -> Work:
    """Dense matrices with sides of up to `high`, all multiples of 8, a cache line apart."""
    sizes = np.random.default_rng(7).integers(1, high // 8, (3, count)) * 8
    return dense_work(sizes.T, dtype, apart=512, precision=precision)


@pytest.fixture(autouse=True)
def libraries(monkeypatch: pytest.MonkeyPatch) -> None:
    """Engines answer as if every library were here."""
    monkeypatch.setattr(nvrtc, "missing", lambda: None)
    monkeypatch.setattr(cublas, "missing", lambda: None)


BATCHES = [
    batch(20, 900),
    batch(6, 3000),
    batch(300, 200, "float32", "tf32"),
    batch(20, 900, "float32", "fp32x"),
    batch(20, 900, "bfloat16"),
    batch(300, 200, "float64"),
]


@pytest.mark.parametrize("units", [132, 114])
@pytest.mark.parametrize("work", BATCHES, ids=lambda work: f"{work.dtype}-{work.precision}")
def test_ceilings_of_the_chip_itself_change_nothing(work: Work, units: int) -> None:
    device = replace(CUDA_H200, compute_units=units)
    memory = 1.0 if units == h200.UNITS else units / h200.UNITS
    plain, known = (choose.judge(work, one) for one in (device, measured(device, memory=memory)))
    if units == h200.UNITS:
        assert [(x.engine, x.seconds, x.reason) for x in plain.proposals] == [
            (x.engine, x.seconds, x.reason) for x in known.proposals
        ]
    else:  # whose memory nobody knows: one engine takes it to be as large, one as the units are
        assert plain.best.engine == known.best.engine


def test_a_device_whose_units_multiply_faster_is_given_another_engine() -> None:
    work = batch(20, 500)
    chosen = {
        multiply: choose.judge(work, measured(CUDA_H200, multiply)).best.engine
        for multiply in (1.0, 3.0)
    }
    assert chosen == {1.0: "cuda_grouped", 3.0: "triton_grouped"}


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float64"])
@pytest.mark.parametrize("name", ["vendor", "triton_grouped", "hopper"])
def test_a_faster_device_is_predicted_to_be_sooner_done(name: str, dtype: str) -> None:
    if name == "hopper" and dtype != "bfloat16":
        pytest.skip("takes halves only")
    work = batch(6, 3000, dtype)
    least = [
        choose.judge(work, measured(CUDA_H200, times, times), name).best.seconds
        for times in (0.5, 1.0, 2.0)
    ]
    assert least == sorted(least, reverse=True)
    assert least[0] > 1.4 * least[1] > 1.4 * least[2]  # a load from L2 takes what it took


def test_hoppers_plans_are_kept_by_what_was_measured_of_the_device() -> None:
    work = batch(300, 200, "bfloat16")
    slow, fast = (
        sum(x.seconds for x in hopper.recalled(work, hopper.SHAPES, there))
        for there in (Scale(multiply=0.1, memory=0.1), Scale())
    )
    assert slow > 2 * fast


def test_bits_that_wait_for_memory_follow_its_ceiling() -> None:
    problem = BitProblem(1 << 16, 64, 1 << 14)
    popcount = ENGINES[-1]
    least = [
        popcount.propose([problem], measured(CUDA_H200, memory=times)).seconds
        for times in (0.001, 0.002)
    ]
    assert least[0] == pytest.approx(2 * least[1], rel=0.01)


def test_tf32_is_compared_by_tensor_cores_and_what_was_not_measured_by_units() -> None:
    found = ceilings(CUDA_H200)
    half = tuple(
        replace(x, value=x.value / (2 if x.dtype == "bfloat16" else 1)) for x in found.rates
    )
    device = replace(CUDA_H200, ceilings=replace(found, rates=half, bandwidths=()))
    assert scale(device, "float32", "tf32").multiply == pytest.approx(0.5)
    assert scale(device, "float32") == Scale(h200.UNITS, 1.0, None)
    assert scale(replace(CUDA_H200, compute_units=66), "float32") == Scale(66)
    assert Scale(66).share == 0.5


def test_calls_for_gpus_know_the_ceilings_that_were_stored(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(driver, "device_of", lambda ordinal: CUDA_H200)
    devices.forget()
    assert devices.gpu(0).ceilings is None
    wanted = ceilings(CUDA_H200, 0.5)
    store.save(f"ceilings|{CUDA_H200.key}", wanted.as_dict())
    assert with_ceilings(CUDA_H200).ceilings == wanted
    devices.forget()
    assert devices.gpu(0).ceilings == wanted
    assert devices.gpu(0) == CUDA_H200 != OPENCL_H200  # they are no part of which device it is
    devices.forget()
