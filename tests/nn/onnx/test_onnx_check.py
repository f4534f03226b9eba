"""The importer's check: whatever the importer gets wrong, somebody else's implementation says so.

Drafts are made wrong on purpose, one fact of one layer at a time, and random graphs are compared
with onnxruntime on inputs that the import did not see.
"""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from tests.support.onnx_graphs import FLOAT, Graph, by_onnxruntime
from tilewright import onebit
from tilewright.cli import app
from tilewright.errors import ArgumentError, FileError
from tilewright.nn.onnx import load, others
from tilewright.nn.onnx.drafts import AffineDraft, ConvDraft, Draft, LayerDraft, SignDraft
from tilewright.nn.window import Window
from tilewright.onebit.layers import AveragePool, Clamp, MaxPool

PADS = (1, 1, 0, 0)


def everything(batch: Any = 1) -> Graph:
    """Every kind of draft: both convolutions, norms, a clamp, pools, a residual, a dense layer."""
    g = Graph(5, 8, 8)
    x = g.node("Clip", g.norm("x", 5), g.const(np.float32(-0.5)), g.const(np.float32(0.75)))
    x = g.node("Conv", x, g.const(g.reals(6, 5, 3, 3)), pads=[1, 1, 1, 1])
    s = g.node("Sign", g.norm(x, 6))
    c = g.node("Conv", s, g.const(g.signs(6, 6, 3, 3)), pads=[1, 1, 1, 1])
    x = g.node("Add", g.norm(c, 6), x)
    m = g.node("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2])
    m = g.node("AveragePool", m, kernel_shape=[3, 3], pads=[1, 1, 1, 1])
    s = g.node("Sign", g.norm(m, 6))
    c = g.node("Conv", s, g.const(g.signs(4, 6, 2, 2)))
    s = g.node("Sign", g.node("Add", c, g.const(np.float32(0.5))))
    f = g.node("Flatten", s)
    g.node("Gemm", f, g.const(g.reals(36, 3)), g.const(g.reals(3)), alpha=0.5)
    return g


Change = Callable[[Any], dict[str, Any]]


def field(name: str, change: Callable[[Any], Any]) -> Change:
    """Of a layer that is a draft as it is."""
    return lambda d: {"fields": {**d.fields, name: change(d.fields[name])}}


WRONG: tuple[tuple[str, type, Change], ...] = (
    ("an output's weights", ConvDraft, lambda d: {"weights": d.weights[::-1].copy()}),
    ("the window mirrored", ConvDraft, lambda d: {"weights": d.weights[:, ::-1, ::-1].copy()}),
    ("rows for columns", ConvDraft, lambda d: {"weights": d.weights.transpose(0, 2, 1, 3).copy()}),
    ("an input's weights", ConvDraft, lambda d: {"weights": d.weights[..., ::-1].copy()}),
    ("a window", MaxPool, field("window", lambda w: Window((2, 1), (2, 2)))),
    ("the first window", MaxPool, field("window", lambda w: Window((2, 2), (2, 2), (1, 1), PADS))),
    ("a norm's scale", AffineDraft, lambda d: {"scale": d.scale * (1 + 1e-4)}),
    ("a norm's sign", AffineDraft, lambda d: {"scale": -d.scale}),
    ("a norm's shift", AffineDraft, lambda d: {"shift": d.shift + 1e-3}),
    ("a limit", Clamp, field("low", lambda low: low + 0.001)),
    ("the other limit", Clamp, field("high", lambda high: high - 0.001)),
    ("a cut", SignDraft, lambda d: {"cut": np.full(4 if d.name == "Sign14" else 6, 3.5)}),
    ("what a mean divides by", AveragePool, field("count_padding", lambda every: not every)),
    ("what lies outside", ConvDraft, lambda d: {"outside": "minus_one"}),
    ("a bias", ConvDraft, lambda d: {"shift": 0.01 + (0 if d.shift is None else d.shift)}),
)


# Less than a step of the last layers' integer sums: nothing there that a bit could show.
ONLY_FIRST = ("a norm's scale", "a norm's shift", "a bias")


@pytest.mark.parametrize(
    ("kind", "change", "which"),
    [
        pytest.param(kind, change, which, id=f"{name}-{which}")
        for name, kind, change in WRONG
        for which in range(1 if name in ONLY_FIRST else 2)
    ],
)
def test_whatever_is_wrong_in_one_layer_is_no_import(
    kind: type, change: Change, which: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The first and the last of the kind, as `fold` is given them; the command writes nothing."""
    plain, spoiled = load.fold, []

    def fold(drafts: list[Any], output: str) -> list[Draft]:
        kinds = [d.kind if isinstance(d, LayerDraft) else type(d) for d in drafts]
        places = [index for index, found in enumerate(kinds) if found is kind]
        if change is WRONG[-2][2]:
            places = [p for p in places if drafts[p].binary and any(drafts[p].window.pads)]
        elif kind is ConvDraft:
            places = [p for p in places if drafts[p].window.kernel != (1, 1)]
        at = places[-which]
        made = list(drafts)
        made[at] = dataclasses.replace(made[at], **change(made[at]))
        spoiled.append(at)
        return plain(made, output)

    model, out = tmp_path / "model.onnx", tmp_path / "model.npz"
    model.write_bytes(everything().bytes())
    assert onebit.import_onnx(model)[1].exact
    monkeypatch.setattr(load, "fold", fold)
    with pytest.raises(FileError, match="is not what the graph computes"):
        onebit.import_onnx(model)
    done = CliRunner().invoke(app, ["onebit", "convert", str(model), str(out)])
    assert done.exit_code != 0
    assert not out.exists()
    assert len(spoiled) == 2


def test_the_check_names_who_did_it_and_reference_does_where_onnxruntime_is_absent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    content = everything().bytes()
    network, report = onebit.import_onnx(content)
    assert report.engine.startswith("onnxruntime")
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    again, report = onebit.import_onnx(content)
    assert report.engine.startswith("onnx.reference")
    assert report.exact
    x = np.random.default_rng(1).standard_normal((3, 8, 8, 5)).astype(np.float32)
    assert np.array_equal(network.run(x), again.run(x))


@pytest.mark.parametrize("absent", [False, True])
def test_types_that_do_not_go_together_are_refused_whoever_runs_files(
    absent: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if absent:
        monkeypatch.setitem(sys.modules, "onnxruntime", None)
    g = Graph(5, 7, 6)
    g.node("Add", "x", g.const(np.ones((5, 1, 1), np.int64)))
    with pytest.raises(FileError, match=r"\(Add\): input 1 .* is int64; accepted is"):
        onebit.import_onnx(g.bytes())


def test_nobody_who_runs_the_file_is_no_import(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(others, "engines", tuple)
    with pytest.raises(FileError, match="nobody runs it"):
        onebit.import_onnx(everything().bytes())


# Batches


@pytest.mark.parametrize("batch", [1, 2, 3, "N"])
def test_a_batch_of_any_size_is_imported(batch: Any) -> None:
    content = everything().bytes(batch=batch)
    network, report = onebit.import_onnx(content)
    assert report.exact
    count = batch if isinstance(batch, int) else 4
    x = np.random.default_rng(1).standard_normal((count, 8, 8, 5)).astype(np.float32)
    assert np.allclose(network.run(x), by_onnxruntime(content, x), atol=1e-4)
    for one, scores in zip(x, network.run(x), strict=True):
        assert np.array_equal(network.run(one), scores)


def test_a_sample_need_not_be_a_multiple_of_the_batch() -> None:
    x = np.random.default_rng(1).standard_normal((5, 8, 8, 5)).astype(np.float32)
    report = onebit.import_onnx(everything().bytes(batch=2), sample=x)[1]
    assert report.exact
    assert report.scores.elements == 5 * 3


@pytest.mark.parametrize(
    ("batch", "shape", "fine"),
    [(1, [1, -1], True), (2, [1, -1], False), ("N", [1, -1], False), (2, [-1, 90], False),
     (2, [2, -1], True), ("N", [-1, 45], True), ("N", [0, -1], True), (3, [0, 45], True)],
)  # fmt: skip
def test_a_reshape_may_not_join_images(batch: Any, shape: list[int], fine: bool) -> None:
    g = Graph(5, 3, 3)
    rows = g.node("Reshape", g.node("Relu", "x"), g.const(np.array(shape, np.int64)))
    if fine:
        g.node("MatMul", rows, g.const(g.reals(45, 2)))
        assert onebit.import_onnx(g.bytes(batch=batch))[1].exact
        return
    with pytest.raises(FileError, match=r"'Reshape1' .*shape=.* a row for each of 2 images"):
        onebit.import_onnx(g.bytes(batch=batch))


# Products that are none of features


@pytest.mark.parametrize("sizes", [(6, 6), (5, 5), (1, 5, 6, 7)])
def test_a_product_of_images_is_refused(sizes: tuple[int, ...]) -> None:
    g = Graph(5, 6, sizes[-2])
    g.node("MatMul", "x", g.const(g.reals(*sizes)))
    with pytest.raises(FileError, match=r"'MatMul0' .* accepted are rows of features"):
        onebit.import_onnx(g.bytes())


@pytest.mark.parametrize("build", ["MatMul", "Gemm", "Gemm transposed", "Conv"])
def test_a_dense_layer_of_any_layout_is_saved_and_loaded(build: str, tmp_path: Path) -> None:
    g = Graph(5, 1, 1)
    if build == "Conv":
        g.node("Conv", "x", g.const(np.asfortranarray(g.reals(3, 5, 1, 1))))
    else:
        weights = g.reals(5, 3) if build != "Gemm transposed" else g.reals(3, 5)
        f = g.node("Flatten", "x")
        more = {"transB": 1} if build == "Gemm transposed" else {}
        g.node(build.split()[0], f, g.const(weights), **more)
    network, _ = onebit.import_onnx(g.bytes())
    onebit.save(network, tmp_path / "network.npz")
    x = np.random.default_rng(0).standard_normal((2, 1, 1, 5)).astype(np.float32)
    assert np.array_equal(onebit.load(tmp_path / "network.npz").run(x), network.run(x))


@pytest.mark.parametrize("c", [(2, 3), (2, 1), (4,)])
def test_what_a_gemm_adds_is_one_number_a_column(c: tuple[int, ...]) -> None:
    g = Graph(5)
    g.node("Gemm", "x", g.const(g.reals(5, 3)), g.const(np.ones(c, np.float32)))
    with pytest.raises(FileError, match="'Gemm0'"):
        onebit.import_onnx(g.bytes(batch=2))


# Memory


def outer(n: int) -> bytes:
    """A file of 4 n bytes whose constants multiply to n * n numbers."""
    g = Graph(4)
    g.node("MatMul", g.const(np.ones((n, 1), np.float16)), g.const(np.ones((1, n), np.float16)))
    g.node("Relu", "x")
    return g.bytes()


def relus(count: int, *shape: int) -> bytes:
    g, x = Graph(*shape), "x"
    for _ in range(count):
        x = g.node("Relu", x)
    return g.bytes()


def test_a_constant_that_does_not_fit_is_refused_before_it_is_computed() -> None:
    with pytest.raises(FileError, match=r"'MatMul0' .*to 2592000000 bytes; memory=1073741824"):
        onebit.import_onnx(outer(18_000))
    assert onebit.import_onnx(outer(100), memory=1 << 20)[1].exact
    with pytest.raises(FileError, match="memory=79999"):
        onebit.import_onnx(outer(100), memory=79_999)


def test_values_of_the_comparison_go_after_their_last_reader() -> None:
    few, many = (relus(count, 8, 64, 64) for count in (3, 30))
    assert onebit.import_onnx(few, memory=3 << 20)[1].exact
    assert onebit.import_onnx(many, memory=3 << 20)[1].exact
    with pytest.raises(FileError, match=r"takes about \d+ bytes; memory=524288 is"):
        onebit.import_onnx(few, memory=1 << 19)


@pytest.mark.parametrize("memory", [0, -1, True, 1.5, None])
def test_a_memory_that_is_none_is_named(memory: Any) -> None:
    with pytest.raises(ArgumentError, match="memory="):
        onebit.import_onnx(relus(1, 4), memory=memory)


@pytest.mark.parametrize(
    "model", ["outer(18_000)", "relus(12, 1, 4096, 2048)", "relus(40, 4, 512, 512)"]
)
def test_small_files_take_no_more_than_they_may(model: str) -> None:
    script = (
        "import resource\nfrom tests.nn.onnx.test_onnx_check import *\n"
        f"content = {model}\nbefore = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "try:\n    onebit.import_onnx(content, memory=256 << 20)\nexcept FileError as e: print(e)\n"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True,
        cwd=Path(__file__).parents[3],
    )  # fmt: skip
    unit = 1 if sys.platform == "darwin" else 1024
    assert int(done.stdout.split()[-1]) * unit < 600 << 20, done.stdout


# Random graphs


@st.composite
def graphs(draw: st.DrawFn) -> Graph:
    """A chain of a few operators with attributes of every kind, sometimes with a shortcut."""
    channels, height, width = (draw(st.integers(1, 9)) for _ in range(3))
    g = Graph(channels, height, width, seed=draw(st.integers(0, 999)))
    x, earlier = "x", None
    for _ in range(draw(st.integers(1, 5))):
        kind = draw(st.sampled_from(sorted(_GROW)))
        x, channels = _GROW[kind](draw, g, x, channels)
        if earlier is not None and earlier[1] == channels and kind == "relu":
            x = g.node("Add", x, earlier[0])
        earlier = (x, channels) if kind in ("norm", "clip") else None
    if draw(st.booleans()):
        features = g.node("Flatten", g.node("GlobalAveragePool", x))
        g.node("Gemm", features, g.const(g.reals(channels, 3)), beta=0.5)
    return g


def _slides(draw: st.DrawFn, most: int = 3) -> dict[str, Any]:
    size = st.integers(1, most)
    given: dict[str, Any] = {"strides": [draw(size), draw(size)]}
    if draw(st.booleans()):
        given["auto_pad"] = draw(st.sampled_from(["VALID", "SAME_UPPER", "SAME_LOWER"]))
    elif draw(st.booleans()):
        given["pads"] = [draw(st.integers(0, 1)) for _ in range(4)]
    return given


def _grow_conv(draw: st.DrawFn, g: Graph, x: str, channels: int) -> tuple[str, int]:
    groups = draw(st.sampled_from([n for n in range(1, channels + 1) if channels % n == 0]))
    outputs = groups * draw(st.integers(1, 3))
    kernel = [draw(st.integers(1, 3)) for _ in range(2)]
    binary = draw(st.booleans())
    shape = (outputs, channels // groups, *kernel)
    x = g.node("Sign", x) if binary else x
    weights = g.signs(*shape) if binary else g.reals(*shape)
    given = _slides(draw)
    if "auto_pad" not in given:
        given["dilations"] = [draw(st.integers(1, 2)), 1]
    x = g.node("Conv", x, g.const(weights), group=groups, **given)
    return x, outputs


def _grow_pool(draw: st.DrawFn, g: Graph, x: str, channels: int) -> tuple[str, int]:
    op = draw(st.sampled_from(["MaxPool", "AveragePool"]))
    given = _slides(draw, 2)
    more = draw(st.sampled_from(["ceil_mode", "count_include_pad", "neither"]))
    if more == "ceil_mode" and "auto_pad" not in given:
        given["ceil_mode"] = 1
    if more == "count_include_pad" and op == "AveragePool":
        given["count_include_pad"] = 1
    return g.node(op, x, kernel_shape=[2, 2], **given), channels


def _grow_arithmetic(draw: st.DrawFn, g: Graph, x: str, channels: int) -> tuple[str, int]:
    op = draw(st.sampled_from(["Add", "Sub", "Mul", "Div"]))
    number = g.const(np.abs(g.reals(channels, 1, 1)) + 0.5)
    turned = op != "Div" and draw(st.booleans())
    return g.node(op, *((number, x) if turned else (x, number))), channels


_GROW: dict[str, Callable[..., tuple[str, int]]] = {
    "conv": _grow_conv,
    "pool": _grow_pool,
    "arithmetic": _grow_arithmetic,
    "norm": lambda draw, g, x, channels: (g.norm(x, channels), channels),
    "relu": lambda draw, g, x, channels: (g.node("Relu", x), channels),
    "clip": lambda draw, g, x, channels: (
        g.node("Clip", x, g.const(np.float32(-0.75)), g.const(np.float32(1.5))),
        channels,
    ),
    "cast": lambda draw, g, x, channels: (g.node("Cast", x, to=FLOAT), channels),
}
_OUTSIDE = (
    "windows that fit",
    "wholly outside",
    "ceil_mode with",
    "does not depend",
    "ShapeInference",
)


@settings(max_examples=80, deadline=None)
@given(graphs(), st.sampled_from([1, 2, "N"]))
def test_random_graphs_give_what_onnxruntime_gives(graph: Graph, batch: Any) -> None:
    """Layer by layer in the import, and as a whole up to the first sign of something near 0."""
    content = graph.bytes(batch=batch)
    refused = ""
    try:
        network, report = onebit.import_onnx(content)
    except FileError as error:
        refused = str(error)
    if refused:
        assert any(said in refused for said in _OUTSIDE), refused
        return
    assert all(layer.differing == layer.zeros for layer in report.layers), report
    if any(node.op_type == "Sign" for node in graph.nodes):
        return
    x = np.random.default_rng(3).standard_normal((2, *network.input_shape)).astype(np.float32)
    for images in (x,) if batch != 1 else (x[:1], x[1:]):
        truth = by_onnxruntime(content, images)
        got = network.run(images).reshape(truth.shape)
        assert np.allclose(got, truth, rtol=1e-4, atol=1e-4 * max(1.0, np.abs(truth).max()))
