"""Mattes by a user's network: states that begin where the film says, files that do not fit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("av")
pytest.importorskip("numba")
onnx = pytest.importorskip("onnx")

from onnx import TensorProto, helper  # noqa: E402

from tests.support.films import Making, film, samples  # noqa: E402
from tilewright import video  # noqa: E402
from tilewright.errors import ArgumentError  # noqa: E402
from tilewright.video import making  # noqa: E402
from tilewright.video.stages import net_matte  # noqa: E402
from tilewright.video.stages.net_matte import NetMatte  # noqa: E402

WIDE, HIGH = 96, 64


def recurrent(path: Path, *, channels: int = 3, states: int = 1) -> Path:
    """A net as those of Lin and others: free sizes of the same names, a state of half the size, a
    number. Its state is half of the one before and half of the picture's mean; opacity is that."""
    sizes = ["batch", channels, "height", "width"]
    inputs = [helper.make_tensor_value_info("src", TensorProto.FLOAT, sizes)]
    any_size = ["batch", "channels", "height", "width"]
    inputs += [helper.make_tensor_value_info("r1i", TensorProto.FLOAT, any_size)] * states
    inputs += [helper.make_tensor_value_info("downsample_ratio", TensorProto.FLOAT, [1])]
    nodes = [
        helper.make_node("ReduceMean", ["src"], ["grey"], axes=[1], keepdims=1),
        helper.make_node("AveragePool", ["grey"], ["small"], kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("Add", ["small", "r1i" if states else "small"], ["both"]),
        helper.make_node("Mul", ["both", "half"], ["r1o"]),
        helper.make_node("Resize", ["r1o", "", "scales"], ["large"], mode="nearest"),
        helper.make_node("Mul", ["large", "downsample_ratio"], ["pha"]),
        helper.make_node("Identity", ["src"], ["fgr"]),
    ]
    outputs = [helper.make_tensor_value_info("fgr", TensorProto.FLOAT, sizes)]
    outputs += [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, any_size)
        for name in ("pha", "r1o")[: 1 + states]
    ]
    constants = [
        helper.make_tensor("half", TensorProto.FLOAT, [], [0.5]),
        helper.make_tensor("scales", TensorProto.FLOAT, [4], [1, 1, 2, 2]),
    ]
    graph = helper.make_graph(nodes, "net", inputs, outputs, constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    onnx.save(model, path)
    return path


def opacity_of(path: Path) -> list[Any]:
    return [planes[0] / 255 for _, planes in samples(path)]


def test_states_begin_at_pictures_of_the_film_and_films_are_the_same_however_they_are_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(net_matte, "EVERY", 6)
    monkeypatch.setattr(net_matte, "RUN_UP", 3)
    times = tuple(range(0, 20 * 512, 512))
    source = film(tmp_path / "in.mkv", Making(width=WIDE, height=HIGH, times=times, noise=0.0))
    stage = NetMatte.of_file(recurrent(tmp_path / "net.onnx"), "host")
    made = []
    for chunk in (20, 7):
        monkeypatch.setattr(making, "CHUNK", chunk)
        out = tmp_path / f"{chunk}.mkv"
        assert video.enhance(source, out, [stage, video.Alpha()], codec="ffv1").frames == 20
        made.append(opacity_of(out))
    np.testing.assert_array_equal(made[0], made[1])
    grey = [
        frame.carrier.to_ndarray(format="rgb24").mean(-1) / 255 for frame in video.frames(source)
    ]
    for number in (0, 5, 6, 8, 13, 19):
        state: Any = np.zeros((HIGH // 2, WIDE // 2))
        for one in grey[max(0, number // 6 * 6 - 3) : number + 1]:
            small = one.reshape(HIGH // 2, 2, WIDE // 2, 2).mean((1, 3))
            state = (small + state) / 2
        # One that saw a picture more or less would be off by a sixteenth and more.
        assert abs(made[0][number].mean() - state.mean()) < 0.02


def test_a_network_of_single_pictures_needs_none_before(tmp_path: Path) -> None:
    stage = NetMatte.of_file(recurrent(tmp_path / "net.onnx", states=0), "host")
    assert stage.before == 0
    source = film(tmp_path / "in.mkv", Making(width=WIDE, height=HIGH))
    out = tmp_path / "out.mkv"
    video.enhance(source, out, [stage, video.Alpha()], codec="ffv1")
    (first, *_), picture = opacity_of(out), next(iter(video.frames(source)))
    wanted = picture.carrier.to_ndarray(format="rgb24").mean() / 255
    assert abs(first.mean() - wanted) < 0.02


def test_files_that_are_no_such_network_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match=r"matte-model='.*no.onnx': cannot be read"):
        NetMatte.of_file(tmp_path / "no.onnx")
    with pytest.raises(
        ArgumentError, match=r"inputs src \[batch, 1, .* accepted are a picture float32"
    ):
        NetMatte.of_file(recurrent(tmp_path / "one.onnx", channels=1))
    doubled = onnx.load(recurrent(tmp_path / "net.onnx"))
    del doubled.graph.output[1]  # its opacity
    onnx.save(doubled, tmp_path / "without.onnx")
    with pytest.raises(ArgumentError, match=r"(outputs fgr|do not fit).* accepted are a picture"):
        NetMatte.of_file(tmp_path / "without.onnx")
