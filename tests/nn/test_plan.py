"""Plans: chains are cut where engines predict least, values lie where nobody else's do."""

from __future__ import annotations

import tracemalloc
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from tests.support import made_up
from tests.support.nets import (
    ONE,
    NodeText,
    model,
    picture,
    residual_blocks,
    upscaler,
    weights_of,
)
from tilewright import nn
from tilewright.engines.conv import Conv, ConvOperands, ConvWork
from tilewright.facts.device import Device
from tilewright.facts.verdict import Proposal
from tilewright.nn.memory import ALIGNMENT, Life, offsets, peak
from tilewright.nn.operators.convs import layer_of
from tilewright.nn.plan import between
from tilewright.nn.segments import cut

pytest.importorskip("onnx")
HOST = Device("host", "host", "made up", memory=1 << 34)


@dataclass
class Made:
    """An engine by the definition: takes so many layers at most, predicts what it is told."""

    name: str
    most: int
    each: float | None
    source: str = "channels_last"
    result: str = "channels_last"

    def why_not(self, work: ConvWork, device: Device) -> str | None:
        if (work.source, work.result) != (self.source, self.result):
            return "lies otherwise"
        return f"at most {self.most} layers" if len(work.layers) > self.most else None

    def propose(self, work: ConvWork, device: Device) -> Proposal:
        seconds = None if self.each is None else self.each * len(work.layers)
        return Proposal(self.name, device, seconds, "made up", decisions=work)

    def bind(self, proposal: Proposal, operands: ConvOperands) -> Any:
        work: ConvWork = proposal.decisions
        for array, format_ in ((operands.x, work.source), (operands.out, work.result)):
            last = array.transpose(0, 2, 3, 1).flags.c_contiguous
            assert last if format_ == "channels_last" else array.flags.c_contiguous
            assert array.ctypes.data % ALIGNMENT == 0

        def launch() -> None:
            x, residuals = operands.x, iter(operands.residuals)
            for layer in work.layers:
                x = layer_of(np, layer, x, next(residuals) if layer.adds else None)
            np.copyto(operands.out, x)

        return launch


def chain(count: int) -> ConvWork:
    layer = Conv(np.ones((4, 4, 3, 3), np.float32), pads=(1, 1, 1, 1))
    return ConvWork((layer,) * count, 1, 9, 9)


@pytest.mark.parametrize(
    ("engines", "wanted"),
    [
        ([Made("one", 1, 1.0), Made("three", 3, 0.5)], [3, 2]),
        ([Made("one", 1, 1.0), Made("three", 3, 2.0)], [1, 1, 1, 1, 1]),
        ([Made("five", 5, None)], [5]),
        ([Made("five", 5, None), Made("one", 1, 9.0)], [1, 1, 1, 1, 1]),
        ([], [1, 1, 1, 1, 1]),
        ([Made("two", 2, 1.0, "channels_first", "channels_first")], [2, 2, 1]),
    ],
)
def test_chains_are_cut_where_least_is_predicted(engines: Any, wanted: list[int]) -> None:
    pieces = cut(chain(5), HOST, engines, "channels_last")
    sizes = [piece.end - piece.begin for piece in pieces]
    assert sorted(sizes) == sorted(wanted)
    assert [piece.begin for piece in pieces] == list(np.cumsum([0, *sizes[:-1]]))


def test_a_plan_says_how_chains_were_cut_and_what_that_saves(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    net = nn.import_onnx(model(*upscaler(8, 3)))
    monkeypatch.setattr(
        "tilewright.nn.net.conv_engines",
        lambda name: (Made("one", 1, 1e-3), Made("two", 2, 5e-4), Made("four", 4, 9e-3)),
    )
    lines = net.explain((1, 1, 64, 64), device="host").splitlines()
    assert max(map(len, lines)) <= 80
    said = " ".join(" ".join(lines).split())
    assert "4 layers in 2 pieces, 2.000 ms; in one piece: 36.000 ms; layer by layer: 2.0" in said
    weights = 4 * 9 * (8 + 64)
    fused = 4 * 64 * 64 * (1 + 8) + weights
    apart = fused + 4 * 64 * 64 * (2 * 8 + 2 * (8 + 8))
    assert f"moves {fused / 2**20:.2f} MiB; its nodes one by one would {apart / 2**20:.2f}" in said


def bound_by(monkeypatch: pytest.MonkeyPatch, net: Any, shape: Any, *engines: Any) -> Any:
    monkeypatch.setattr("tilewright.nn.net.conv_engines", lambda name: engines)
    return net.bind(shape, device="host")


@pytest.mark.parametrize(
    "engines",
    [
        [Made("one", 1, 1.0)],
        [Made("three", 3, 1.0)],
        [Made("first", 1, 1.0, "channels_first", "channels_last"), Made("two", 2, 9.0)],
        [Made("first", 1, 1.0, "channels_first", "channels_first")],
        [Made("mixed", 1, 1.0, "channels_last", "channels_first")],
    ],
    ids=lambda engines: engines[0].name + engines[0].result,
)
def test_engines_get_values_as_they_ask_for_them(
    monkeypatch: pytest.MonkeyPatch, engines: list[Made]
) -> None:
    net = nn.import_onnx(model(*upscaler(8, 3)))
    x = picture(1, 1, 11, 14)
    bound = bound_by(monkeypatch, net, x.shape, *engines)
    wanted = net.run(x)
    for _ in range(2):
        np.testing.assert_allclose(bound(x), wanted, atol=1e-5 * np.abs(wanted).max())
    assert engines[0].name in bound.explain()


@pytest.mark.parametrize(
    ("made", "channels", "wanted"),
    [
        (HOST, 4, "channels_last"),
        (made_up.TWO_CORES, 16, "channels_last"),
        (made_up.TWO_CORES, 15, "channels_first"),
        (made_up.H200, 64, "channels_first"),
    ],
)
def test_values_lie_as_a_device_is_fast_with_them(made: Device, channels: int, wanted: str) -> None:
    assert between(made, channels) == wanted


def test_residuals_stay_until_they_are_added(monkeypatch: pytest.MonkeyPatch) -> None:
    net = nn.import_onnx(model(*residual_blocks()))
    x = picture(2, 3, 7, 8)
    bound = bound_by(monkeypatch, net, x.shape, Made("two", 2, 1.0))
    wanted = net.run(x)
    np.testing.assert_allclose(bound(x), wanted, atol=1e-5 * np.abs(wanted).max())
    assert [step.engine for step in bound.steps] == ["two"] * 3
    assert "+ residual" in bound.explain()


def test_memory_is_planned_by_lifetime(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a chain done layer by layer only two values live at once."""
    net = nn.import_onnx(model(*upscaler(16, 6)))
    bound = bound_by(monkeypatch, net, (1, 1, 64, 64), Made("one", 1, 1.0))
    value = 16 * 64 * 64 * 4
    result = 4 * 64 * 64 * 4
    assert bound.peak_bytes <= 2 * value + 2 * result
    home = bound._home
    assert home._room.nbytes <= bound.peak_bytes


def test_a_run_takes_no_more_than_was_planned(monkeypatch: pytest.MonkeyPatch) -> None:
    """By definitions alone: values live at once, beside what one definition takes for itself."""
    nodes: list[NodeText] = [("Relu", ["x"], ["a0"], {})]
    nodes += [("Add", [f"a{i}", f"a{i}"], [f"a{i + 1}"], {}) for i in range(12)]
    net = nn.import_onnx(model(nodes, {"x": (256, 1024)}, outputs=("a12",)))
    bound = bound_by(monkeypatch, net, None)
    x = picture(256, 1024)
    bound(x)
    tracemalloc.start()
    try:
        made = bound(x)
        most = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert bound.peak_bytes == 2 * made.nbytes
    assert most <= bound.peak_bytes + made.nbytes


def test_no_two_values_that_live_at_once_overlap() -> None:
    rng = np.random.default_rng(0)
    for _ in range(30):
        firsts = rng.integers(0, 20, 25)
        lives = [
            Life(f"v{i}", int(size), int(first), int(first + length))
            for i, (size, first, length) in enumerate(
                zip(rng.integers(0, 9000, 25), firsts, rng.integers(0, 6, 25), strict=True)
            )
        ]
        places, total = offsets(lives)
        for one in lives:
            assert places[one.name] % ALIGNMENT == 0
            assert places[one.name] + one.bytes <= total or not one.bytes
            for other in lives:
                apart = one.last < other.first or other.last < one.first
                ends = places[one.name] + one.bytes <= places[other.name]
                ends |= places[other.name] + other.bytes <= places[one.name]
                assert one is other or apart or ends
        assert total <= 1.6 * peak(lives) + 25 * ALIGNMENT


def test_a_definition_between_engines_may_read_planned_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    nodes: list[NodeText] = [
        ("Conv", ["x", "w"], ["a"], ONE),
        ("Relu", ["x"], ["b"], {}),
        ("Add", ["a", "one"], ["c"], {}),
        ("Add", ["c", "row"], ["d"], {}),
        ("Conv", ["d", "v"], ["e"], ONE),
        ("Conv", ["b", "w"], ["f"], ONE),
        ("Add", ["e", "f"], ["y"], {}),
    ]
    w = weights_of(w=(6, 3, 3, 3), v=(6, 6, 3, 3))
    w |= {"one": np.float32(1).reshape(()), "row": np.arange(8, dtype=np.float32)}
    net = nn.import_onnx(model(nodes, {"x": (1, 3, 7, 8)}, w))
    x = picture(1, 3, 7, 8)
    bound = bound_by(monkeypatch, net, None, Made("one", 1, 1.0))
    np.testing.assert_allclose(bound(x), net.run(x), atol=1e-5)
