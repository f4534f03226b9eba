"""Networks that are shipped: they load, other libraries agree, and they reach what cards say."""

from __future__ import annotations

import functools
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnx")
ort = pytest.importorskip("onnxruntime")

from tests.support import nets  # noqa: E402
from tilewright import models  # noqa: E402
from tilewright.errors import ArgumentError  # noqa: E402
from tilewright.nn.net import Network  # noqa: E402

PHOTOGRAPHS = Path(__file__).parents[3] / "shared" / "data" / "images"
ENLARGING = [name for name in models.names() if name.startswith("superres")]
FLOATS = [name for name in ENLARGING if not name.endswith("-int8")]
RESTORING = ("deblock", "denoise")
# What networks read and give.
PLANES = {
    "deblock": (5, 4),
    "denoise": (5, 4),
    "detect": (24, 8),
    "fuse": (23, 8),
    "superres": (1, 1),
}
LOSS = 0.05  # decibels that int8 may lose, on small middles of photographs too
there = pytest.mark.skipif(
    not PHOTOGRAPHS.is_dir(), reason="the photographs that figures are of are not here"
)


def model_of(net: Network) -> bytes:
    """A network as an ONNX file."""
    graph = net.graph
    return nets.model(
        [(n.operator, n.inputs, n.outputs, dict(n.attributes)) for n in graph.nodes],
        {one.name: list(one.shape or ()) for one in graph.inputs},
        {name: np.asarray(tensor.value) for name, tensor in graph.constants.items()},
        graph.outputs,
    )


@functools.cache
def middles(size: int) -> list[Any]:
    """The middles of all test photographs, `size` pixels wide and high."""
    pytest.importorskip("torch")
    pytest.importorskip("PIL")
    from train.photographs import middle, pairs_of

    return [middle(pair, size) for pair in pairs_of(PHOTOGRAPHS / "test")]


def psnr(name: str, pairs: list[Any]) -> float:
    """The mean over pairs of one size."""
    import torch

    from train.judged import psnr_of

    x = np.stack([pair.low[None] for pair in pairs]).astype(np.float32) / 255
    y = models.load(name).bind(x.shape, device="host")(x)
    codes = [torch.from_numpy(one[0].astype(np.float64) * 255) for one in y]
    found = [psnr_of(one, torch.from_numpy(p.high)) for one, p in zip(codes, pairs, strict=True)]
    return float(np.mean(found))


def test_every_size_is_there_in_both_types_with_its_card() -> None:
    sizes = [f"{kind}-{size}" for kind in RESTORING for size in "ms"]
    sizes += ["detect-s", "fuse-s", *(f"superres-{size}" for size in "lms")]
    both = [name + tail for name in sizes for tail in ("", "-int8")]
    floats = ("denoise", "detect", "fuse")
    assert models.names() == tuple(n for n in both if not n.startswith(floats) or n[-1] in "ms")
    assert all(models.card(name) for name in models.names())


def test_an_unknown_name_is_answered_with_those_that_are_there() -> None:
    with pytest.raises(ArgumentError, match="name='superres-x': accepted are deblock-m, "):
        models.load("superres-x")
    with pytest.raises(ArgumentError, match="accepted are"):
        models.card("../superres-s")


@pytest.mark.parametrize("name", models.names())
def test_onnxruntime_gives_the_same(name: str) -> None:
    """In int8 its fused kernels may round a value between layers to its neighbour."""
    net = models.load(name)
    planes, made = PLANES[name.partition("-")[0]]
    x = np.random.default_rng(0).random((1, planes, 20, 26), np.float32)
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    (wanted,) = ort.InferenceSession(model_of(net), options).run(None, {net.inputs[0].name: x})
    got = net.bind(x.shape, device="host")(x)
    assert got.shape == ((1, 1, 40, 52) if name in ENLARGING else (1, made, 20, 26))
    most = float(np.abs(wanted).max())
    np.testing.assert_allclose(
        got, wanted, atol=2e-2 if name.endswith("int8") else 1e-5 * max(1, most)
    )


@pytest.mark.parametrize("name", FLOATS)
def test_float16_and_int8_cost_at_most_what_is_allowed(name: str) -> None:
    found = re.search(r"float16 loses (-?[\d.]+) dB, int8 (-?[\d.]+) dB", models.card(name))
    assert found
    assert float(found[1]) <= 0.02
    assert float(found[2]) <= LOSS


@there
@pytest.mark.parametrize("name", FLOATS)
def test_middles_of_photographs_have_the_figures_of_the_card(name: str) -> None:
    line = re.search(r"Middles of 192.*: (.*)\.$", models.card(name), re.M)
    assert line
    figures = re.findall(r"([\w-]+) ([\d.]+) and ([\d.]+)", line[1])
    assert len(figures) == 2
    for pair, (photograph, *wanted) in zip(middles(192), figures, strict=False):
        assert pair.name == photograph
        got = [psnr(name + tail, [pair]) for tail in ("", "-int8")]
        assert got == pytest.approx([float(one) for one in wanted], abs=0.002)


@there
@pytest.mark.parametrize("name", FLOATS)
def test_int8_of_middles_of_all_test_photographs_is_near_float32(name: str) -> None:
    pairs = middles(96)
    assert psnr(name, pairs) - psnr(f"{name}-int8", pairs) <= LOSS


@pytest.mark.parametrize("name", ENLARGING)
def test_of_a_brighter_picture_comes_the_same_brighter(name: str) -> None:
    """Away from the border: the first channel carries the picture, in int8 code by code."""
    codes = np.random.default_rng(1).integers(16, 200, (1, 1, 32, 36))
    dark, bright = ((codes + more).astype(np.float32) / 255 for more in (0, 30))
    enlarge = models.load(name).bind(dark.shape, device="host")
    difference = (enlarge(bright) - enlarge(dark))[..., 12:-12, 12:-12]
    np.testing.assert_allclose(difference * 255, 30, atol=5e-3)


def test_cards_and_the_list_of_photographs_are_complete() -> None:
    for name in models.names():
        assert models.card(name).startswith(f"# {name.removesuffix('-int8')}\n")
        assert "{" not in models.card(name)
        assert not re.search(r"\bnan\b", models.card(name))
    rows = re.findall(r"^\| [\w-]+ \|.*\| (?:CC0|CC BY|PD)[^|]*\|$", models.photographs(), re.M)
    assert len(rows) == 106


@there
@pytest.mark.parametrize(("name", "gain"), [("deblock", 1.2), ("denoise", 8.0)])
@pytest.mark.parametrize("size", ["s", "m"])
def test_damage_goes_from_middles_of_photographs(name: str, gain: float, size: str) -> None:
    """JPEG of quality 20, noise of 25: gains in dB, means of eight; deblocking in int8 too."""
    pytest.importorskip("torch")
    pytest.importorskip("PIL")
    from train.restoring import as_jpeg, noisy

    clean = [pair.high.round().astype(np.uint8) for pair in middles(96)[::6]]
    damaged = [
        as_jpeg(one, 20) if name == "deblock" else noisy(one, 25, number)
        for number, one in enumerate(clean)
    ]
    whole = np.stack(damaged).astype(np.float32) / 255
    told = np.full_like(whole[:, ::2, ::2], 25 / 255 * (name == "denoise"))
    x = np.stack([*(whole[:, i::2, j::2] for i in range(2) for j in range(2)), told], 1)
    found = []
    for tail in ("", "-int8") if name == "deblock" else ("",):
        added = models.load(f"{name}-{size}{tail}").bind(x.shape, device="host")(x)
        after = whole.copy()
        for place in range(4):
            after[:, place // 2 :: 2, place % 2 :: 2] += added[:, place]
        errors = [((one - np.stack(clean) / 255) ** 2).mean((1, 2)) for one in (whole, after)]
        found.append(float(np.mean(10 * np.log10(errors[0] / errors[1]))))
    assert found[0] >= gain
    assert found[-1] >= found[0] - 0.1
