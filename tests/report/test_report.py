"""Tables, pictures and documents of ladders that were made up, so that every odd case is there."""

from __future__ import annotations

import io
import json
import math
import stat
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console, RenderableType

import tilewright
from tilewright import Device
from tilewright.errors import ArgumentError, FileError
from tilewright.facts.kernel import Config
from tilewright.files.whole import replacing, write_json
from tilewright.inputs.devices import INSTALL_HINT, host
from tilewright.report import document, plots
from tilewright.report.records import KERNEL, PEER, Ladder, MemoryWay, Rung, Skipped
from tilewright.report.sampling import Samples
from tilewright.report.tables import device_cards, ladder_table, legend, memory_table

CONFIG = Config(tile_m=384, tile_n=256, tile_k=384, micro_m=12, micro_n=32, vector=16)
GPU = Device("opencl:0", "opencl", "Made-up 650", "Acme", "31.4.1", "Acme CL", kind="gpu")


def samples(wall: float, event: float | None = None, repeats: int = 20) -> Samples:
    events = () if event is None else (event,) * repeats
    return Samples(repeats // 2, (wall,) * repeats, (wall * 1.5,) * repeats, events)


def made_up(size: int = 256, device: Device = GPU) -> Ladder:
    """Two kernels, one of them wrong and with lying events, and the peers."""
    flops = 2 * size**3
    scale = flops / 1e9
    rungs = (
        Rung("serial", PEER, 128, samples(2 * 128**3 / 2e9), "wall", 1e-7),
        Rung("naive", KERNEL, size, samples(scale / 8, scale / 80, 6), "wall", math.nan, Config()),
        Rung("NumPy", PEER, size, samples(scale / 100), "wall", 1e-7),
        Rung("panel", KERNEL, size, samples(scale / 250, scale / 300), "events", 2e-7, CONFIG, 0.5),
    )
    skipped = (Skipped("image_a", "the device has no images"),)
    return Ladder(device, size, "float32", rungs, skipped)


def printed(content: RenderableType, width: int) -> str:
    console = Console(file=io.StringIO(), width=width, highlight=False)
    console.print(content)
    return console.file.getvalue()  # type: ignore[attr-defined, no-any-return]


@pytest.mark.parametrize("width", [80, 100, 140])
def test_no_line_of_a_ladder_is_wider_than_the_terminal_and_nothing_is_cut_off(width: int) -> None:
    text = printed(ladder_table(made_up(), width), width)
    assert max(map(len, text.splitlines())) <= width
    assert "…" not in text
    for word in ("naive", "panel", "NumPy", "serial*", "GFLOP/s", "image_a", "no images"):
        assert word in text


def test_configurations_are_shown_where_there_is_room() -> None:
    assert "384×256×384" in printed(ladder_table(made_up(), 110), 110)
    assert "384×256×384" not in printed(ladder_table(made_up(), 80), 80)


def test_a_wrong_result_lying_events_scaling_and_fewer_runs_are_said_in_words() -> None:
    text = printed(ladder_table(made_up(), 120), 120)
    assert "NaN wrong" in text
    assert "events lie" in text
    assert "measured at 128, time scaled by arithmetic to 256" in text
    assert "naive 3 and 6" in text
    assert "NumPy arrays to a NumPy array, transfers included" in text


def test_nothing_is_said_of_events_or_scaling_where_there_is_none() -> None:
    ladder = made_up(128)
    plain = replace(ladder, rungs=(ladder.rungs[0],), skipped=())
    text = printed(ladder_table(plain, 120), 120)
    assert "events lie" not in text
    assert "scaled" not in text
    assert "fewer" not in text


def test_the_winner_is_the_fastest_kernel_that_is_right_and_no_peer() -> None:
    ladder = made_up()
    assert ladder.winner is ladder.rungs[3]
    assert ladder.wrong == ("naive",)
    only_wrong = replace(ladder, rungs=ladder.rungs[:3])
    assert only_wrong.winner is None


@pytest.mark.parametrize(
    ("size", "dtype", "allowed"),
    [
        (256, "float32", 1e-6 + 2e-7 + 16 * 2**-23),
        (4096, "float32", 1e-6 + 2e-7 + 64 * 2**-23),
        (4096, "float64", 1e-6 + 2e-7),
        (256, "float16", 1e-6 + 2e-7 + 16 * 2**-23),
    ],
)
def test_a_kernel_may_err_by_rounding_and_no_more(size: int, dtype: str, allowed: float) -> None:
    ladder = replace(made_up(size), dtype=dtype)
    rung = ladder.rungs[3]
    assert ladder.right(replace(rung, error=0.99 * allowed))
    assert not ladder.right(replace(rung, error=1.01 * allowed))


def test_speed_ups_compare_rates_also_where_a_peer_was_scaled() -> None:
    ladder = made_up()
    assert ladder.speedup(ladder.rungs[3], "serial") == pytest.approx(150)
    assert ladder.speedup(ladder.rungs[3], "NumPy") == pytest.approx(3)
    assert ladder.speedup(ladder.rungs[3], "PyTorch") is None


def test_a_device_card_tells_what_matters_within_eighty_columns() -> None:
    device = replace(
        GPU,
        compute_units=36,
        memory=6 << 30,
        local_memory=32 << 10,
        image_width=16384,
        image_height=8192,
        features=frozenset({"fp16", "images", "unified_memory", "svm_coarse"}),
    )
    text = printed(device_cards((device, host())), 80)
    facts = (
        "opencl:0",
        "Made-up 650",
        "Acme",
        "31.4.1",
        "gpu, 36 compute units",
        "6 GiB",
        "32 KiB",
    )
    for fact in (*facts, "16384 × 8192", "float16", "no float64", "unified", "SVM coarse"):
        assert fact in text
    assert max(map(len, text.splitlines())) <= 80
    assert INSTALL_HINT not in text


def test_one_compute_unit_is_told_in_the_singular() -> None:
    text = printed(device_cards((replace(host(), compute_units=1),)), 80)
    assert "1 compute unit" in text
    assert "1 compute units" not in text


def test_a_host_alone_is_told_which_command_brings_a_device() -> None:
    assert INSTALL_HINT in printed(device_cards((host(),)), 80)


def test_the_memory_table_shows_every_way_with_its_bytes() -> None:
    way = MemoryWay("allocate", 1e-3, 2e-3, 3e-3, 2 << 20, 0, 1e-7)
    text = printed(memory_table(replace(made_up(), memory=(way,))), 80)
    for word in ("allocate", "1.00", "2.00", "3.00", "2 MiB", "0 B", "does not share"):
        assert word in text


def test_the_legend_fits_every_width() -> None:
    assert max(map(len, printed(legend(), 60).splitlines())) <= 60


def test_bars_are_drawn_as_png_with_no_temporary_file_left(tmp_path: Path) -> None:
    plots.draw([made_up()], tmp_path / "ladder.png", "--plot")
    assert (tmp_path / "ladder.png").read_bytes().startswith(b"\x89PNG")
    assert [path.name for path in tmp_path.iterdir()] == ["ladder.png"]


def test_a_picture_names_kernels_device_driver_rates_and_wrong_results(tmp_path: Path) -> None:
    plots.draw([made_up()], tmp_path / "ladder.svg", "--plot")
    text = (tmp_path / "ladder.svg").read_text(encoding="utf-8")
    words = ("panel", "naive", "NumPy", "serial*", "Made-up 650", "31.4.1", "GFLOP/s", "256 × 256")
    for word in (*words, "150× serial", "WRONG RESULT", "measured at 128"):
        assert word in text


def test_lines_over_sizes_name_every_kernel_and_every_size(tmp_path: Path) -> None:
    small = made_up(128)
    gone = replace(small, rungs=(*small.rungs, replace(small.rungs[3], name="dropped")))
    plots.draw([gone, made_up(256), made_up(512)], tmp_path / "lines.svg", "--plot")
    text = (tmp_path / "lines.svg").read_text(encoding="utf-8")
    for word in ("panel", "naive", "NumPy", "serial", "dropped", ">128<", ">256<", ">512<"):
        assert word in text


def test_the_same_figures_give_the_same_picture(tmp_path: Path) -> None:
    for name in ("one.svg", "two.svg"):
        plots.draw([made_up()], tmp_path / name, "--plot")
    assert (tmp_path / "one.svg").read_bytes() == (tmp_path / "two.svg").read_bytes()


def test_a_ladder_of_peers_alone_is_drawn(tmp_path: Path) -> None:
    ladder = made_up(device=host())
    plots.draw([replace(ladder, rungs=ladder.rungs[::2])], tmp_path / "host.png", "--plot")
    assert (tmp_path / "host.png").stat().st_size > 1000


def test_other_picture_formats_are_refused_by_name() -> None:
    with pytest.raises(ArgumentError, match=r"--plot='x\.pdf'.*\.png and \.svg"):
        plots.check(Path("x.pdf"), "--plot")


def test_without_matplotlib_the_error_names_the_pip_command(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(plots, "find_spec", lambda name: None)
    with pytest.raises(ArgumentError, match=r"pip install 'tilewright\[plot\]'"):
        plots.check(Path("x.png"), "--plot")


def test_a_document_is_plain_json_with_nan_as_null(tmp_path: Path) -> None:
    write_json(tmp_path / "ladder.json", document.document([made_up()]))
    text = (tmp_path / "ladder.json").read_text(encoding="utf-8")
    read = json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))
    serial, naive, _, panel = read["ladders"][0]["rungs"]
    assert read["schema"] == document.SCHEMA
    assert naive["error"] is None
    assert naive["right"] is False
    assert naive["events_lie"] is True
    assert naive["clock"] == "wall"
    assert (serial["scaled"], serial["measured_size"]) == (True, 128)
    assert serial["wall_ms"] == pytest.approx(8 * serial["samples"]["wall_ms"][0])
    assert panel["configuration"]["tile_m"] == 384
    assert panel["event_ms"] == pytest.approx(2 * 256**3 / 300e9 * 1e3)
    assert panel["end_to_end_ms"] == 500
    assert read["ladders"][0]["winner"] == "panel"
    assert read["ladders"][0]["skipped"] == [
        {"name": "image_a", "reason": "the device has no images"}
    ]
    assert read["device"]["driver"] == "31.4.1"
    assert {"python", "tilewright", "numpy"} <= set(read["versions"])
    assert str(Path(tilewright.__file__).parent) not in text


def test_a_copy_outside_its_own_checkout_has_no_commit(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    installed = tmp_path / "site-packages" / "tilewright"
    installed.mkdir(parents=True)
    monkeypatch.setattr(tilewright, "__file__", str(installed / "__init__.py"))
    assert document.commit() is None


def test_a_copy_in_somebody_elses_checkout_does_not_take_its_commit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    inner = Path(tilewright.__file__).parent / "report" / "__init__.py"
    monkeypatch.setattr(tilewright, "__file__", str(inner))
    assert document.commit() is None


def test_what_was_there_stays_when_writing_fails(tmp_path: Path) -> None:
    path = tmp_path / "c.npy"
    path.write_text("before")
    with pytest.raises(ZeroDivisionError), replacing(path, "--output") as temporary:
        temporary.write_text(f"half {1 / 0}")
    assert path.read_text(encoding="utf-8") == "before"
    assert list(tmp_path.iterdir()) == [path]


def test_a_written_file_has_the_permissions_of_any_other(tmp_path: Path) -> None:
    with replacing(tmp_path / "atomic", "--output") as temporary:
        temporary.write_text("whole")
    (tmp_path / "plain").write_text("")
    modes = [stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("atomic", "plain")]
    assert modes[0] == modes[1]


def test_a_link_is_written_through_and_stays_a_link(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "target")
    with replacing(tmp_path / "link", "--output") as temporary:
        temporary.write_text("whole")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "target").read_text(encoding="utf-8") == "whole"


@pytest.mark.parametrize("name", ["absent/c.npy", "."])
def test_a_path_that_cannot_be_written_is_refused_before_the_work(
    tmp_path: Path, name: str
) -> None:
    with (
        pytest.raises(FileError, match=r"--output=.*cannot be written"),
        replacing(tmp_path / name, "--output"),
    ):
        pytest.fail("the work began")


def test_a_result_names_the_sets_of_instructions_of_its_processor() -> None:
    sets = document.provenance(tilewright.devices()[-1])["processor"]
    assert sets == document.instruction_sets()
    flags = Path("/proc/cpuinfo")
    if flags.exists() and "avx512f" in flags.read_text(encoding="utf-8"):
        assert any("X86_V4" in name or "AVX512" in name for name in sets)
