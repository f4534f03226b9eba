"""Work under a measured roof: which part bounds it, and that nothing may be above it."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console
from typer.testing import CliRunner, Result

from bench import peak
from tests.report.test_report import GPU
from tests.report.test_report import made_up as made_up_ladder
from tests.tuning.test_peak import GIB, KIB, MIB, made_up
from tilewright import Device
from tilewright.cli import app
from tilewright.facts.ceilings import Bandwidth, Ceilings, Rate
from tilewright.files.whole import write_json
from tilewright.inputs.devices import host
from tilewright.planning.grouped import lay_out
from tilewright.report import document as ladder_document
from tilewright.report import grouped, roofline, roofline_show
from tilewright.report.balance_plot import GPU_SLOTS, GPU_TILES
from tilewright.report.grouped_records import NUMPY_LOOP, OUR_LOOP, PADDED, Planning, Report, Way
from tilewright.report.records import Ladder
from tilewright.report.roofline import TOLERANCE, Point, Roofline, place
from tilewright.report.tables import device_cards, ladder_table

GPU_KNOWN = replace(GPU, ceilings=made_up(GPU.key))
# Of a device that no processor of today reaches: every real product is far under it.
FAST = Ceilings(
    "fast",
    "2026-01-01T00:00:00+00:00",
    (Rate("float32", "fma", 16, 12, 1e15),),
    (Bandwidth("read", 64 * KIB, 1e15),),
)
SLOW = replace(FAST, rates=(Rate("float32", "fma", 16, 12, 1e6),))


@pytest.mark.parametrize(
    ("flops", "size", "dtype", "roof", "bound"),
    [
        # 500 GFLOP/s, and 30 GB/s beyond the caches: the ridge lies at 16.7 operations a byte.
        (1e12, 1 * GIB, "float32", 500e9, "arithmetic"),
        (10 * GIB, 1 * GIB, "float32", 10 * 30e9, "memory"),
        # The same intensity in a cache is bounded by arithmetic again: 10 x 100 GB/s.
        (10 * MIB, MIB, "float32", 500e9, "arithmetic"),
        (2 * MIB, MIB, "float32", 2 * 100e9, "memory"),
        (1e12, 1 * GIB, "float64", 250e9, "arithmetic"),
        # Halves are summed in singles.
        (1e12, 1 * GIB, "float16", 500e9, "arithmetic"),
    ],
)
def test_the_roof_is_arithmetic_or_the_bytes_of_the_working_set(
    flops: float, size: float, dtype: str, roof: float, bound: str
) -> None:
    placed = place(Point("work", dtype, flops, size, flops / (0.25 * roof)), made_up())
    assert placed.roof == pytest.approx(roof)
    assert placed.bound == bound
    assert placed.share == pytest.approx(0.25)
    assert not placed.above


def test_a_point_above_its_roof_is_an_error_in_the_measurement_and_one_on_it_is_not() -> None:
    on = Point("on", "float32", 1e12, GIB, 1e12 / 500e9 / (0.99 * TOLERANCE))
    above = replace(on, name="above", seconds=1e12 / 500e9 / (1.01 * TOLERANCE))
    placed = tuple(place(point, made_up()) for point in (on, above))
    shown = Roofline(GPU, made_up(), "made up", "float32", placed)
    (error,) = shown.errors
    assert error.startswith("above: ")
    assert "one of the two measurements is wrong" in error
    assert [point["above"] for point in roofline.figures(shown)["points"]] == [False, True]
    text = printed(shown)
    assert "ERROR in the measurement: above" in text
    assert "ABOVE" in text


def test_a_ladder_puts_its_kernels_under_the_roof_with_the_bytes_of_their_operands() -> None:
    placed = roofline.of_ladders([made_up_ladder(device=GPU_KNOWN)], made_up())
    assert [p.point.name for p in placed.points] == ["naive 256", "panel 256"]
    for point in (p.point for p in placed.points):
        assert point.flops == 2 * 256**3
        assert point.size == 3 * 256**2 * 4
    assert placed.points[1].share == pytest.approx(300 / 500)


def test_on_the_host_numpy_and_the_serial_loop_are_placed_at_the_size_they_ran_at() -> None:
    ladder = made_up_ladder(device=host())
    placed = roofline.of_ladders([ladder], made_up())
    assert [p.point.name for p in placed.points] == ["serial 128", "NumPy 256"]
    assert placed.points[0].point.flops == 2 * 128**3


def batch(device_is_host: bool) -> Report:
    m, n, k = (np.array(column) for column in ((64, 100), (32, 7), (16, 300)))
    layout = lay_out(m, n, k, GPU_TILES, GPU_SLOTS)
    planning = Planning("given", "as given", 1e-3, 1e-6, 1e-4, 1e-3, layout.balance())
    ways = (
        Way(NUMPY_LOOP, (1e-3,)),
        Way(OUR_LOOP, (1e-3,)),
        Way(PADDED, (1e-3,)),
        Way("plan, given", (1e-3, 2e-3, 3e-3), planning=planning),
        Way("plan, auto", skipped="no room"),
    )
    device = host() if device_is_host else GPU
    return Report("two", device, "float32", 0, m, n, k, ways, None)


@pytest.mark.parametrize(
    ("on_host", "names"), [(False, ["plan, given"]), (True, [NUMPY_LOOP, OUR_LOOP])]
)
def test_a_batch_puts_what_ran_on_its_device_under_the_roof(
    on_host: bool, names: list[str]
) -> None:
    placed = roofline.of_batch(batch(on_host), made_up())
    assert [p.point.name for p in placed.points] == names
    point = placed.points[0].point
    assert point.flops == 2 * (64 * 32 * 16 + 100 * 7 * 300)
    assert point.size == 4 * (64 * 16 + 16 * 32 + 64 * 32 + 100 * 300 + 300 * 7 + 100 * 7)
    assert point.seconds == (1e-3 if on_host else 2e-3)


def test_a_roofline_is_plain_json_with_ceilings_and_points(tmp_path: Path) -> None:
    placed = roofline.of_ladders([made_up_ladder(device=GPU_KNOWN)], made_up())
    write_json(tmp_path / "roofline.json", roofline.document(placed))
    read = json.loads((tmp_path / "roofline.json").read_text(encoding="utf-8"))
    assert read["schema"] == roofline.SCHEMA
    assert read["ceilings"] == json.loads(json.dumps(made_up().as_dict()))
    assert [point["name"] for point in read["points"]] == ["naive 256", "panel 256"]
    assert read["errors"] == []


def printed(shown: Roofline | Ladder, width: int = 100) -> str:
    console = Console(file=io.StringIO(), width=width, highlight=False)
    is_ladder = isinstance(shown, Ladder)
    console.print(ladder_table(shown, width) if is_ladder else roofline_show.table(shown))
    return console.file.getvalue()  # type: ignore[attr-defined, no-any-return]


def test_the_table_says_what_bounds_each_point_and_what_the_roof_is() -> None:
    text = printed(roofline.of_ladders([made_up_ladder(device=GPU_KNOWN)], made_up()))
    assert max(map(len, text.splitlines())) <= 100
    (panel,) = [line for line in text.splitlines() if "panel 256" in line]
    assert panel.split()[-3:] == ["500.0", "60", "arithmetic"]
    assert "500 GFLOP/s (float32 a*b+c, vector 16 × 12 chains)" in text
    assert "30 GB/s at 256 MiB" in " ".join(text.split())


def test_the_picture_names_points_roofs_and_device(tmp_path: Path) -> None:
    placed = roofline.of_ladders([made_up_ladder(device=GPU_KNOWN)], made_up())
    roofline_show.draw(placed, tmp_path / "roof.svg", "--plot")
    text = (tmp_path / "roof.svg").read_text(encoding="utf-8")
    for word in ("panel 256", "naive 256", "64 KiB: 500 GB/s", "256 MiB: 30 GB/s", "Made-up 650"):
        assert word in text


def test_names_are_spread_about_their_points_and_never_closer_than_a_line() -> None:
    generator = np.random.default_rng(0)
    for count in (1, 2, 7, 40):
        wanted = sorted(generator.uniform(0, 10, count), reverse=True)
        heights = roofline_show.spread(wanted, 0.5)
        assert all(np.diff(heights) <= -0.5 + 1e-9)
        assert np.mean(heights) == pytest.approx(np.mean(wanted))
    far = [9.0, 5.0, 1.0]
    assert roofline_show.spread(far, 0.5) == far
    assert roofline_show.spread([5.0, 5.0, 1.0], 0.5) == [5.25, 4.75, 1.0]


def test_the_pictures_of_stored_ceilings_are_drawn_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(peak, "IMAGES", tmp_path)
    for name in ("cpu", "h200", "h200-cuda"):
        peak.redraw(name)
    drawn = {path.name for path in tmp_path.iterdir()}
    assert drawn == {f"peak-{name}.png" for name in ("cpu", "h200", "h200-cuda")} | {
        "roofline-cpu.png",
        "roofline-h200.png",
    }


# --- Percent of the ceiling elsewhere -------------------------------------------------------------


@pytest.mark.parametrize("width", [80, 100, 140])
def test_a_ladder_shows_percent_of_the_measured_peak_where_it_is_known(width: int) -> None:
    ladder = made_up_ladder(device=GPU_KNOWN)
    text = printed(ladder, width)
    assert max(map(len, text.splitlines())) <= width
    assert "…" not in text
    assert "of 500 GFLOP/s, measured by `tilewright peak`" in " ".join(text.split())
    assert [ladder.percent(rung) for rung in ladder.rungs] == [
        None,  # serial and NumPy ran on the host, whose peak is another
        pytest.approx(8 / 5),
        None,
        pytest.approx(60),
    ]
    rungs = ladder_document.document([ladder])["ladders"][0]["rungs"]
    assert rungs[3]["percent_of_peak"] == pytest.approx(60)


def test_a_device_card_shows_the_measured_peaks() -> None:
    assert "float32 500" in printed_card(GPU_KNOWN)
    assert "peak" not in printed_card(GPU)


def printed_card(device: Device) -> str:
    console = Console(file=io.StringIO(), width=80, highlight=False)
    console.print(device_cards((device,)))
    return console.file.getvalue()  # type: ignore[attr-defined, no-any-return]


def test_a_ladder_of_a_device_that_was_never_measured_says_so() -> None:
    ladder = made_up_ladder()
    assert "`tilewright peak` has not measured this device yet" in printed(ladder)
    assert {ladder.percent(rung) for rung in ladder.rungs} == {None}


def test_percentages_of_a_batch_count_from_the_measured_peak_where_it_is_known() -> None:
    report = batch(device_is_host=False)
    found = grouped._ceiling(GPU_KNOWN, "float32", report.ways, report.flops)
    assert found is not None
    assert found.rate == 500e9
    assert "measured by `tilewright peak`" in found.source


# --- The command ----------------------------------------------------------------------------------


def invoke(monkeypatch: pytest.MonkeyPatch, ceilings: Ceilings, *arguments: str) -> Result:
    """`tilewright roofline` on a host of which nothing is stored, but measured is this."""
    never = replace(host(), ceilings=None)
    monkeypatch.setattr("tilewright.cli.roofline.resolve", lambda name: never)
    monkeypatch.setattr("tilewright.cli.roofline.measured", lambda device: ceilings)
    return CliRunner().invoke(app, ["roofline", *arguments])


@pytest.mark.parametrize("work", [("--size", "96"), ("--uniform", "1", "32", "--count", "20")])
def test_the_command_ends_well_under_the_roof_and_with_1_above_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, work: tuple[str, ...]
) -> None:
    path = tmp_path / "roofline.json"
    monkeypatch.setattr(grouped, "measure", lambda *_, **__: batch(device_is_host=True))
    done = invoke(monkeypatch, FAST, *work, "--json", str(path))
    assert done.exit_code == 0, done.output
    assert json.loads(path.read_text(encoding="utf-8"))["errors"] == []
    done = invoke(monkeypatch, SLOW, *work, "--json", str(path))
    assert done.exit_code == 1
    assert "ERROR in the measurement" in done.stdout
    assert json.loads(path.read_text(encoding="utf-8"))["errors"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--uniform", "1", "8", "--size", "64"), "--size=64"),
        (("--count", "5"), "--count=5"),
        (("--size", "0"), "--size=0"),
        (("--dtype", "int8"), "--dtype='int8'"),
        (("--plot", "x.pdf"), ".png and .svg"),
        (("--suite", "nonsense"), "--suite='nonsense'"),
    ],
)
def test_a_wrong_option_is_refused_before_anything_is_measured(
    monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], said: str
) -> None:
    def fail(device: object) -> Ceilings:
        return pytest.fail("measured")

    monkeypatch.setattr("tilewright.cli.roofline.measured", fail)
    done = CliRunner().invoke(app, ["roofline", "--device", "host", *arguments])
    assert done.exit_code == 2
    assert said in done.stderr
