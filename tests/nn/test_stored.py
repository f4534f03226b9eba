"""Networks in files of our own: what is read is what was written, and what lies is one error."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.nets import model, weights_of
from tilewright import nn, onebit
from tilewright.errors import FileError
from tilewright.files.npz import write_arrays
from tilewright.nn.archives import DTYPES
from tilewright.onebit.layers import Sign

pytest.importorskip("onnx")


def net() -> nn.Network:
    """Attributes of many kinds: numbers, lists, texts; constants of floats and of whole numbers."""
    nodes = [
        ("Conv", ["x", "w", "b"], ["c"], {"pads": [1, 1, 1, 1], "strides": [2, 1]}),
        ("LeakyRelu", ["c"], ["l"], {"alpha": 0.3}),
        ("Transpose", ["l"], ["t"], {"perm": [0, 2, 3, 1]}),
        ("Reshape", ["t", "sizes"], ["y"], {}),
    ]
    constants = {**weights_of(w=(4, 2, 3, 3), b=(4,)), "sizes": np.array([0, -1], np.int64)}
    return nn.import_onnx(model(nodes, {"x": (1, 2, "h", 6)}, constants))  # type: ignore[arg-type]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    nn.save(net(), tmp_path / "net.npz")
    return tmp_path / "net.npz"


def test_what_is_read_computes_what_was_written(path: Path) -> None:
    x = np.random.default_rng(0).standard_normal((1, 2, 5, 6)).astype(np.float32)
    made, read = net(), nn.load(path)
    assert read.title == "net"
    assert read.inputs == made.inputs
    assert [dict(n.attributes) for n in read.graph.nodes] == [
        dict(n.attributes) for n in made.graph.nodes
    ]
    assert np.array_equal(read.run(x), made.run(x))


def test_the_same_network_gives_the_same_bytes(path: Path, tmp_path: Path) -> None:
    nn.save(nn.load(path), tmp_path / "again.npz")
    assert (tmp_path / "again.npz").read_bytes() == path.read_bytes()


def test_an_onnx_file_is_read_as_it_is(tmp_path: Path) -> None:
    nodes: Any = [("Relu", ["x"], ["y"], {})]
    (tmp_path / "m.onnx").write_bytes(model(nodes, {"x": (2, 3)}))
    x = np.array([[-1, 0, 1], [2, -3, 4]], np.float32)
    assert np.array_equal(nn.load(tmp_path / "m.onnx").run(x), np.maximum(x, 0))


def _with(path: Path, change: Callable[[dict[str, Any], dict[str, Any]], object]) -> None:
    """The file with its header or arrays changed."""
    with np.load(path) as archive:
        arrays = dict(archive)
    header = json.loads(arrays.pop("header").tobytes())
    change(header, arrays)
    text = np.frombuffer(json.dumps(header).encode(), np.uint8)
    write_arrays(path, {"header": text, **arrays}, "path", DTYPES)


LIES: dict[str, tuple[Callable[[Any, Any], object], str]] = {
    "another format": (lambda h, _: h.update(format="novel"), "novel"),
    "a later version": (lambda h, _: h.update(version=2), "version 2"),
    "no nodes": (lambda h, _: h.pop("nodes"), "'nodes' is missing"),
    "an unknown operator": (lambda h, _: h["nodes"][0].update(operator="Fold"), "Fold"),
    "an unknown version": (lambda h, _: h["nodes"][0].update(version=2), "Conv"),
    "a wrong attribute": (lambda h, _: h["nodes"][0]["attributes"].update(pads="all"), "pads"),
    "a strange attribute": (lambda h, _: h["nodes"][0]["attributes"].update(hue=1), "hue"),
    "a name nobody gives": (lambda h, _: h["nodes"][1].update(inputs=["nowhere"]), "nowhere"),
    "a number for a name": (lambda h, _: h["nodes"][1].update(inputs=[3]), "3"),
    "sizes below nothing": (lambda h, _: h["inputs"][0].__setitem__(1, [-1, 2]), "-1"),
    "an unknown type": (lambda h, _: h["inputs"][0].__setitem__(2, "text"), "text"),
    "a constant of another type": (lambda h, _: h["constants"][0].__setitem__(1, "int8"), "int8"),
    "an array too many": (lambda _, a: a.update(more=np.zeros(3)), "more"),
    "an array too few": (lambda _, a: a.pop("0"), "'0' is missing"),
    "no outputs": (lambda h, _: h.update(outputs=[]), "outputs"),
    "a list for a header": (lambda h, _: h.update(nodes=7), "damaged"),
}


@pytest.mark.parametrize("lie", LIES)
def test_a_file_that_lies_is_one_error_that_names_it(path: Path, lie: str) -> None:
    change, said = LIES[lie]
    _with(path, change)
    with pytest.raises(FileError, match=r"net\.npz") as caught:
        nn.load(path)
    assert said in str(caught.value)


def test_a_file_cut_in_half_and_one_of_arrays_are_refused(path: Path, tmp_path: Path) -> None:
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(FileError, match="tilewright net convert"):
        nn.load(path)
    np.savez(tmp_path / "arrays.npz", a=np.zeros(3))
    with pytest.raises(FileError, match="no network, but arrays"):
        nn.load(tmp_path / "arrays.npz")


def test_a_network_of_bits_is_written_as_such_files_are(tmp_path: Path) -> None:
    bits = onebit.Network((4,), (Sign(name="s", inputs=("input",)),), "s")
    nn.save(nn.of_bits(bits), tmp_path / "bits.npz")
    x = np.array([[1, -1, 2, -2]], np.float32)
    read = nn.load(tmp_path / "bits.npz")
    assert np.array_equal(read.run(x), nn.of_bits(bits).run(x))
    assert onebit.load(tmp_path / "bits.npz").output == "s"


def test_nothing_is_written_where_it_cannot_be(tmp_path: Path) -> None:
    with pytest.raises(FileError, match=r"\.npz"):
        nn.save(net(), tmp_path / "net.onnx")
    with pytest.raises(FileError, match="cannot be written"):
        nn.save(net(), tmp_path / "absent" / "net.npz")
    assert list(tmp_path.iterdir()) == []
