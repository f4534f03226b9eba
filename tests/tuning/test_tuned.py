"""Which tuned configuration a problem gets, what plans and reports make of it, and the cache."""

from __future__ import annotations

import json
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import tilewright
from tests.support import made_up
from tilewright import Device
from tilewright.backends import backends
from tilewright.calls.dense_plan_host import forget_plans
from tilewright.calls.dense_run_host import prepare
from tilewright.cli import app
from tilewright.engines.dense import plan, plan_kernel
from tilewright.errors import CacheWarning
from tilewright.facts.kernel import Axis, Config, Kernel
from tilewright.facts.problem import Problem
from tilewright.planning.classes import (
    CLASSES,
    UNMEASURED,
    Boundaries,
    Tuned,
    classify,
    layout_of,
    record_name,
    record_words,
)
from tilewright.planning.cost import Curve, Measured, Narrow, device_seconds
from tilewright.planning.explain import explain
from tilewright.planning.tiles import why_not
from tilewright.tuning import exchange, narrow, store, tuned, visits
from tilewright.tuning.tasks import heaviest, representatives, tasks
from tilewright.tuning.trial import LAYOUTS, Shape

OPENCL = backends()["opencl"]
DEVICE = made_up.TWO_CORES
PRIORS = OPENCL.priors(DEVICE)
KERNELS = OPENCL.kernels(DEVICE)
PANEL = next(kernel for kernel in KERNELS if kernel.name == "panel")
LOCAL = next(kernel for kernel in KERNELS if kernel.name == "local")
BOUNDARIES = Boundaries(2, 32, 300, measured=True)
SQUARE = Shape(1000, 1000, 1000).problem()
pytestmark = pytest.mark.usefixtures("own_store")


# Shape classes.


@pytest.mark.parametrize(
    ("sides", "shape_class"),
    [
        ((1, 1000, 1000), "matrix-vector m"),
        ((1000, 2, 1000), "matrix-vector n"),
        ((1000, 1000, 1), "matrix-vector k"),
        ((3, 1000, 1000), "skinny m"),
        ((1000, 32, 128), "skinny n"),
        ((1000, 1000, 20), "skinny k"),
        ((33, 1000, 1000), "large"),
        ((300, 300, 300), "small"),
        ((301, 301, 301), "large"),
        ((8, 8, 8), "small"),
        ((8, 31, 31), "small"),
        ((1, 1, 1), "small"),
    ],
)
def test_a_shape_lies_on_its_side_of_every_boundary(
    sides: tuple[int, int, int], shape_class: str
) -> None:
    assert classify(Shape(*sides).problem(), BOUNDARIES) == shape_class


def test_every_class_has_shapes_to_be_tuned_with_in_every_layout() -> None:
    for boundaries in (UNMEASURED, BOUNDARIES, Boundaries(1, 64, 96), Boundaries(4, 4, 32)):
        for layout in LAYOUTS:
            found = tasks((PANEL,), representatives(boundaries, "float32", layout), boundaries)
            reached = set(CLASSES)
            if boundaries.skinny == boundaries.matrix_vector:
                reached -= {f"skinny {side}" for side in "mnk"}
            assert reached <= {task.shape_class for task in found}
            # A matrix of one row lies by rows and by columns alike.
            whole = [task for task in found if "matrix-vector" not in task.shape_class]
            assert all(layout_of(task.shapes[0].problem()) == layout for task in whole)


def test_named_shapes_are_tuned_by_the_work_they_make() -> None:
    sides = [(10, 10, 10)] * 3 + [(50, 50, 50), (0, 5, 5), (12, 10, 10)]
    model = Shape(1, 1, 1, "float64", "float64")
    assert [shape.m for shape in heaviest(sides, model)] == [50, 10, 12]
    assert heaviest(sides, model)[0].dtype == "float64"


CURVE = Curve(((2.0 * 32**3, 1e-4), (2.0 * 256**3, 2e-4), (2.0 * 1024**3, 1e-2)))


def test_boundaries_are_where_the_best_kernels_rates_change() -> None:
    """A width costs nothing to 4 and full rate from 16 on; squares are at full rate from 256."""
    full = 2.0 * 1024**3 / 1e-2
    best = {
        (side, width): max(width, 4) * 2.0 * 1024**2 / full * (1.0 if width >= 16 else 2.0)
        for side in "mnk"
        for width in narrow.WIDTHS
    }
    found = narrow.boundaries({"panel": CURVE}, best)
    assert found == Boundaries(4, 8, 32, measured=True)
    assert narrow.boundaries({}, {}) == UNMEASURED


def test_the_hosts_memory_bounds_only_devices_that_share_it() -> None:
    step = plan_kernel(SQUARE, DEVICE, PANEL).step
    slow = 1.0  # byte a second
    shared = Measured(CURVE, (("panel", CURVE),), slow, None)
    apart = replace(shared, transfer=1e15)
    traffic = SQUARE.traffic
    assert device_seconds(step, SQUARE, shared, host=False) >= traffic / slow
    assert device_seconds(step, SQUARE, apart, host=False) < 1.0
    assert device_seconds(step, SQUARE, replace(apart, transfer=slow), host=True) > traffic / slow


def test_a_narrow_side_is_predicted_as_it_was_measured() -> None:
    step = plan_kernel(SQUARE, DEVICE, PANEL).step
    thin = Shape(8, 1024, 1024).problem()
    plain = Measured(CURVE, (("panel", CURVE),), 1e15, None)
    sides = Narrow(((1.0, 20.0), (8.0, 5.0), (64.0, 1.0)), (), ())
    known = replace(plain, narrow=(("panel", sides),))
    before, after = (device_seconds(step, thin, one, host=False) for one in (plain, known))
    assert after == pytest.approx(5.0 * before)
    assert device_seconds(step, SQUARE, known, host=False) == pytest.approx(
        device_seconds(step, SQUARE, plain, host=False)
    )


# Lookup: exact, nearest class, another layout, another driver, nothing.


def put(
    config: Config,
    shape_class: str,
    problem: Problem = SQUARE,
    device: Device = DEVICE,
    ratio: float = 0.5,
    kernel: Kernel = PANEL,
) -> None:
    name = tuned.document_name(kernel, problem, device, PRIORS)
    record = {"config": config.changed, "ratio": ratio}

    def change(content: dict[str, Any]) -> dict[str, Any]:
        records = {**content.get("records", {}), record_name(problem, shape_class): record}
        return {**tuned.head(kernel, device, PRIORS), "records": records}

    store.update(store.TUNED, name, change)
    forget_plans()


def found(problem: Problem = SQUARE, device: Device = DEVICE) -> Tuned | None:
    return tuned.lookup(problem, device, KERNELS, PRIORS, BOUNDARIES).get("panel")


def config_of(rows: int) -> Config:
    return replace(PANEL.configs(SQUARE, DEVICE)[0], micro_m=rows)


COLUMNS = Shape(1000, 1000, 1000, layout="columns-rows").problem()
NEWER = replace(DEVICE, driver="2027.1")


def test_the_best_record_there_is_serves_in_order_and_says_where_it_is_from() -> None:
    assert found() is None
    put(config_of(1), "large", device=NEWER)
    put(config_of(2), "large", COLUMNS)
    steps = [
        (config_of(1), "tuned for large, with another driver of this architecture"),
        (config_of(2), "tuned for large, layout columns-rows, on this device"),
        (config_of(4), "tuned for small, the nearest class to large, on this device"),
        (config_of(6), "tuned for large, on this device"),
    ]
    (other,) = store.names(store.TUNED, "panel-")[:1] or ("",)
    assert other
    for config, origin in steps[1:]:
        put(
            config,
            "small" if "small" in origin else "large",
            COLUMNS if "col" in origin else SQUARE,
        )
        served = found()
        assert served is not None
        assert (served.config, served.origin.partition(" (")[0]) == (config, origin)
    older = found(device=replace(DEVICE, driver="2020.1"))
    assert older is not None
    assert older.origin.startswith("tuned for large, with another driver of this architecture")


@pytest.mark.parametrize(
    "changed",
    [
        {"device": replace(DEVICE, name="another processor")},
        {"device": replace(DEVICE, platform="another platform")},
        {"problem": Shape(1000, 1000, 1000, "float64", "float64").problem()},
        {"problem": Shape(1, 1000, 1000).problem()},
    ],
    ids=["name", "platform", "dtype", "far class"],
)
def test_a_record_serves_nothing_that_it_was_not_measured_for(changed: dict[str, Any]) -> None:
    put(config_of(6), "large")
    assert found() is not None
    assert found(**changed) is None


def test_a_record_ends_with_the_kernels_source_and_its_space(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    put(config_of(6), "large")
    changed = replace(PRIORS, digests=tuple((name, "other") for name, _ in PRIORS.digests))
    assert "panel" not in tuned.lookup(SQUARE, DEVICE, KERNELS, changed, BOUNDARIES)
    only_naive = tuple((n, "other" if n == "naive" else d) for n, d in PRIORS.digests)
    same = replace(PRIORS, digests=only_naive)
    assert "panel" in tuned.lookup(SQUARE, DEVICE, KERNELS, same, BOUNDARIES)
    monkeypatch.setattr(type(PANEL), "space", lambda *_: (Axis(((("micro_m", 4),),)),))
    assert "panel" not in tuned.lookup(SQUARE, DEVICE, KERNELS, PRIORS, BOUNDARIES)


@pytest.mark.parametrize(
    "record",
    [
        {"config": {"micro_m": -1}, "ratio": 0.5},
        {"config": {"micro_m": 0}, "ratio": 0.5},
        {"config": {"micro_m": "8"}, "ratio": 0.5},
        {"config": {"speed": 9}, "ratio": 0.5},
        {"config": {"micro_m": 8}, "ratio": 1.5},
        {"config": {"micro_m": 8}, "ratio": 0},
        {"config": 7, "ratio": 0.5},
        {"ratio": 0.5},
        None,
    ],
    ids=str,
)
def test_a_record_that_makes_no_sense_is_set_aside_and_not_trusted(
    record: Any, own_store: Path
) -> None:
    put(config_of(6), "large")
    (path,) = (own_store / "tuned").glob("*.json")
    document = json.loads(path.read_text(encoding="utf-8"))
    (name,) = document["content"]["records"]
    document["content"]["records"][name] = record
    path.write_text(json.dumps(document))
    forget_plans()
    with pytest.warns(CacheWarning, match="no tuned configurations .*set aside"):
        assert found() is None
    assert found() is None


def test_a_record_that_does_not_build_gives_way_to_the_default_with_a_warning(
    opencl_device: Device, own_store: Path
) -> None:
    """It is legal, but the source has no macro for micro-tiles of three rows."""
    ones = np.ones((300, 300), np.float32)
    problem = prepare(ones, ones, device=opencl_device, kernel="panel").plan.problem
    sound = PANEL.configs(problem, opencl_device)[0].changed
    for shape_class in ("large", "small"):
        name = tuned.document_name(PANEL, problem, opencl_device, OPENCL.priors(opencl_device))
        broken = {"config": {**sound, "micro_m": 3, "tile_m": 192}, "ratio": 0.5}
        records = {record_name(problem, shape_class): broken, "float64 float64 a-b large": broken}
        store.update(store.TUNED, name, lambda _, records=records: {"records": records})
        tilewright.forget()
        with pytest.warns(CacheWarning, match="does not build on .*the kernel's default serves"):
            result = tilewright.matmul(ones, ones, device=opencl_device, kernel="panel")
        np.testing.assert_array_equal(result, 300 * ones)
        assert list(store.read(store.TUNED, name)["records"]) == ["float64 float64 a-b large"]
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            tilewright.matmul(ones, ones, device=opencl_device, kernel="panel")


def test_a_record_that_does_not_build_and_cannot_be_removed_is_refused_once(
    opencl_device: Device, own_store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ones = np.ones((300, 300), np.float32)
    problem = prepare(ones, ones, device=opencl_device, kernel="panel").plan.problem
    sound = PANEL.configs(problem, opencl_device)[0].changed
    broken = {"config": {**sound, "micro_m": 3, "tile_m": 192}, "ratio": 0.5}
    name = tuned.document_name(PANEL, problem, opencl_device, OPENCL.priors(opencl_device))
    records = {record_name(problem, shape_class): broken for shape_class in ("large", "small")}
    store.update(store.TUNED, name, lambda _: {"records": records})
    forget_plans()
    monkeypatch.setattr(store, "update", lambda *arguments: None)
    with pytest.warns(CacheWarning, match="does not build") as heard:
        tilewright.matmul(ones, ones, device=opencl_device, kernel="panel")
    with warnings.catch_warnings(record=True) as later:
        for _ in range(3):
            tilewright.matmul(ones, ones, device=opencl_device, kernel="panel")
    assert len(heard) == 1
    assert not later  # of another class the record is the same, and is known to be as bad


def test_a_tuned_time_is_predicted_by_the_shape_that_gained_least() -> None:
    record = {"config": {}, "ratio": 0.5, "ratios": [0.2, 0.9, 0.7]}
    assert tuned.ratio_from_json(record) == 0.9
    assert tuned.ratio_from_json({**record, "ratios": [1.005, 0.9]}) == 1.0
    assert tuned.ratio_from_json({"config": {}, "ratio": 0.5}) == 0.5


# Plans.


def test_the_plan_uses_the_tuned_configuration_and_explain_says_so() -> None:
    put(config_of(6), "large")
    records = tuned.lookup(SQUARE, DEVICE, KERNELS, PRIORS, BOUNDARIES)
    measured = Measured(CURVE, (("panel", CURVE),), 1e15, None, (), BOUNDARIES)
    arguments = {"priors": PRIORS, "measured": measured, "host_operands": False}
    default = plan(SQUARE, DEVICE, KERNELS, **arguments)
    better = plan(SQUARE, DEVICE, KERNELS, **arguments, tuned=records)
    assert default.step.config.micro_m == 12
    assert better.step.config.micro_m == 6
    assert default.seconds is not None
    assert better.seconds == pytest.approx(1e-4 + 0.5 * (default.seconds - 1e-4))
    report = explain(better, measured)
    assert "config     tuned for large, on this device (0.50 of the default's time)" in report
    assert (
        "class      large (matrix-vector to a narrow side of 2, skinny to 32, small to 300^3;"
        " measured)" in report
    )
    assert "config     the kernel's default" in explain(default, measured)
    put(config_of(12), "large", ratio=1.0)
    records = tuned.lookup(SQUARE, DEVICE, KERNELS, PRIORS, BOUNDARIES)
    kept = plan(SQUARE, DEVICE, KERNELS, **arguments, tuned=records)
    report = explain(kept, measured)
    assert "config     tuned for large, on this device (nothing beat the default)" in report
    assert "rejected   naive: the probe left it out" in report


def test_a_tuned_configuration_that_is_illegal_here_is_passed_over() -> None:
    config = Config(tile_m=128, tile_n=128, tile_k=64, micro_m=2, micro_n=2)
    wide = Tuned("local", config, 0.5, "large", "tuned")
    narrow_device = replace(DEVICE, max_work_group=256)
    assert why_not(LOCAL, config, SQUARE, narrow_device) is not None
    chosen = plan_kernel(SQUARE, narrow_device, LOCAL, tuned=wide)
    assert chosen.step.config == plan_kernel(SQUARE, narrow_device, LOCAL).step.config
    assert chosen.origin.startswith("the kernel's default")


def test_a_matmul_with_a_tuned_configuration_is_right_and_names_it(opencl_device: Device) -> None:
    priors = OPENCL.priors(opencl_device)
    naive = next(k for k in OPENCL.kernels(opencl_device) if k.name == "naive")
    generator = np.random.default_rng(1)
    a, b = (generator.standard_normal((60, 60), dtype=np.float32) for _ in range(2))
    problem = Shape(60, 60, 60).problem()
    name = tuned.document_name(naive, problem, opencl_device, priors)
    record = {"config": {"group_m": 4, "group_n": 16, "unroll": 4}, "ratio": 0.9}
    content = {"records": {record_name(problem, "small"): record}}
    store.update(store.TUNED, name, lambda _: content)
    forget_plans()
    options: dict[str, Any] = {"device": opencl_device, "kernel": "naive"}
    report = tilewright.explain(a, b, **options)
    assert "tuned for small, on this device" in report
    assert "group (16, 4)" in report
    np.testing.assert_allclose(tilewright.matmul(a, b, **options), a @ b, atol=1e-4)


# The commands.


def run(*arguments: str) -> tuple[int, str]:
    done = CliRunner().invoke(app, list(arguments))
    return done.exit_code, done.output


def test_what_is_tuned_is_listed_with_each_type_named_once(own_store: Path) -> None:
    put(config_of(6), "large", ratio=0.8)
    code, output = run("cache", "info")
    assert code == 0
    assert "float32 float32" not in " ".join(output.split())
    (shown,) = (line for line in output.splitlines() if "panel" in line)
    assert "float32" in shown
    assert record_words("float16 float32 rows-rows row").startswith("float16 summed in float32 ")


def test_what_is_exported_is_imported_and_of_two_winners_the_better_stays(
    own_store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(config_of(6), "large", ratio=0.8)
    put(config_of(4), "small", ratio=0.4)
    store.save("curves", {"float32": 1})
    file = tmp_path / "export.json"
    assert run("cache", "export", str(file))[0] == 0
    monkeypatch.setenv("TILEWRIGHT_CACHE", str(tmp_path / "other"))
    put(config_of(8), "large", ratio=0.7)
    put(config_of(2), "small", ratio=0.5)
    assert run("cache", "import", str(file)) == (
        0,
        f"merged 2 documents into {tmp_path / 'other'}\n",
    )
    assert store.load("curves") == {"float32": 1}
    served = found(), found(Shape(200, 200, 200).problem())
    assert [one.config.micro_m for one in served if one is not None] == [8, 4]


@pytest.mark.parametrize(
    "damage",
    [
        lambda text: text[: len(text) // 2],
        lambda text: "[]",
        lambda text: text.replace(exchange.FORMAT, "another"),
        lambda text: text.replace('"panel-', '"../panel-'),
        lambda text: text.replace('"ratio": 0.5', '"ratio": 5'),
        lambda text: text.replace('"micro_m"', '"speed"'),
        lambda text: text.replace(store.FORMAT, "another"),
        lambda text: text.replace('"tried": {}', '"tried": []'),
    ],
    ids=["cut", "list", "format", "name", "ratio", "tunable", "document", "tried"],
)
def test_a_file_that_is_not_wholly_an_export_changes_nothing(
    damage: Any, own_store: Path, tmp_path: Path
) -> None:
    put(config_of(6), "large")
    store.update(store.TRIED, "panel-0", lambda _: {"records": {"large": {"tried": {}}}})
    file = tmp_path / "export.json"
    run("cache", "export", str(file))
    file.write_text(damage(file.read_text(encoding="utf-8")))
    exchange.clear(exchange.PARTS)
    code, output = run("cache", "import", str(file))
    assert code == 2
    assert f"error: FILE='{file}': not an export" in output.replace("\n", " ")
    assert found() is None
    assert list(own_store.rglob("*.json")) == []


def test_info_lists_what_was_tuned_and_clear_removes_what_is_named(own_store: Path) -> None:
    put(config_of(6), "large")
    (own_store / "programs").mkdir()
    (own_store / "programs" / "x.bin").write_bytes(b"x")
    code, output = run("cache", "info")
    assert code == 0
    assert str(own_store) in output.replace("\n", "")
    assert "2.00x" in output
    assert run("cache", "clear", "--part", "programs")[0] == 0
    assert found() is not None
    assert run("cache", "clear")[0] == 0
    assert found() is None
    assert "nothing was tuned yet" in run("cache", "info")[1]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("tune", "--device", "host"), "device='host': has no kernel"),
        (("tune", "--kernel", "fastest"), "--kernel='fastest': accepted are 'coalesced'"),
        (("tune", "--budget", "0"), "--budget=0: accepted are seconds"),
        (("tune", "--timeout", "-1"), "--timeout=-1: accepted are seconds"),
        (("tune", "--dtype", "int8"), "--dtype='int8'"),
        (("tune", "--layout", "diagonal"), "--layout='diagonal': accepted are 'rows-rows'"),
        (("tune", "--shapes", "absent.csv"), "FILE='absent.csv': no such file"),
        (("tune", "--suite", "absent"), "--suite='absent': accepted are"),
        (("tune", "--suite", "a", "--shapes", "b"), "--shapes='b', --suite='a': both given"),
        (("cache", "clear", "--part", "all"), "--part='all': accepted are 'programs'"),
        (("cache", "import", "absent.json"), "FILE='absent.json': cannot be read"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else None,
)
def test_a_wrong_argument_is_one_line_that_names_it(
    arguments: tuple[str, ...], said: str, opencl_device: Device
) -> None:
    code, output = run(*arguments)
    assert code == 2
    assert f"error: {said}" in output
    assert output.count("error:") == 1
    assert "measured first" not in output


def test_the_command_tunes_a_real_kernel_and_matmul_uses_it(
    opencl_device: Device, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever wins, and of whatever class: the curves of few products say where a class ends."""
    monkeypatch.setattr(visits, "SIZES", visits.SIZES[:4])
    monkeypatch.setattr(narrow, "WIDTHS", narrow.WIDTHS[::3])
    shapes = tmp_path / "shapes.csv"
    shapes.write_text("m,n,k\n90,70,110\n")
    arguments = ("--device", opencl_device.id, "--kernel", "naive", "--shapes", str(shapes))
    generator = np.random.default_rng(1)
    a, b = (generator.standard_normal(s, dtype=np.float32) for s in ((90, 110), (110, 70)))
    options: dict[str, Any] = {"device": opencl_device, "kernel": "naive"}
    for budget in ("1", "5", "25"):  # a busy machine measures nothing in a second
        code, output = run("tune", *arguments, "--budget", budget)
        assert code == 0, output
        assert "naive" in output or f"need more than --budget={budget} seconds" in output
        forget_plans()
        said = tilewright.explain(a, b, **options)
        if is_tuned := "config     tuned for " in said:
            break
    assert "naive" in output
    assert is_tuned, (output, said)
    np.testing.assert_allclose(tilewright.matmul(a, b, **options), a @ b, atol=1e-4)
