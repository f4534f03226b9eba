"""Files that lie, are cut, or point elsewhere: one FileError each, before memory is taken."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.nets import ONE, NodeText, model, residual_blocks, upscaler, weights_of
from tilewright import nn
from tilewright.errors import ArgumentError, FileError, ShapeError

onnx = pytest.importorskip("onnx")


def test_a_file_cut_anywhere_is_refused_or_whole(tmp_path: Path) -> None:
    content = model(*residual_blocks())
    path = tmp_path / "cut.onnx"
    for end in range(0, len(content) - 1, 50):
        path.write_bytes(content[:end])
        with pytest.raises(FileError, match="model="):
            nn.import_onnx(path)


def test_random_bytes_raise_nothing_else() -> None:
    content = model(*upscaler(2, 1))
    rng = np.random.default_rng(0)
    refused = 0
    for _ in range(80):
        spoiled = bytearray(content)
        for place in rng.integers(0, len(content), 3):
            spoiled[place] = rng.integers(256)
        try:
            net = nn.import_onnx(bytes(spoiled))
            net.explain({net.inputs[0].name: (1, 1, 8, 8)}, device="host")
        except (FileError, ShapeError):
            refused += 1
    assert refused > 20


def changed(change: Any) -> bytes:
    """A model of one Conv after a change of its protobuf."""
    nodes: list[NodeText] = [("Conv", ["x", "w"], ["y"], ONE)]
    made = onnx.load_from_string(model(nodes, {"x": (1, 4, 8, 8)}, weights_of(w=(8, 4, 3, 3))))
    change(made)
    content: bytes = made.SerializeToString()
    return content


def huge(made: Any) -> None:
    del made.graph.initializer[0].dims[:]
    made.graph.initializer[0].dims.extend([1 << 40, 1 << 20])


def twice(made: Any) -> None:
    made.graph.initializer.append(made.graph.initializer[0])


def circle(made: Any) -> None:
    made.graph.node[0].input[0] = "z"
    made.graph.node.append(onnx.helper.make_node("Relu", ["y"], ["z"]))


def same_output(made: Any) -> None:
    made.graph.node.append(onnx.helper.make_node("Relu", ["x"], ["y"]))


def subgraph(made: Any) -> None:
    inside = onnx.helper.make_graph([], "inside", [], [])
    made.graph.node.append(
        onnx.helper.make_node("If", ["x"], ["i"], then_branch=inside, else_branch=inside)
    )


def function(made: Any) -> None:
    made.functions.append(onnx.FunctionProto(name="F", domain="own"))


def domain(made: Any) -> None:
    made.graph.node[0].domain = "com.microsoft"


def old(made: Any) -> None:
    made.opset_import[0].version = 6


def future(made: Any) -> None:
    made.ir_version = 99


def strings(made: Any) -> None:
    made.graph.input[0].type.tensor_type.elem_type = onnx.TensorProto.STRING


def no_output(made: Any) -> None:
    del made.graph.output[:]


def two_attributes(made: Any) -> None:
    made.graph.node[0].attribute.append(made.graph.node[0].attribute[0])


WRONG = (
    (huge, r"initializer 'w' claims \[1099511627776, 1048576\]"),
    (twice, "two initializers have one name"),
    (circle, r"node 'y' \(Conv\): input 'z' is no value before it"),
    (same_output, "'y' is there already"),
    (subgraph, r"node 'i' \(If\): has a graph of its own"),
    (function, "functions"),
    (domain, "domain 'com.microsoft'"),
    (old, "opset 6; accepted is one from 7"),
    (future, "ir_version=99"),
    (strings, "input 'x' is of type 8"),
    (no_output, "outputs"),
    (two_attributes, "two attributes have one name"),
)


@pytest.mark.parametrize(("change", "said"), WRONG, ids=[w[0].__name__ for w in WRONG])
def test_a_model_that_cannot_be_is_refused_by_name(change: Any, said: str) -> None:
    with pytest.raises(FileError, match=said):
        nn.import_onnx(changed(change))


def test_what_onnx_loaded_is_taken_as_its_file_is() -> None:
    content = model(*upscaler())
    x = np.ones((1, 1, 6, 7), np.float32)
    made = nn.import_onnx(onnx.load_from_string(content)).run(x)
    np.testing.assert_array_equal(made, nn.import_onnx(content).run(x))


@pytest.mark.parametrize("wrong", [None, 3, ["model.onnx"], np.zeros(3)])
def test_what_is_no_model_is_named(wrong: Any) -> None:
    with pytest.raises(ArgumentError, match=r"model=.*accepted is the path of a file"):
        nn.import_onnx(wrong)


def test_weights_may_be_infinite() -> None:
    def spoil(made: Any) -> None:
        array = onnx.numpy_helper.to_array(made.graph.initializer[0]).copy()
        array[0], array[1] = np.nan, np.inf
        made.graph.initializer[0].CopyFrom(onnx.numpy_helper.from_array(array, "w"))

    net = nn.import_onnx(changed(spoil))
    x = np.ones((1, 4, 8, 8), np.float32)
    for made in (net.run(x), net.bind(device="host")(x)):
        assert np.isnan(made[:, 0]).all()
        assert not np.isfinite(made[:, 1]).any()
        assert np.isfinite(made[:, 2:]).all()


# Data in other files


def external(folder: Path, **entries: str) -> Path:
    """A model whose weights lie in `folder`/data.bin, as `entries` say."""
    array = weights_of(w=(8, 4, 3, 3))["w"]
    (folder / "data.bin").write_bytes(b"\0" * 16 + array.tobytes())

    def move(made: Any) -> None:
        tensor = made.graph.initializer[0]
        tensor.ClearField("raw_data")
        tensor.data_location = onnx.TensorProto.EXTERNAL
        known = {"location": "data.bin", "offset": "16", "length": str(array.nbytes)}
        for key, value in (known | entries).items():
            tensor.external_data.add(key=key, value=value)

    path = folder / "model.onnx"
    path.write_bytes(changed(move))
    return path


def test_weights_in_a_file_beside_the_model_are_read(tmp_path: Path) -> None:
    net = nn.import_onnx(external(tmp_path))
    x = np.ones((1, 4, 8, 8), np.float32)
    np.testing.assert_array_equal(net.run(x), nn.import_onnx(changed(lambda made: None)).run(x))


@pytest.mark.parametrize(
    ("entries", "said"),
    [
        ({"location": "../data.bin"}, "accepted are files in the model's folder"),
        ({"location": "/etc/passwd"}, "accepted are files in the model's folder"),
        ({"location": "link.bin"}, "accepted are files in the model's folder"),
        ({"location": "absent.bin"}, "accepted are files in the model's folder"),
        ({"location": "\0"}, "accepted are files in the model's folder"),
        ({"offset": "-1"}, "offset='-1'; accepted are whole numbers"),
        ({"offset": "99999"}, "has 0 of them"),
        ({"length": "1"}, "its length is 1"),
        ({"length": "1" * 30}, "accepted are whole numbers"),
    ],
)
def test_weights_anywhere_else_are_not(tmp_path: Path, entries: dict[str, str], said: str) -> None:
    folder = tmp_path / "inside"
    folder.mkdir()
    (tmp_path / "data.bin").write_bytes(b"\0" * 4096)
    path = external(folder, **entries)
    (folder / "link.bin").symlink_to(tmp_path / "data.bin")
    with pytest.raises(FileError, match=said):
        nn.import_onnx(path)


def test_bytes_have_no_folder(tmp_path: Path) -> None:
    content = external(tmp_path).read_bytes()
    with pytest.raises(FileError, match="accepted are bytes of models in one file"):
        nn.import_onnx(content)
