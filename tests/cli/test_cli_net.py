"""`tilewright net` and `tilewright profile`: what they show, write and refuse."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.cli.test_cli import check_error, invoke, names
from tests.support.nets import model, weights_of
from tests.support.triton_proof import CUDA_H200
from tests.tuning.test_peak import made_up
from tilewright import nn
from tilewright.backends.cuda.conv.cudnn import Cudnn
from tilewright.inputs.devices import host
from tilewright.nn.homes import TorchHome

pytest.importorskip("onnx")
image = pytest.importorskip("PIL.Image", reason="Pillow is not installed")
ONE = {"pads": [1, 1, 1, 1]}


def upscaler() -> bytes:
    """Three convolutions and a shuffle: one channel of twice the size."""
    widths = (1, 4, 4, 4)
    weights = weights_of(**{f"w{i}": (b, a, 3, 3) for i, (a, b) in enumerate(pairwise(widths))})
    nodes: Any = [
        ("Conv", ["x", "w0"], ["a"], ONE),
        ("Relu", ["a"], ["b"], {}),
        ("Conv", ["b", "w1"], ["c"], ONE),
        ("Relu", ["c"], ["d"], {}),
        ("Conv", ["d", "w2"], ["e"], ONE),
        ("DepthToSpace", ["e"], ["y"], {"blocksize": 2, "mode": "CRD"}),
    ]
    return model(nodes, {"x": ("n", 1, "h", "w")}, weights)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, without_rest: None) -> Path:
    """A model, a picture and an array in the current folder, on a measured host of two cores."""
    known = replace(host(), ceilings=made_up(host().key), compute_units=2)
    monkeypatch.setattr("tilewright.cli.profile.device_of", lambda name, graph: known)
    (tmp_path / "model.onnx").write_bytes(upscaler())
    pixels = np.random.default_rng(0).integers(0, 256, (10, 14), np.uint8)
    image.fromarray(pixels).save(tmp_path / "picture.png")
    np.save(tmp_path / "x.npy", np.random.default_rng(1).random((1, 1, 8, 12), np.float32))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_model_is_converted_and_computes_the_same(folder: Path) -> None:
    done = invoke("net", "convert", "model.onnx", "-o", "model.npz")
    assert done.exit_code == 0, done.stderr
    assert "parameters  324 in 1.3 KiB" in done.stdout
    assert "wrote model.npz" in done.stdout
    x = np.load("x.npy")
    assert np.array_equal(nn.load("model.npz").run(x), nn.load("model.onnx").run(x))


def test_info_counts_operators_and_their_work_where_sizes_are_known(folder: Path) -> None:
    shown = invoke("net", "info", "model.onnx").stdout
    for line in (
        "input       x: n × 1 × h × w float32",
        "output      y: n × 1 × 2·h × 2·w float32",
        "nodes       6",
        "operators   Conv 3 (version 11), DepthToSpace 1 (version 13),\n",
        "            Relu 2 (version 14)\n",
    ):
        assert line in shown
    assert "MFLOP" not in shown
    shown = invoke("net", "info", "model.onnx", "--shape", "1x1x100x100").stdout
    assert "output      y: 1 × 1 × 200 × 200 float32" in shown
    assert re.search(r"^memory      [\d.]+ KiB$", shown, re.M)
    assert f"{(2 * 324 + 8) * 1e4 / 1e6:.1f} MFLOP" in shown
    assert ", at x 1 × 1 × 100 × 100, n = 1, h = 100, w = 100" in shown


def test_an_array_is_run_through_a_network(folder: Path) -> None:
    done = invoke("net", "run", "model.onnx", "x.npy", "-o", "y.npy", "--device", "host")
    assert done.exit_code == 0, done.stderr
    assert "y: 1 × 1 × 16 × 24 float32" in done.stdout
    wanted = nn.load("model.onnx").run(np.load("x.npy"))
    np.testing.assert_allclose(np.load("y.npy"), wanted, atol=1e-5)
    assert invoke("net", "run", "model.onnx", "x=x.npy", "--device", "host").exit_code == 0


def test_a_picture_goes_in_and_a_larger_one_comes_out(folder: Path) -> None:
    done = invoke("net", "run", "model.onnx", "picture.png", "-o", "large.png", "--device", "host")
    assert done.exit_code == 0, done.stderr
    with image.open("picture.png") as before, image.open("large.png") as after:
        assert after.size == (2 * before.width, 2 * before.height)
        x = np.asarray(before, np.float32)[None, None] / np.float32(255)
        wanted = np.clip(np.rint(nn.load("model.onnx").run(x)[0, 0] * 255), 0, 255)
        assert np.abs(np.asarray(after, np.float32) - wanted).max() <= 1


def test_a_profile_without_a_run_counts_and_draws(folder: Path) -> None:
    done = invoke("profile", "model.onnx", "--no-run", "--all", "--shape", "1x1x36x64")
    assert done.exit_code == 0, done.stderr
    for said in ("before fusion: 6 nodes", "Conv", "roofs before fusion"):
        assert said in done.stdout
    assert "after fusion" not in done.stdout


def test_a_profile_times_every_step_before_and_after_fusion(folder: Path) -> None:
    pytest.importorskip("matplotlib")
    done = invoke(
        "net", "profile", "model.onnx", "--shape", "1x1x36x64", "--repeats", 2, "--threads", 1,
        "--json", "p.json", "--plot", "roof.png", "--bars", "where.svg",
    )  # fmt: skip
    assert done.exit_code == 0, done.stderr
    assert {"p.json", "roof.png", "where.svg"} <= names(folder)
    found = json.loads(Path("p.json").read_text(encoding="utf-8"))
    assert found["schema"] == "tilewright-net-profile/1"
    before, after = found["before"], found["after"]
    assert all(row["ms"] is not None for row in (*before, *after))
    assert sum(r["flops"] for r in after) == 2 * 324 * 36 * 64
    assert sum(r["bytes"] for r in after) < sum(r["bytes"] for r in before)
    covered = [name for row in after for name in row["covers"]]
    assert len(covered) == len(set(covered)) == 6
    assert found["seconds"]["tilewright"] > 0
    for peer in found["peers"]:
        assert found["seconds"][peer["name"]] > 0
        assert sum(peer["operators"].values()) > 0


STOPPED = (
    ("tilewright.nn.net.Network.bind", "before fusion", ("before fusion: 6 nodes",), "one by one"),
    (
        "tilewright.report.net_measure.in_turns",
        "whole runs",
        ("after fusion: 1 step",),
        "whole run",
    ),
    ("tilewright.report.net_peers.runnable", "making ready", ("roofs before",), "one by one"),
)


@pytest.mark.parametrize(("where", "part", "said", "absent"), STOPPED)
def test_a_stopped_profile_shows_what_it_had_measured_and_writes_nothing(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    where: str,
    part: str,
    said: tuple[str, ...],
    absent: str,
) -> None:
    def stop(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    there = names(folder)
    monkeypatch.setattr(where, stop)
    files = ("--json", "p.json", "--plot", "roof.png", "--bars", "where.png")
    small = ("profile", "model.onnx", "--shape", "1x1x36x64", "--repeats", 1)
    done = invoke(*small, *files)
    assert done.exit_code == 130
    for text in said:
        assert text in done.stdout
    assert absent not in done.stdout
    assert f"stopped at {part}" in done.stderr
    assert names(folder) == there


def test_a_stopped_measurement_of_the_device_says_that_nothing_is_kept(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    unknown = replace(host(), ceilings=None)
    monkeypatch.setattr("tilewright.cli.profile.device_of", lambda name, graph: unknown)
    monkeypatch.setattr("tilewright.tuning.peak.measure", stop)
    done = invoke("profile", "model.onnx", "--no-run", "--shape", "1x1x36x64")
    assert done.exit_code == 130
    assert "nothing of that is kept" in done.stderr
    assert not done.stdout


def test_a_measured_step_has_its_prediction_beside_it_and_all_shows_every_node(
    folder: Path,
) -> None:
    small = ("profile", "model.onnx", "--shape", "1x1x36x64", "--repeats", 1, "--no-peers")
    short, whole = invoke(*small).stdout, invoke(*small, "--all").stdout
    assert re.search(r"^3 Conv \S+: \w+, took [\d.]+ \ws, predicted [\d.]+ \ws: ", short, re.M)
    assert "timed as a whole" in " ".join(short.split())
    assert short.count("before fusion: 6 nodes") == 1
    assert whole.count("before fusion: 6 nodes") == 2


def test_on_a_gpu_a_profile_and_a_bench_have_torch_beside_them(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A GPU whose arrays are torch's on the host, and whose engine is the vendor's."""
    torch = pytest.importorskip("torch")
    pytest.importorskip("array_api_compat")
    gpu = replace(CUDA_H200, ceilings=made_up(CUDA_H200.key))
    for room in ("cli.profile", "cli.net_bench", "nn.net"):
        monkeypatch.setattr(f"tilewright.{room}.device_of", lambda name, graph: gpu)
    monkeypatch.setattr("tilewright.nn.net.conv_engines", lambda name: (Cudnn(),))
    monkeypatch.setattr("tilewright.nn.net.home_of", lambda plan: TorchHome(plan.arena, "cpu"))
    monkeypatch.setattr(
        "tilewright.report.net_measure.on_device",
        lambda feeds, device: {name: torch.from_numpy(one) for name, one in feeds.items()},
    )
    monkeypatch.setattr("tilewright.report.net_peer_torch.seconds", lambda call, where: 1e-6)
    options = ("model.onnx", "--shape", "1x1x16x20", "--dtype", "float16", "--repeats", "2")
    files = ("--json", "p.json", "--plot", "roof.png", "--bars", "bars.png")
    done = invoke("profile", *options, *files)
    assert done.exit_code == 0, done.stderr
    written = json.loads(Path("p.json").read_text(encoding="utf-8"))
    assert {row["engine"] for row in written["after"]} == {"cudnn"}
    assert all(row["ms"] > 0 for row in written["after"])
    (peer,) = written["peers"]
    assert peer["name"].startswith("torch ")
    assert list(peer["operators"]) == ["Conv", "Relu", "DepthToSpace"]
    assert set(written["seconds"]) == {"tilewright", peer["name"]}
    done = invoke("net", "bench", *options, "--against", "torch")
    assert done.exit_code == 0, done.stderr
    assert "times ours" in done.stdout


def test_lines_of_a_table_fit_into_80_columns(folder: Path) -> None:
    done = invoke("profile", "model.onnx", "--shape", "1x1x36x64", "--repeats", 1, "--no-peers")
    tables = done.stdout.partition("roofs before")[0]
    assert max(map(len, tables.splitlines())) <= 80


def test_bench_compares_whole_runs_in_turns(folder: Path) -> None:
    pytest.importorskip("onnxruntime")
    done = invoke(
        "net", "bench", "model.onnx", "--shape", "1x1x16x16", "--against", "onnxruntime",
        "--repeats", 2, "--device", "host", "--json", "b.json",
    )  # fmt: skip
    assert done.exit_code == 0, done.stderr
    assert "times ours" in done.stdout
    assert len(json.loads(Path("b.json").read_text(encoding="utf-8"))["seconds"]) == 2


def _hostile(folder: Path) -> None:
    whole = (folder / "model.onnx").read_bytes()
    (folder / "half.onnx").write_bytes(whole[: len(whole) // 2])
    (folder / "noise.onnx").write_bytes(bytes(range(256)) * 8)
    fold: Any = [("NonMaxSuppression", ["x", "x"], ["y"], {})]
    (folder / "unknown.onnx").write_bytes(model(fold, {"x": (1, 2, 3)}, check=False))


@pytest.mark.parametrize("file", ["absent.onnx", "half.onnx", "noise.onnx", "unknown.onnx"])
def test_a_hostile_model_is_one_error_and_nothing_is_written(folder: Path, file: str) -> None:
    _hostile(folder)
    there = names(folder)
    for command in (
        ("net", "convert", file, "-o", "out.npz"),
        ("net", "info", file),
        ("net", "run", file, "x.npy", "-o", "out.npy"),
        ("net", "bench", file, "--json", "out.json"),
        ("profile", file, "--json", "out.json"),
    ):
        check_error(invoke(*command), file)
    assert names(folder) == there


def test_what_is_typed_wrong_is_named_with_what_is_accepted(folder: Path) -> None:
    there = names(folder)
    convert, run = ("net", "convert", "model.onnx", "-o"), ("net", "run", "model.onnx")
    check_error(invoke(*convert, "out.onnx"), "--output", ".npz")
    check_error(invoke(*convert, "absent/out.npz"), "cannot be written")
    check_error(invoke("profile", "model.onnx"), "--shape", "x=1x1xNxN")
    check_error(invoke("profile", "model.onnx", "--shape", "big"), "--shape='big'", "1x3x224x224")
    check_error(invoke("profile", "model.onnx", "--shape", "z=1x1x8x8"), "'z'", "['x']")
    check_error(invoke("profile", "model.onnx", "--shape", "1x3x8x8"), "x", "[1, 3, 8, 8]")
    check_error(
        invoke("profile", "model.onnx", "--shape", "1x1x8x8", "--shape", "x=1x1x9x9"), "already"
    )
    check_error(invoke("profile", "model.onnx", "--shape", "1x1x999999x999999"), "--shape", "GiB")
    for option in ("--repeats", "--top", "--threads"):
        check_error(invoke("profile", "model.onnx", option, "0"), f"{option}=0")
    small = ("profile", "model.onnx", "--shape", "1x1x8x8")
    check_error(invoke(*small, "--dtype", "int4"), "int4", "float16")
    check_error(invoke("profile", "model.onnx", "--bars", "where.gif"), "--bars", ".png")
    check_error(invoke(*run, "absent.npy"), "absent.npy", "no such file")
    check_error(invoke(*run, "x.npy", "x.npy"), "X=")
    check_error(invoke(*run, "z=x.npy"), "X='z=x.npy'", "no input 'z'", "['x']")
    info = invoke("net", "info", "model.onnx", "--shape", "1x3x8x8")
    check_error(info, "x", "[1, 3, 8, 8]")
    assert not info.stdout
    check_error(invoke(*run, "x.csv"), ".csv", ".npy")
    check_error(invoke(*run, "x.npy", "-o", "y.gif"), "--output", ".gif")
    check_error(invoke(*run, "x.npy", "-o", "a.npy", "-o", "b.npy"), "2 files")
    check_error(
        invoke("net", "bench", "model.onnx", "--shape", "1x1x8x8", "--against", "abacus"), "abacus"
    )
    assert names(folder) == there


def test_a_network_is_quantised_and_kept(folder: Path) -> None:
    done = invoke("net", "quantise", "model.onnx", "x.npy", "picture.png", "-o", "small.npz")
    assert done.exit_code == 0, done.stderr
    assert "PSNR of the outputs: " in done.stdout
    assert "wrote small.npz" in done.stdout
    x = np.load("x.npy")
    small, whole = nn.load("small.npz"), nn.load("model.onnx").run(x)
    assert {n.operator for n in small.graph.nodes} >= {"QuantizeLinear", "DequantizeLinear"}
    assert np.abs(small.run(x) - whole).max() < 0.02 * np.abs(whole).max()
    assert np.array_equal(
        small.bind(x.shape, "host")(x),
        nn.quantise(
            nn.load("model.onnx"),
            [x, np.asarray(image.open("picture.png"), np.float32)[None, None] / np.float32(255)],
            method="squares",
        ).bind(x.shape, "host")(x),
    )


def test_samples_of_several_files_are_those_of_one_file(folder: Path) -> None:
    x = np.load("x.npy")
    np.save("one.npy", np.concatenate([x, 2 * x, -x]))
    np.save("first.npy", np.concatenate([x, 2 * x]))
    np.save("last.npy", -x)
    quantise = ("net", "quantise", "model.onnx", "--no-compare", "-o")
    assert invoke(*quantise, "whole.npz", "one.npy").exit_code == 0
    assert invoke(*quantise, "parts.npz", "first.npy", "last.npy").exit_code == 0
    assert np.array_equal(nn.load("parts.npz").run(x), nn.load("whole.npz").run(x))


def test_what_cannot_be_quantised_is_said_and_nothing_is_written(folder: Path) -> None:
    bad = np.full((1, 1, 8, 8), np.nan, np.float32)
    np.save("bad.npy", bad)
    done = invoke("net", "quantise", "model.onnx", "x.npy", "bad.npy", "-o", "small.npz")
    check_error(done, "samples[1]", "input 'x' has nan at [0, 0, 0, 0]")
    done = invoke("net", "quantise", "model.onnx", "x.npy", "-o", "small.npz", "--keep", "nobody")
    check_error(done, "keep", "no node is called 'nobody'")
    assert not Path("small.npz").exists()


def test_one_array_may_hold_all_samples(folder: Path) -> None:
    np.save("samples.npy", np.random.default_rng(2).random((4, 1, 8, 12), np.float32))
    quantise = ("net", "quantise", "model.onnx", "samples.npy", "-o")
    done = invoke(*quantise, "small.npz", "--method", "minmax", "--no-compare")
    assert done.exit_code == 0, done.stderr
    assert "PSNR" not in done.stdout
    assert Path("small.npz").exists()
    check_error(invoke(*quantise, "small.onnx"), "--output", ".npz")
    check_error(invoke(*quantise, "other.npz", "--method", "guess"), "guess", "minmax")
    assert not Path("other.npz").exists()
