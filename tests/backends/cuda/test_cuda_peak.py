"""Ceilings of a GPU through the CUDA back end: its kernels compile, its rows are what they say."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.made_up import H200
from tilewright import Device
from tilewright.backends.cuda import peak as cuda_peak
from tilewright.backends.cuda.machine import driver, nvrtc
from tilewright.engines.probes import Effort
from tilewright.errors import DeviceError
from tilewright.facts.ceilings import READ, Ceilings
from tilewright.tuning import peak

TINY = Effort(seconds=2e-3, repeats=2, vectors=(1,), chains=(1, 8), sizes=(1 << 20, 1 << 28))
needs_nvrtc = pytest.mark.skipif(nvrtc.missing() is not None, reason=str(nvrtc.missing()))


@needs_nvrtc
@pytest.mark.parametrize(
    ("arch", "defines", "kernel"),
    [
        ("sm_75", {"DOUBLE": 1}, b"multiply_add"),
        ("sm_86", {"CHAINS": 8, "BF16": 1}, b"tensor_warp"),
        ("sm_90a", {"HOPPER": 1, "BF16": 0}, b"tensor_group"),
    ],
)
def test_the_probes_compile_for_every_generation(
    arch: str, defines: dict[str, int], kernel: bytes
) -> None:
    """Each has the kernel in it: a macro of the same name once left tensor_group out."""
    assert kernel in nvrtc.compiled("peak", defines, arch)


def test_a_gpu_without_nvrtc_is_refused_by_name() -> None:
    amd = replace(H200, id="cuda:0", backend="cuda", platform="ROCm")
    with pytest.raises(DeviceError, match=r"'cuda:0'.*NVRTC"):
        next(iter(cuda_peak.probes(amd, TINY)))


@pytest.fixture(scope="module")
def gpu() -> Device:
    if driver.missing() is not None:
        pytest.skip(str(driver.missing()))
    return driver.device_of(0)


@pytest.fixture(scope="module")
def measured(gpu: Device, tmp_path_factory: pytest.TempPathFactory) -> Ceilings:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TILEWRIGHT_CACHE", str(tmp_path_factory.mktemp("peak")))
        return peak.measure(gpu, effort=TINY)


@pytest.mark.gpu
@pytest.mark.alone
def test_no_row_of_a_gpu_fails_and_none_is_beyond_belief(measured: Ceilings) -> None:
    assert measured.skipped == ()
    assert {rate.dtype for rate in measured.rates} == {"float64", "float32", "float16", "bfloat16"}
    assert all(1e9 < rate.value < 1e16 for rate in measured.rates)
    assert all(1e8 < row.value < 1e15 for row in measured.bandwidths)
    assert {row.what for row in measured.latencies} == {"launch and wait", "launch in a row"}


@pytest.mark.gpu
@pytest.mark.alone
def test_tensor_cores_beat_registers_and_more_chains_one(gpu: Device, measured: Ceilings) -> None:
    """Judged where nobody else used the GPU, which a measurement says itself."""
    if shared := [rate for rate in measured.rates if str(rate) in measured.busy]:
        pytest.skip(f"something else used the GPU during {', '.join(map(str, shared))}")
    rates = {(rate.dtype, rate.way, rate.chains): rate.value for rate in measured.rates}
    assert rates["float32", "fma", 8] > rates["float32", "fma", 1]
    ways = [way for dtype, way, _ in rates if dtype == "bfloat16"]
    assert "mma" in ways
    assert ("wgmma" in ways) == gpu.has("wgmma")
    best = max(value for (dtype, _, _), value in rates.items() if dtype == "bfloat16")
    assert best > 2 * rates["float32", "fma", 8]


@pytest.mark.gpu
@pytest.mark.alone
def test_what_fits_the_second_level_cache_is_read_faster_than_memory(
    gpu: Device, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where others use the GPU a measurement may fail to show it, and another then does."""
    reads = replace(TINY, chains=())
    monkeypatch.setenv("TILEWRIGHT_CACHE", str(tmp_path))

    def faster() -> bool:
        found = peak.measure(gpu, effort=reads)
        read = {row.size: row.value for row in found.bandwidths if row.path == READ}
        return read[1 << 20] > read[1 << 28]

    assert any(faster() for _ in range(5))
