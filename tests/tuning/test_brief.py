"""What predictions of the host go by is measured when a network is bound, once, for each set."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.nets import plain_net, upscaler
from tilewright import settings
from tilewright.backends.host.backend import Host
from tilewright.facts.ceilings import FMA, Rate
from tilewright.facts.device import Device
from tilewright.inputs import devices
from tilewright.tuning import brief

pytest.importorskip("numba")
SHAPE = (1, 1, 24, 24)


@pytest.fixture
def empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("TILEWRIGHT_CACHE", str(tmp_path / "cache"))
    devices.forget()
    yield tmp_path / "cache"
    devices.forget()


@pytest.mark.usefixtures("empty_cache")
def test_explaining_measures_nothing_and_binding_measures_once() -> None:
    net = plain_net(*upscaler(4, 2))
    assert "assumed" in net.explain(SHAPE, "host")
    assert brief.stored(devices.host()) is None
    net.bind(SHAPE, "host")
    found = brief.stored(devices.host())
    assert found is not None
    assert {row.way for row in found.rates if row.dtype == "float32"} == {FMA, "numpy.matmul, 512"}
    assert found.memory() is not None
    assert devices.host().brief == found
    assert "measured here" in net.explain(SHAPE, "host")
    net.bind(SHAPE, "host")
    assert brief.stored(devices.host()) == found


@pytest.mark.usefixtures("empty_cache")
def test_bits_are_measured_where_they_are_asked_for_and_the_rest_stays() -> None:
    plain = brief.known(devices.host())
    assert plain.brief is not None
    assert plain.brief.best("bits") is None
    both = brief.known(plain, bits=True)
    assert both.brief is not None
    assert both.brief.best("bits") is not None
    assert both.brief.best("float32") == plain.brief.best("float32")
    assert brief.known(both, bits=True) is both


def _with_registers_at(device: Device, value: float, *, busy: bool = False) -> Device:
    assert device.brief is not None
    rates = [
        replace(row, value=value) if row.way == FMA else row
        for row in device.brief.rates
        if row.dtype == "float32"
    ]
    shared = tuple(str(row) for row in rates if row.way == FMA and busy)
    return replace(device, brief=replace(device.brief, rates=tuple(rates), busy=shared))


@pytest.mark.usefixtures("empty_cache")
def test_what_something_else_disturbed_is_measured_again_once_a_process_and_calm_rows_are_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    first = brief.known(replace(devices.host(), ceilings=None, brief=None))
    low = _with_registers_at(first, 1.0, busy=True)
    assert brief.known(low) is low  # this process has measured
    monkeypatch.setattr(brief, "_again", set())
    found = brief.known(low)
    assert found.brief is not None
    assert found.brief.rates[0].value > 1e6
    monkeypatch.setattr(brief, "_again", set())
    calm = _with_registers_at(first, 1.0)
    assert brief.known(calm) is calm


def test_registers_slower_than_a_blas_contradict_it() -> None:
    blas, fma = Rate("float32", "numpy.matmul, 512", 0, 0, 2e11), Rate("float32", FMA, 16, 12, 1e11)
    assert brief.contradicted((blas, fma)) == {str(fma)}
    assert brief.contradicted((blas, replace(fma, value=3e11))) == set()
    assert brief.contradicted((blas, replace(fma, dtype="float64"))) == set()


def test_without_a_place_to_keep_it_nothing_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILEWRIGHT_CACHE", settings.OFF)
    bare = replace(devices.host(), ceilings=None, brief=None)
    assert brief.known(bare, bits=True) is bare


@pytest.mark.parametrize("name", ["NUMBA_CPU_NAME", "OPENBLAS_CORETYPE", "MKL_ENABLE_INSTRUCTIONS"])
def test_what_is_measured_of_one_set_of_instructions_is_filed_apart(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for other in settings.held():
        monkeypatch.delenv(other)
    own = Host().devices()[0]
    monkeypatch.setenv(name, "made-up")
    held = Host().devices()[0]
    assert held.key == f"{own.key}, held by {name}=made-up"
    assert held.name == own.name
