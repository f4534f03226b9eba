"""Measured ceilings: every row is there, what is stored survives, the roof follows from it."""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterator
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from tests.support import compiled_once
from tests.support.made_up import TWO_CORES
from tests.support.peak_probes import GIB, KIB, MIB, clocked, made_up, offered, printed
from tilewright import Device, settings
from tilewright.backends.opencl import program, runtime
from tilewright.backends.opencl.peak_memory import memory_probes
from tilewright.backends.opencl.runtime import pyopencl, session
from tilewright.cli import app
from tilewright.engines.backend import Timing
from tilewright.engines.dense import plan
from tilewright.engines.probes import Effort, Probe
from tilewright.errors import CacheWarning, DeviceError
from tilewright.facts.ceilings import READ, Bandwidth, Ceilings, Rate, from_dict
from tilewright.facts.kernel import Config, Step
from tilewright.facts.problem import Problem
from tilewright.inputs.devices import host
from tilewright.planning.cost import Curve, Measured, roof_seconds
from tilewright.report import peaks
from tilewright.tuning import peak

pytestmark = pytest.mark.filterwarnings("ignore:Non-empty compiler output")
TINY = Effort(seconds=2e-4, repeats=2, vectors=(1, 16), chains=(8,), sizes=(1 << 20,), sides=(64,))
PROBES = sorted(path.stem for path in program.PROBES.glob("*.cl"))


@pytest.fixture
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TILEWRIGHT_CACHE", str(tmp_path))
    return tmp_path


@pytest.fixture
def back_end(monkeypatch: pytest.MonkeyPatch, own_cache: Path) -> list[Probe]:
    return offered(monkeypatch)


def test_memory_too_large_to_be_kept_as_scratch_is_measured_too(
    device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = session(device)
    opened.release_scratch()
    monkeypatch.setattr(runtime, "MOST_KEPT", 0)
    found = {str(probe.row) for probe in memory_probes(opened, TINY) if probe.run(3).wall > 0}
    assert {"copy, 1 MiB", "read, 1 MiB"} <= found


# --- Every device ---------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def measured(device: Device, tmp_path_factory: pytest.TempPathFactory) -> Ceilings:
    """Stored where no other test finds it: so little effort measures too little."""
    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("peak")
        compiled_once.link(folder)
        patch.setenv("TILEWRIGHT_CACHE", str(folder))
        return peak.measure(device, effort=TINY)


def test_every_type_has_a_row_for_every_way_and_fma_is_one_of_its_own(
    device: Device, measured: Ceilings
) -> None:
    # 8 chains of vectors of 16 are more registers than a GPU's work-item has, so no row there.
    shapes = 1 if device.kind == "gpu" else 2
    assert {rate.dtype for rate in measured.rates} >= {*device.dtypes, "bits"}
    for dtype in device.dtypes:
        for way in ("a*b+c", "mad", "fma"):
            rows = [rate for rate in measured.rates if (rate.dtype, rate.way) == (dtype, way)]
            failed = [name for name, _ in measured.skipped if name.startswith(f"{dtype} {way}")]
            assert len(rows) + len(failed) == shapes, (dtype, way)


def test_memories_transfers_mapping_and_launches_have_rows(
    device: Device, measured: Ceilings
) -> None:
    paths = {row.path for row in measured.bandwidths}
    assert paths >= {READ, "copy", "local read", "host to device", "device to host"}
    assert ("image read" in paths) == device.has("images")
    whats = {row.what.split()[0] for row in measured.latencies}
    assert whats == {"map", "unmap", "launch"}
    # Nothing is faster than a petabyte a second, and no launch takes a tenth of a second.
    assert all(1e6 < row.value < 1e15 for row in measured.bandwidths)
    assert all(1e-9 < row.value < 0.1 for row in measured.latencies)


def test_more_chains_do_more_as_long_as_they_wait_for_nothing(
    intel: Device, own_cache: Path
) -> None:
    """On a busy machine a measurement may fail to show it, and another then does."""
    waited = replace(TINY, vectors=(16,), chains=(1, 12), sizes=(), sides=())
    singles = replace(intel, features=intel.features - {"fp16", "fp64"})

    def ratio() -> float:
        found = peak.measure(singles, effort=waited)
        one, twelve = _fma(found, 1), _fma(found, 12)
        assert one is not None
        assert twelve is not None
        return twelve.value / one.value

    assert any(ratio() > 2 for _ in range(5))


def _fma(found: Ceilings, chains: int) -> Rate | None:
    rows = (r for r in found.rates if (r.dtype, r.way, r.vector) == ("float32", "fma", 16))
    return next((row for row in rows if row.chains == chains), None)


def test_the_host_has_its_blas_its_memory_and_a_call(own_cache: Path) -> None:
    found = peak.measure(host(), effort=TINY)
    counted = {"bits"} if find_spec("numba") else set()
    assert {rate.dtype for rate in found.rates} == set(host().dtypes) | counted
    assert {row.path for row in found.bandwidths} == {READ, "copy, one core"}
    assert [row.what for row in found.latencies] == ["numpy.matmul of 1 x 1"]


def test_a_probe_reads_and_computes_what_it_says(opencl_device: Device) -> None:
    """Sums of known numbers: were a chain or a read left out, they would differ."""
    cl, opened = pyopencl(), session(opencl_device)
    built = cl.Program(opened.context, program.source("multiply_add")).build(
        ["-DGROUP=1", "-DVECTOR=2", "-DCHAINS=4"]
    )
    out = np.full(3, np.nan, np.float32)
    held = cl.Buffer(opened.context, cl.mem_flags.READ_WRITE, out.nbytes)
    # x = 1, y = 1: every step adds one to each of 4 chains x 2 elements, which begin at 0, 1, 2, 3.
    one = np.float32(1)
    built.multiply_add(opened.queue, (3, 1), (1, 1), held, one, one, np.int32(5))
    cl.enqueue_copy(opened.queue, out, held)
    np.testing.assert_array_equal(out, 4 * 2 * 8 * 5 + 2 * (0 + 1 + 2 + 3))

    numbers = np.random.default_rng(0).integers(0, 9, 4 * 2 * 8).astype(np.float32)
    built = cl.Program(opened.context, program.source("read")).build(["-DGROUP=1", "-DVECTOR=4"])
    source = cl.Buffer(
        opened.context, cl.mem_flags.READ_ONLY | cl.mem_flags.COPY_HOST_PTR, hostbuf=numbers
    )
    parts, count, rounds = np.int32(2), np.int32(len(numbers) // 8), np.int32(3)
    x, y = numbers.reshape(2, -1).sum(axis=1)
    staying, moving = [3 * x, 3 * y, 3 * x], [2 * x + y, x + 2 * y, 2 * x + y]
    read = cl.Kernel(built, "read_sum")
    for stride, sums in ((0, staying), (1, moving)):
        arguments = parts, count, np.int32(stride), rounds
        read(opened.queue, (3, 1), (1, 1), source, held, *arguments)
        cl.enqueue_copy(opened.queue, out, held)
        np.testing.assert_array_equal(out, sums)


@pytest.mark.parametrize("stem", PROBES)
def test_every_probe_compiles_alone_and_draws_what_it_does(
    stem: str, opencl_device: Device
) -> None:
    cl, opened = pyopencl(), session(opencl_device)
    standard = program._STANDARD.get(stem, "CL1.2")
    extensions = opencl_device.platform == "Intel(R) OpenCL" or standard == "CL1.2"
    if not extensions:
        pytest.skip("needs cl_khr_integer_dot_product")
    assert cl.Program(opened.context, program.source(stem)).build([f"-cl-std={standard}"])
    assert (program.PROBES / f"{stem}.cl").read_text(encoding="utf-8").startswith(f"// {stem}: ")


# --- The store ------------------------------------------------------------------------------------


def test_what_was_measured_is_found_again_by_device_and_driver(back_end: list[Probe]) -> None:
    back_end += [clocked(1e-6, None), clocked(2e-6, None, Bandwidth(READ, MIB))]
    assert peak.stored(TWO_CORES) is None
    found = peak.measure(TWO_CORES, effort=TINY)
    assert peak.stored(TWO_CORES) == found
    assert peak.with_ceilings(TWO_CORES).ceilings == found
    assert peak.stored(replace(TWO_CORES, driver="2027.1")) is None


def test_json_brings_every_row_back() -> None:
    given = made_up()
    assert from_dict(json.loads(json.dumps(given.as_dict()))) == given


@pytest.mark.parametrize("cut", [0, 1, 100, -10])
def test_a_store_cut_in_half_is_set_aside_and_measured_again(
    cut: int, own_cache: Path, back_end: list[Probe]
) -> None:
    back_end.append(clocked(1e-6, None))
    found = peak.measure(TWO_CORES, effort=TINY)
    (path,) = own_cache.rglob("*.json")
    path.write_bytes(path.read_bytes()[:cut])
    with pytest.warns(CacheWarning, match="set aside"):
        assert peak.stored(TWO_CORES) is None
    peak.measure(TWO_CORES, effort=TINY)
    assert peak.stored(TWO_CORES) is not None
    assert found.rates[0].dtype == "float32"


@pytest.mark.parametrize("damage", [0.0, -1.0, "fast", None, 1e999])
def test_a_store_with_impossible_figures_counts_as_nothing(
    damage: object, back_end: list[Probe]
) -> None:
    document: Any = made_up().as_dict()
    document["rates"][1]["value"] = damage
    peak.store.save(peak._key(TWO_CORES), document)
    assert peak.stored(TWO_CORES) is None


def test_a_row_that_fails_costs_itself_alone(back_end: list[Probe]) -> None:
    def fail(rounds: int) -> Timing:
        raise DeviceError("the compiler  refused\nit")

    back_end += [clocked(1e-6, None), Probe(Rate("int8", "dot4"), 1.0, fail)]
    found = peak.measure(TWO_CORES, effort=TINY)
    assert found.skipped == (("int8 dot4", "the compiler refused it"),)
    assert len(found.rates) == 1
    back_end.pop(0)
    with pytest.raises(DeviceError, match=r"nothing could be measured.*refused"):
        peak.measure(TWO_CORES, effort=TINY)


def test_a_back_end_without_probes_is_refused_by_name() -> None:
    with pytest.raises(DeviceError, match="'abacus' has no probes"):
        peak.measure(replace(TWO_CORES, backend="abacus"))


# --- What follows ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("size", "rate"),
    [
        (KIB, 500e9),
        (64 * KIB, 500e9),
        (MIB - 1, 500e9),
        # 16 MiB were read faster than 1 MiB: noise, and a bound takes the faster.
        (MIB, 100e9),
        (100 * MIB, 100e9),
        (256 * MIB, 30e9),
        (GIB, 30e9),
    ],
)
def test_the_bandwidth_of_a_working_set_bounds_it_from_above(size: int, rate: float) -> None:
    row = made_up().memory(size)
    assert row is not None
    assert row.value == rate


def test_a_rate_that_was_disturbed_counts_only_where_there_is_no_other() -> None:
    rates = (Rate("float32", "fma", 16, 8, 3.2e11), Rate("float32", "fma", 8, 8, 6.3e11))
    disturbed = tuple(map(str, rates))
    best = [
        Ceilings("a device", "today", rates, (), busy=disturbed[begin:]).peak("float32")
        for begin in (2, 1, 0)
    ]
    assert best == [rates[1], rates[0], rates[1]]


def test_halves_may_be_summed_in_singles_and_doubles_may_not() -> None:
    peaks_of = {dtype: made_up().peak(dtype) for dtype in ("float16", "float32", "float64")}
    assert {dtype: row and row.value for dtype, row in peaks_of.items()} == {
        "float16": 500e9,
        "float32": 500e9,
        "float64": 250e9,
    }
    assert made_up().peak("int8") is None


def test_ceilings_are_no_part_of_which_device_it_is() -> None:
    known = replace(TWO_CORES, ceilings=made_up())
    assert known == TWO_CORES
    assert hash(known) == hash(TWO_CORES)
    assert known.as_dict() == TWO_CORES.as_dict()
    assert pickle.loads(pickle.dumps(known)).ceilings == made_up()


class _OneKernel:
    """A kernel whose curve says that it takes no time at all."""

    name = "panel"

    def why_not(self, problem: Problem, device: Device) -> None:
        return None

    def configs(self, problem: Problem, device: Device) -> tuple[Config, ...]:
        return (Config(),)

    def resources(self, config: Config, problem: Problem) -> Any:
        from tilewright.facts.kernel import Resources

        return Resources(1)

    def lower(self, problem: Problem, device: Device, config: Config) -> Step:
        return Step("panel", config, (), computed_flops=problem.flops)


@pytest.mark.parametrize(("m", "n", "k"), [(512, 512, 512), (4096, 1, 4096)])
def test_no_prediction_is_faster_than_the_roof(m: int, n: int, k: int) -> None:
    dreamt = Curve(((2.0 * 64**3, 1e-12), (2.0 * 4096**3, 1e-11)))
    measured = Measured(Curve(((1.0, 1.0),)), (("panel", dreamt),), 1e18, None)
    problem = Problem(m, n, k, k, 1, n, 1, n, 1)
    known = replace(TWO_CORES, ceilings=made_up())
    found = plan(problem, known, [_OneKernel()], measured=measured)
    roof = made_up().seconds(problem.flops, problem.traffic, "float32")
    assert found.seconds == roof == roof_seconds(problem, known) > 1e-6
    free = plan(problem, TWO_CORES, [_OneKernel()], measured=measured)
    assert free.seconds is not None
    assert free.seconds < roof


# --- Tables, pictures, the command ----------------------------------------------------------------


def test_the_table_shows_the_best_of_every_way_and_an_emulated_fma() -> None:
    text = printed(TWO_CORES, made_up())
    lines = [line.strip() for line in text.splitlines()]
    assert max(map(len, text.splitlines())) <= 100
    (plain,) = [line for line in lines if line.startswith("float32") and "a*b+c" in line]
    assert plain.split() == ["float32", "a*b+c", "16", "12", "500", "100", "wall"]
    (fma,) = [line for line in lines if line.startswith("float32") and "fma" in line]
    assert fma.split() == ["float32", "fma", "16", "12", "20.0", "4", "wall"]
    assert "fma of float32 reaches 4 % of a*b+c: it is emulated" in " ".join(text.split())
    assert "not measured: int8 dot4: the compiler refused it" in " ".join(text.split())
    assert "launch and wait" in text
    assert "256 MiB" in text


def test_the_picture_names_types_ways_and_paths(tmp_path: Path) -> None:
    peaks.draw(TWO_CORES, made_up(), tmp_path / "peak.svg", "--plot")
    text = (tmp_path / "peak.svg").read_text(encoding="utf-8")
    for word in ("float32 a*b+c", "float32 fma", "copy", "GB/s", TWO_CORES.driver):
        assert word in text


@pytest.fixture
def known_host(monkeypatch: pytest.MonkeyPatch, own_cache: Path) -> Iterator[Device]:
    """A host whose ceilings lie in the store."""
    from tilewright.inputs import devices

    peak.store.save(peak._key(host()), made_up(host().key).as_dict())
    devices.forget()
    yield devices.host()
    monkeypatch.undo()
    devices.forget()


def test_the_command_shows_what_is_stored_and_measures_nothing(
    known_host: Device, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(peak, "measure", lambda *_, **__: pytest.fail("measured"))
    path = tmp_path / "peak.json"
    done = CliRunner().invoke(app, ["peak", "--device", "host", "--json", str(path)])
    assert done.exit_code == 0
    assert "float32" in done.stdout
    document = json.loads(path.read_text(encoding="utf-8"))
    assert document["schema"] == peaks.SCHEMA
    assert from_dict(document["ceilings"]) == known_host.ceilings
    assert document["peaks_gops"]["float32 a*b+c, vector 16 × 12 chains"] == 500
    assert settings.cache_folder() is not None


def test_the_command_measures_again_when_asked(
    known_host: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    fresh = replace(made_up(), rates=(Rate("float32", "numpy.matmul", value=777e9),))
    monkeypatch.setattr(peak, "measure", lambda *_, **__: fresh)
    done = CliRunner().invoke(app, ["peak", "--device", "host", "--again"])
    assert done.exit_code == 0
    assert "777" in done.stdout
