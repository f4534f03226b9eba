"""Joules of a product, from a made-up powercap folder and a made-up NVML."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from rich.console import Console

from tests.report.test_report import made_up
from tests.support.made_up import H200, MALI_G77, TWO_CORES
from tilewright.inputs.devices import host
from tilewright.report import document, ladder
from tilewright.report.sampling import Effort
from tilewright.report.tables import ladder_table
from tilewright.tuning import energy
from tilewright.tuning.energy import Counter

RANGE = 262_143_328_850  # microjoules after which Intel's counters begin anew


@pytest.fixture
def powercap(tmp_path: Path) -> Path:
    """Two packages, a domain inside one, and a platform domain that counts them again."""
    for folder, name, microjoules in (
        ("intel-rapl:0", "package-0", 5_000_000),
        ("intel-rapl:0:0", "core", 1_000_000),
        ("intel-rapl:1", "package-1", 7_000_000),
        ("intel-rapl:2", "psys", 90_000_000),
    ):
        domain = tmp_path / folder
        domain.mkdir()
        (domain / "name").write_text(f"{name}\n")
        (domain / "max_energy_range_uj").write_text(f"{RANGE}\n")
        (domain / "energy_uj").write_text(f"{microjoules}\n")
    return tmp_path


def spend(powercap: Path, joules: float, domain: str = "intel-rapl:0") -> None:
    counter = powercap / domain / "energy_uj"
    counter.write_text(
        f"{round(int(counter.read_text(encoding='utf-8')) + joules * 1e6) % RANGE}\n"
    )


def meter_of(powercap: Path) -> Counter:
    found = energy.rapl(powercap)
    assert isinstance(found, Counter), found
    return found


def test_every_package_counts_and_what_lies_in_or_over_one_does_not(powercap: Path) -> None:
    assert meter_of(powercap).read() == (5.0, 7.0)


def test_joules_are_the_difference_over_the_number_of_runs(
    powercap: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a clock that only runs move on, 4 ms each."""
    runs: list[int] = []
    monkeypatch.setattr(energy, "perf_counter", lambda: 0.004 * len(runs))

    def product() -> None:
        runs.append(1)
        spend(powercap, 0.25)
        spend(powercap, 0.5, "intel-rapl:1")

    assert energy.joules(product, meter_of(powercap), seconds=0.01) == pytest.approx(0.75)
    assert len(runs) == 3


def test_a_run_longer_than_the_time_is_counted_once(powercap: Path) -> None:
    product = lambda: spend(powercap, 3.0)  # noqa: E731
    assert energy.joules(product, meter_of(powercap), seconds=0.0) == pytest.approx(3.0)


def test_a_counter_that_begins_anew_between_two_readings_is_followed(powercap: Path) -> None:
    (powercap / "intel-rapl:1" / "energy_uj").write_text(str(RANGE - 1_000_000))
    product = lambda: spend(powercap, 4.0, "intel-rapl:1")  # noqa: E731
    assert energy.joules(product, meter_of(powercap), seconds=0.0) == pytest.approx(4.0)


@pytest.mark.parametrize(
    ("damage", "why"),
    [
        (lambda folder: (folder / "intel-rapl:0" / "energy_uj").unlink(), "cannot be read"),
        (
            lambda folder: (folder / "intel-rapl:1" / "energy_uj").write_text("much\n"),
            "cannot be read",
        ),
        (lambda folder: [(p / "name").write_text("core") for p in folder.iterdir()], "no package"),
    ],
)
def test_a_counter_that_cannot_be_read_is_no_counter_and_says_why(
    powercap: Path, damage: Callable[[Path], object], why: str
) -> None:
    damage(powercap)
    found = energy.rapl(powercap)
    assert isinstance(found, str)
    assert found.startswith("no counter here: ")
    assert why in found


def test_a_machine_without_powercap_has_no_counter(tmp_path: Path) -> None:
    found = energy.counter(TWO_CORES, tmp_path / "absent")
    assert found == f"no counter here: {tmp_path / 'absent'} has no package"


class _FakeNvml(ModuleType):
    """NVML of a machine with some GPUs, whose counter is in millijoules."""

    class NVMLError(Exception):
        """As pynvml's."""

    def __init__(self, *names: str | bytes) -> None:
        super().__init__("pynvml")
        self.names, self.millijoules, self.broken = names, 1_000_000, False

    def nvmlInit(self) -> None:  # noqa: N802
        if self.broken:
            raise self.NVMLError("Driver Not Loaded")

    def nvmlDeviceGetCount(self) -> int:  # noqa: N802
        return len(self.names)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:  # noqa: N802
        return index

    def nvmlDeviceGetName(self, handle: int) -> str | bytes:  # noqa: N802
        return self.names[handle]

    def nvmlDeviceGetTotalEnergyConsumption(self, handle: int) -> int:  # noqa: N802
        return self.millijoules


def with_nvml(monkeypatch: pytest.MonkeyPatch, module: _FakeNvml) -> _FakeNvml:
    monkeypatch.setitem(sys.modules, "pynvml", module)
    monkeypatch.setattr(energy, "find_spec", lambda name: module)
    return module


@pytest.mark.parametrize("name", ["NVIDIA H200", b"NVIDIA H200"])
def test_nvml_counts_the_gpu_of_that_name_in_millijoules(
    monkeypatch: pytest.MonkeyPatch, name: str | bytes
) -> None:
    module = with_nvml(monkeypatch, _FakeNvml("NVIDIA T4", name))
    found = energy.counter(H200)
    assert isinstance(found, Counter)

    def product() -> None:
        module.millijoules += 12_000

    assert energy.joules(product, found, seconds=0.0) == pytest.approx(12.0)


@pytest.mark.parametrize("fall", [100, 900_000])
def test_a_gpus_counter_that_begins_anew_tells_nothing(
    monkeypatch: pytest.MonkeyPatch, fall: int
) -> None:
    """It never wraps: a driver that was loaded again has it begin at 0."""
    module = with_nvml(monkeypatch, _FakeNvml("NVIDIA H200"))
    found = energy.counter(H200)
    assert isinstance(found, Counter)

    def product() -> None:
        module.millijoules -= fall

    assert energy.joules(product, found, seconds=0.0) == 0.0


def test_two_gpus_of_one_name_cannot_be_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    with_nvml(monkeypatch, _FakeNvml("NVIDIA H200", "NVIDIA H200"))
    assert energy.counter(H200) == (
        "no counter here: NVML knows 2 devices named 'NVIDIA H200', not one"
    )


def test_an_nvml_that_fails_is_no_counter_and_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    with_nvml(monkeypatch, _FakeNvml("NVIDIA H200")).broken = True
    assert energy.counter(H200) == "no counter here: NVML: Driver Not Loaded"


def test_without_the_package_the_reason_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(energy, "find_spec", lambda name: None)
    assert "pip install nvidia-ml-py" in str(energy.counter(H200))


def test_other_gpus_have_no_counter_that_is_known() -> None:
    assert energy.counter(MALI_G77) == "no counter here: none is known for devices of ARM"


def printed(content: Any, width: int = 110) -> str:
    console = Console(file=io.StringIO(), width=width, highlight=False)
    console.print(content)
    return console.file.getvalue()  # type: ignore[attr-defined, no-any-return]


def test_a_ladder_shows_millijoules_of_a_product_or_says_that_nothing_counts_them() -> None:
    given = replace(made_up(), energy="RAPL, whole package")
    counted = replace(
        given, rungs=(*given.rungs[:3], replace(given.rungs[3], joules=0.0123)), skipped=()
    )
    (panel,) = [
        line for line in printed(ladder_table(counted, 110)).splitlines() if "panel" in line
    ]
    assert "12.3" in panel.split()
    assert document.document([counted])["ladders"][0]["rungs"][3]["joules"] == 0.0123
    absent = replace(given, energy="no counter here: no package")
    text = printed(ladder_table(absent, 110))
    assert "mJ: of one product; no counter here: no package." in " ".join(text.split())
    (panel,) = [line for line in text.splitlines() if "panel" in line]
    assert "none" in panel.split()
    assert document.document([absent])["ladders"][0]["energy"] == "no counter here: no package"


def test_a_measured_ladder_has_joules_beside_every_rate(
    powercap: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ticks = iter(range(10**9))

    def read() -> tuple[float, ...]:
        return (float(next(ticks)),)

    monkeypatch.setattr(energy, "counter", lambda device: Counter("made up", read, (0.0,)))
    monkeypatch.setattr(energy.joules, "__defaults__", (0.0,))
    found = ladder.measure(host(), 64, effort=Effort(1, 3, 0.1))
    assert found.energy == "made up"
    assert {rung.joules for rung in found.rungs} == {1.0}


def test_runs_end_once_the_time_is_up_to_the_tick(
    powercap: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [0.0]
    monkeypatch.setattr(energy, "perf_counter", lambda: now[0])

    def product() -> None:
        now[0] += 0.25
        spend(powercap, 1.0)

    assert energy.joules(product, meter_of(powercap), seconds=1.0) == pytest.approx(1.0)
    assert now[0] == 1.0
