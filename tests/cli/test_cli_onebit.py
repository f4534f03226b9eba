"""`tilewright onebit`: convert, info, run and profile; wrong files are one line each."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from PIL import Image

from bench.birealnet_model import birealnet18
from tests.cli.test_cli import check_error, invoke, tilewright_command
from tilewright import onebit

LABELS = tuple(f"class {i}" for i in range(10))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A model, a picture and names of classes in the current folder."""
    onnx.save(birealnet18(classes=10, size=32), str(tmp_path / "model.onnx"))
    pixels = np.random.default_rng(0).integers(0, 256, (40, 50, 3), np.uint8)
    Image.fromarray(pixels).save(tmp_path / "picture.png")
    (tmp_path / "labels.txt").write_text("\n".join(LABELS) + "\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_model_is_converted_and_run_in_real_processes(folder: Path) -> None:
    done = tilewright_command(
        "onebit", "convert", "model.onnx", "model.npz", "--labels", "labels.txt"
    )
    assert done.returncode == 0, done.stderr
    for said in ("59 layers compared", "no difference", "the same class", "zero round binary"):
        assert said in done.stdout
    done = tilewright_command("onebit", "run", "model.npz", "picture.png", "--top", "3")
    assert done.returncode == 0, done.stderr
    shown = [line.split(maxsplit=1) for line in done.stdout.splitlines()]
    network = onebit.load("model.npz")
    with Image.open("picture.png") as image:
        pixels = np.asarray(image.resize((32, 32), Image.Resampling.BILINEAR), np.float32)
    scores = network.run(pixels / np.float32(255))
    best = np.argsort(-scores)[:3]
    assert [name for _, name in shown] == [LABELS[i] for i in best]
    assert np.allclose([float(score) for score, _ in shown], scores[best], atol=1e-3)


def test_info_and_profile_show_every_layer(folder: Path) -> None:
    assert invoke("onebit", "convert", "model.onnx", "model.npz").exit_code == 0
    shown = invoke("onebit", "info", "model.npz").stdout
    timed = invoke("onebit", "profile", "model.npz", "--repeats", 2).stdout
    for layer in onebit.load("model.npz").layers:
        assert layer.name in shown
        assert layer.name in timed.replace("\n", " ")
    assert "10,985,472 of one bit" in shown
    assert "a whole run:" in timed


def test_every_layers_comparison_is_shown_when_asked_for(folder: Path) -> None:
    done = invoke("onebit", "convert", "model.onnx", "model.npz", "--all")
    assert "stage4.3.norm" in done.stdout


def test_mean_and_deviation_are_applied_to_each_channel(folder: Path) -> None:
    invoke("onebit", "convert", "model.onnx", "model.npz")
    plain = invoke("onebit", "run", "model.npz", "picture.png")
    one = invoke("onebit", "run", "model.npz", "picture.png", "--mean", "0.5", "--std", "0.25")
    three = invoke(
        "onebit", "run", "model.npz", "picture.png",
        "--mean", "0.5,0.5,0.5", "--std", "0.25,0.25,0.25",
    )  # fmt: skip
    assert one.stdout == three.stdout != plain.stdout


def test_wrong_files_are_one_line_each(folder: Path) -> None:
    invoke("onebit", "convert", "model.onnx", "model.npz")
    Path("text.png").write_text("no picture", encoding="utf-8")
    Path("cut.png").write_bytes(Path("picture.png").read_bytes()[:900])
    run = ("onebit", "run", "model.npz")
    check_error(invoke("onebit", "convert", "absent.onnx", "a.npz"), "absent.onnx")
    check_error(invoke("onebit", "convert", "picture.png", "a.npz"), "no ONNX model")
    check_error(invoke("onebit", "convert", "model.onnx", "a.onnx"), "suffix", ".npz")
    check_error(invoke("onebit", "convert", "model.onnx", "nowhere/a.npz"), "cannot be written")
    check_error(
        invoke("onebit", "convert", "model.onnx", "a.npz", "--labels", "absent.txt"), "--labels"
    )
    check_error(
        invoke("onebit", "convert", "model.onnx", "a.npz", "--labels", "model.onnx"), "--labels"
    )
    check_error(invoke("onebit", "info", "picture.png"), "picture.png")
    check_error(invoke(*run, "absent.png"), "no such file")
    check_error(invoke(*run, "text.png"), "no picture")
    check_error(invoke(*run, "cut.png"), "damaged")
    check_error(invoke(*run, "picture.png", "--mean", "1,2"), "--mean")
    check_error(invoke(*run, "picture.png", "--mean", "grey"), "--mean")
    check_error(invoke(*run, "picture.png", "--std", "0"), "--std")
    check_error(invoke(*run, "picture.png", "--top", "0"), "--top")
    check_error(invoke("onebit", "profile", "model.npz", "--repeats", "0"), "--repeats")
    assert not Path("a.npz").exists()
