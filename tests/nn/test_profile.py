"""Rows of a profile: work by hand, roofs by made-up ceilings, times by whoever did each node."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.support.nets import model, weights_of
from tilewright import nn
from tilewright.errors import DtypeError, ShapeError
from tilewright.facts.ceilings import Bandwidth, Ceilings, Rate
from tilewright.nn.profile import LAYOUT, Row, by_operator, matched, parameters

pytest.importorskip("onnx")
ONE = {"pads": [1, 1, 1, 1]}
# 100 GFLOP/s, and 10 GB/s for any set: the ridge lies at 10 operations a byte.
ROUND = Ceilings(
    "round",
    "2026-01-01T00:00:00+00:00",
    (Rate("float32", "fma", value=100e9),),
    (Bandwidth("read", 1 << 20, 10e9),),
)


def net() -> nn.Network:
    """x [1, 2, 4, 6] -> 3x3 convolution to 4 channels -> ReLU -> [1, 4 * 4 * 6]."""
    nodes = [
        ("Conv", ["x", "w", "b"], ["c"], ONE),
        ("Relu", ["c"], ["r"], {}),
        ("Flatten", ["r"], ["y"], {}),
    ]
    weights = weights_of(w=(4, 2, 3, 3), b=(4,))
    return nn.import_onnx(model(nodes, {"x": (1, 2, 4, 6)}, weights))  # type: ignore[arg-type]


def test_work_is_what_a_pencil_gives() -> None:
    conv, relu, flat = net().profile()
    assert conv.flops == 2 * (4 * 4 * 6) * (2 * 3 * 3)
    assert conv.bytes == 4 * (2 * 4 * 6 + 4 * 2 * 3 * 3 + 4 + 4 * 4 * 6)
    assert conv.intensity == conv.flops / conv.bytes
    assert (relu.flops, relu.bytes) == (4 * 4 * 6, 4 * 2 * 4 * 4 * 6)
    assert (flat.flops, flat.bytes, flat.intensity) == (0, 0, 0)  # the same memory
    assert [row.shape for row in (conv, relu, flat)] == [(1, 4, 4, 6), (1, 4, 4, 6), (1, 96)]


def test_halves_move_half_the_bytes() -> None:
    for single, half in zip(net().profile(), net().profile(dtype="float16"), strict=True):
        assert (half.flops, 2 * half.bytes) == (single.flops, single.bytes)
        assert half.dtype == "float16"


def test_the_roof_is_the_slower_of_arithmetic_and_memory() -> None:
    row = Row("n", "Conv", ("n",), (1,), "float32", 2000.0, 100)
    assert row.least(ROUND) == pytest.approx(2000 / 100e9)
    assert row.bound(ROUND) == "arithmetic"
    slow = replace(row, bytes=1000)
    assert slow.least(ROUND) == pytest.approx(1000 / 10e9)
    assert slow.bound(ROUND) == "memory"
    assert slow.timed(2e-7).share(ROUND) == pytest.approx(0.5)
    assert slow.share(ROUND) is None
    nothing = replace(row, flops=0.0, bytes=0)
    assert (nothing.least(ROUND), nothing.bound(ROUND)) == (0, "nothing")


def test_what_is_known_beforehand_is_no_work() -> None:
    nodes = [
        ("Shape", ["x"], ["s"], {}),
        ("Reshape", ["x", "s"], ["r"], {}),
        ("Relu", ["r"], ["y"], {}),
    ]
    made = nn.import_onnx(model(nodes, {"x": ("n", 8)}))  # type: ignore[arg-type]
    shape, reshape, relu = made.profile((3, 8))
    assert (shape.flops, shape.bytes, reshape.bytes) == (0, 0, 0)
    assert relu.bytes == 2 * 4 * 3 * 8


def test_fusion_keeps_the_operations_of_convolutions_and_moves_fewer_bytes() -> None:
    made = net()
    before, after = made.profile(), made.bind(device="host").rows
    assert sum(r.flops for r in by_operator(after)["Conv"]) == before[0].flops
    assert sum(r.bytes for r in after) < sum(r.bytes for r in before)
    covered = [name for r in after for name in r.covers]
    assert sorted(covered) == sorted(r.name for r in before)


def test_a_bound_network_times_every_step() -> None:
    x = np.ones((1, 2, 4, 6), np.float32)
    bound = net().bind(device="host")
    timed = bound.profile(x, repeats=2)
    assert [replace(row, seconds=None) for row in timed] == list(bound.rows)
    assert all(row.seconds is not None and row.seconds > 0 and row.engine for row in timed)


def test_times_of_single_nodes_find_their_rows_and_layouts_come_last() -> None:
    made = net()
    before = made.profile()
    steps = [
        Row("lay out x", LAYOUT, (), (1,), "float32", 0, 8, "definition", 3.0),
        replace(before[0], seconds=1.0, engine="fast"),
        replace(before[1], seconds=2.0, engine="definition"),
    ]
    conv, relu, flat, layout = matched(before, steps)
    assert (conv.seconds, conv.engine, relu.seconds) == (1.0, "fast", 2.0)
    assert (flat.seconds, flat.engine) == (0.0, "")  # done before any run
    assert (layout.operator, layout.seconds) == (LAYOUT, 3.0)


def test_parameters_are_what_was_trained() -> None:
    assert parameters(net().graph) == (4 * 2 * 3 * 3 + 4, 4 * (4 * 2 * 3 * 3 + 4))


def test_wrong_sizes_and_types_are_named() -> None:
    with pytest.raises(ShapeError, match="x"):
        net().profile((1, 3, 4, 6))
    with pytest.raises(DtypeError, match="dtype='int8'"):
        net().profile(dtype="int8")
