"""The demo: a film, a batch, bits and the ladder, each where what it needs is there."""

from __future__ import annotations

from pathlib import Path

import pytest

import tilewright
from tests.cli.test_cli import check_error, invoke, tilewright_command
from tilewright.inputs.devices import INSTALL_HINT, host
from tilewright.report import onebit_bench, plots


def test_the_demo_shows_devices_ladder_and_plan_and_draws_a_picture(tmp_path: Path) -> None:
    done = tilewright_command(
        *("demo", "--size", "64", "--only", "ladder", "--out", "pictures"), cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    for device in tilewright.devices():
        assert device.id in done.stdout
    assert "64 × 64 × 64 float32" in done.stdout
    assert "C[64 x 64] = A[64 x 64] @ B[64 x 64]" in done.stdout
    assert done.stdout.splitlines()[-1] == f"wrote {Path('pictures') / 'ladder.png'}"
    assert (tmp_path / "pictures" / "ladder.png").read_bytes().startswith(b"\x89PNG")


def test_the_demo_works_with_only_the_host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tilewright.cli.demo.devices", lambda: (host(),))
    done = invoke(
        *("demo", "--size", "32", "--device", "host", "--only", "ladder", "--out", tmp_path)
    )
    assert done.exit_code == 0, done.stderr
    assert INSTALL_HINT in done.stdout
    assert "NumPy" in done.stdout
    assert (tmp_path / "ladder.png").is_file()


def test_the_demo_works_without_matplotlib(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plots, "available", lambda: False)
    done = invoke(
        *("demo", "--size", "16", "--device", "host", "--only", "ladder", "--out", tmp_path / "new")
    )
    assert done.exit_code == 0, done.stderr
    assert "pip install 'tilewright[plot]'" in done.stdout
    assert not (tmp_path / "new").exists()


def test_the_demo_enhances_a_film_and_multiplies_a_batch_and_bits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for package in ("av", "numba", "jinja2"):
        pytest.importorskip(package)
    for where in ("grouped.REST", "grouped._BLOCK"):
        monkeypatch.setattr(f"tilewright.report.{where}", 0.0)
    monkeypatch.setattr("tilewright.cli.demo._PROBLEMS", 20)
    seconds = {onebit_bench.INT32: 1e-3, onebit_bench.FP32: 16e-3}
    measured = onebit_bench.Shape(64, 64, 256, "bits", seconds)
    monkeypatch.setattr(onebit_bench, "measure", lambda *_, **__: [measured])
    parts = [word for part in ("film", "batch", "bits") for word in ("--only", part)]
    done = invoke("demo", *parts, "--network", "s", "--device", "host", "--out", tmp_path)
    assert done.exit_code == 0, done.stderr
    assert "48 pictures, 480x270 yuv420p -> 960x540 yuv420p" in done.stdout
    assert "20 products" in done.stdout
    assert "64 x 64 x 256: one-bit int32 1.00 ms, fp32 16.00 ms" in done.stdout
    assert "16.0 times NumPy's fp32" in done.stdout
    made = {"flower-large.mp4", "flower-large.mp4.preview.png", "flower.html"}
    assert {path.name for path in tmp_path.iterdir()} == made


def test_a_demo_folder_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    check_error(
        invoke("demo", "--device", "host", "--only", "ladder", "--out", tmp_path / "file" / "x"),
        "--out=",
    )
