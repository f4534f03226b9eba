"""A network's profile as words and pictures, from rows that nobody measured."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from tests.support.peak_probes import made_up
from tilewright.inputs.devices import host
from tilewright.nn.profile import Row
from tilewright.report import net_pictures, net_profile
from tilewright.report.net_profile import NetProfile
from tilewright.wording import time_text

LAYER = "/features/features.1{}/conv/conv.0/conv.0.0/Conv"


def row(name: str, operator: str, *, engine: str = "", seconds: float = 2e-3) -> Row:
    return Row(name, operator, (name,), (1, 8, 9, 9), "float32", 4e6, 80_000, engine, seconds)


def profile(before: list[Row], after: list[Row], dtype: str = "float32") -> NetProfile:
    device = replace(host(), ceilings=made_up(host().key))
    assert device.ceilings is not None
    sizes = {"x": (1, 8, 9, 9)}
    seconds = {"tilewright": 2e-3, "other 1.0": 3e-3}
    return NetProfile(
        "net", device, device.ceilings, dtype, sizes, tuple(before), tuple(after), seconds
    )


def shown(found: NetProfile, width: int = 80) -> str:
    console = Console(width=width, no_color=True)
    with console.capture() as capture:
        console.print(net_profile.table(found, None))
    return capture.get()


def test_names_that_exporters_repeat_are_told_apart_in_80_columns() -> None:
    nodes = [row(LAYER.format(at), "Conv") for at in range(3)]
    steps = [replace(one, engine="winograd_chain", seconds=0.1947263) for one in nodes]
    text = shown(profile(nodes, steps))
    table = text.partition("after fusion")[2].partition("roofs before")[0]
    for at in range(3):
        assert f"1{at}/conv.0.0" in table
    assert "194.726" in table, "names give way, figures do not"
    assert max(map(len, text.splitlines())) <= 80


def test_a_product_that_runs_as_a_convolution_is_called_what_the_file_calls_it() -> None:
    nodes = [row("/fc/Gemm", "Gemm"), row("/pool", "GlobalAveragePool"), row("/c/Conv", "Conv")]
    steps = [replace(one, operator="Conv", engine="direct") for one in nodes]
    table = shown(profile(nodes, steps)).partition("after fusion")[2]
    for name in ("Gemm fc", "GlobalAveragePool", "Conv c"):
        assert re.search(f"^ ?{name} ", table, re.M), table


def test_ratios_say_of_what_they_are_and_little_work_is_not_none() -> None:
    little = replace(row("/r", "Relu"), flops=50.0, bytes=400)
    text = shown(profile([little], [little]))
    assert "other 1.0 3.000 ms (1.50 times ours)" in text
    assert "<0.01" in text
    assert "<0.001" in text


def test_a_type_without_a_measured_peak_is_named() -> None:
    whole = replace(row("/c/Conv", "Conv"), dtype="int4")
    assert "No peak is known of int4" in shown(profile([whole], [whole]))
    assert "No peak" not in shown(profile([row("/c", "Conv")], [row("/c", "Conv")]))


@pytest.mark.parametrize(
    ("seconds", "said"),
    [(0.0, "0.0 µs"), (3.7e-8, "37 ns"), (2.5e-6, "2.5 µs"), (9.9e-5, "99.0 µs"), (0.5, "500")],
)
def test_a_time_has_a_unit_that_shows_it(seconds: float, said: str) -> None:
    assert time_text(seconds).startswith(said)


@pytest.mark.parametrize(("seconds", "unit"), [(2e-3, "ms"), (2e-5, "µs")])
def test_bars_have_a_unit_that_shows_them(tmp_path: Path, seconds: float, unit: str) -> None:
    pytest.importorskip("matplotlib")
    nodes = [row("/c/Conv", "Conv", seconds=seconds)]
    net_pictures.draw_bars(profile(nodes, nodes), tmp_path / "bars.svg", "--bars")
    text = (tmp_path / "bars.svg").read_text(encoding="utf-8")
    assert f" {'2.000' if unit == 'ms' else '20.0'} {unit}<" in text
    assert "e-0" not in re.findall(r">([^<]*)</text>", text)


def test_an_operator_has_one_colour_in_both_pictures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("matplotlib")
    palettes: list[dict[str, str]] = []
    palette = net_pictures._palette

    def watched(bars: Any) -> dict[str, str]:
        palettes.append(palette(bars))
        return palettes[-1]

    monkeypatch.setattr(net_pictures, "_palette", watched)
    nodes = [row("/c/Conv", "Conv", seconds=1e-3), row("/p", "MaxPool", seconds=3e-3)]
    nodes += [row("/r", "Relu", seconds=2e-3)]
    found = profile(nodes, [replace(nodes[0], seconds=9e-3)])
    net_pictures.draw_bars(found, tmp_path / "bars.png", "--bars")
    net_pictures.draw_roofline(found, tmp_path / "roof.png", "--plot")
    assert palettes[0] == palettes[1]
    assert list(palettes[0]) == ["Conv", "MaxPool", "Relu"]


def test_a_roofline_of_a_network_says_in_plain_words_what_is_drawn(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    node = row("/c/Conv", "Conv", seconds=1e-3)
    net_pictures.draw_roofline(profile([node], [node]), tmp_path / "roof.svg", "--plot")
    texts = re.findall(r">([^<]*)</text>", (tmp_path / "roof.svg").read_text(encoding="utf-8"))
    for said in (
        "operations for each byte that is read or written",
        "billions of operations a second (GFLOP/s)",
        "a node of the file, run by itself",
        "a step of the network as it runs",
        "the most that was measured here",
    ):
        assert said in texts
    assert not [text for text in texts if "fma" in text or "chains" in text]
