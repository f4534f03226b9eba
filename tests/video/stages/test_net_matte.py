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


def wrong(path: Path, how: str) -> Path:
    """A net of single pictures whose opacity is none, by what it does with their mean."""
    sizes = ["batch", 3, "height", "width"]
    value, node = helper.make_tensor_value_info, helper.make_node
    last = {
        "nan": [node("Mul", ["grey", "none"], ["a"]), node("Div", ["a", "a"], ["pha"])],
        "infinite": [node("Div", ["grey", "none"], ["pha"])],
        "nan here and there": [node("Sub", ["grey", "half"], ["a"]), node("Sqrt", ["a"], ["pha"])],
        "below 0": [node("Sub", ["grey", "many"], ["pha"])],
        "to 255": [node("Mul", ["grey", "many"], ["pha"])],
    }[how]
    nodes = [node("ReduceMean", ["src"], ["grey"], axes=[1], keepdims=1), *last]
    numbers = {"none": 0.0, "half": 0.5, "many": 255.0}
    constants = [helper.make_tensor(n, TensorProto.FLOAT, [], [v]) for n, v in numbers.items()]
    outs = [value("pha", TensorProto.FLOAT, ["batch", 1, "height", "width"])]
    graph = helper.make_graph(
        nodes, "net", [value("src", TensorProto.FLOAT, sizes)], outs, constants
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    onnx.save(model, path)
    return path


@pytest.mark.parametrize("how", ["nan", "infinite", "nan here and there"])
def test_pictures_that_a_network_gives_no_number_for_are_hidden_whole(
    tmp_path: Path, how: str
) -> None:
    source = film(tmp_path / "in.mkv", Making(width=WIDE, height=HIGH))
    net, out = wrong(tmp_path / "net.onnx", how), tmp_path / "out.mkv"
    stage = NetMatte.of_file(net, "host", careful=True)
    done = video.enhance(source, out, [stage, video.Blur("person")], codec="ffv1")
    assert [len(times) for times in done.notes.values()] == [12]
    for (_, before), (_, after) in zip(samples(source), samples(out), strict=True):
        assert np.mean(before[0] == after[0]) < 0.1  # by chance
        assert after[0].std() < before[0].std() / 2
    with pytest.raises(ArgumentError, match=r"opacity at 0.00 s is numbers that are not finite"):
        video.enhance(source, tmp_path / "grey.mkv", [NetMatte.of_file(net, "host"), video.Alpha()])
    assert not (tmp_path / "grey.mkv").exists()


@pytest.mark.parametrize("careful", [False, True])
@pytest.mark.parametrize("how", ["below 0", "to 255"])
def test_what_is_no_opacity_is_refused_and_nobody_left_open(
    tmp_path: Path, how: str, careful: bool
) -> None:
    source = film(tmp_path / "in.mkv", Making(width=WIDE, height=HIGH))
    stage = NetMatte.of_file(wrong(tmp_path / "net.onnx", how), "host", careful=careful)
    last = video.Blur("person") if careful else video.Alpha()
    with pytest.raises(ArgumentError, match=r"opacity at 0.00 s is .*; accepted is a network that"):
        video.enhance(source, tmp_path / "out.mkv", [stage, last], codec="ffv1")
    assert not (tmp_path / "out.mkv").exists()


def test_one_picture_without_a_number_leaves_the_state_of_later_ones_known(tmp_path: Path) -> None:
    model = onnx.load(recurrent(tmp_path / "net.onnx"))
    # 0 / 0 where a picture is wholly black, in the state and by it in the opacity.
    nodes = model.graph.node
    nodes[1].output[0] = "less"
    nodes.insert(2, helper.make_node("ReduceMean", ["less"], ["mean"], axes=[2, 3], keepdims=1))
    nodes.insert(3, helper.make_node("Div", ["mean", "mean"], ["one"]))
    nodes.insert(4, helper.make_node("Mul", ["less", "one"], ["small"]))
    # So little opacity that nobody is covered elsewhere.
    next(one for one in nodes if one.output[0] == "pha").input[1] = "little"
    model.graph.initializer.append(helper.make_tensor("little", TensorProto.FLOAT, [], [0.03]))
    onnx.save(model, tmp_path / "net.onnx")
    stage = NetMatte.of_file(tmp_path / "net.onnx", "host", careful=True)
    source, out = tmp_path / "in.mkv", tmp_path / "out.mkv"
    film(tmp_path / "all.mkv", Making(width=WIDE, height=HIGH))
    darkened(tmp_path / "all.mkv", source, 4)
    done = video.enhance(source, out, [stage, video.Alpha()], codec="ffv1")
    shown = opacity_of(out)
    assert shown[4].min() == 1
    assert all(one.mean() > 0 and one.max() < 0.1 for one in (*shown[:3], *shown[6:]))
    assert done.frames == 12


def darkened(source: Path, out: Path, number: int) -> None:
    """The same film, one picture of it black."""
    import av

    with av.open(str(source)) as given, av.open(str(out), "w") as made:
        stream = made.add_stream("ffv1", rate=25)
        stream.width, stream.height, stream.pix_fmt = WIDE, HIGH, "yuv420p"
        for at, frame in enumerate(given.decode(video=0)):
            for plane, level in zip(frame.planes, (16, 128, 128), strict=True):
                if at == number:
                    plane.update(bytes([level]) * plane.buffer_size)
            made.mux(stream.encode(frame))
        made.mux(stream.encode(None))
