"""Winograd's convolutions on a GPU: as right as promised, every edge, NaN where it belongs."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support import conv_chains
from tests.support.winograd_cases import CASES, allowed
from tilewright.backends.cuda.conv import winograd_launch
from tilewright.backends.cuda.conv.winograd import WinogradConv
from tilewright.backends.cuda.conv.winograd_launch import Shape
from tilewright.backends.cuda.machine import driver, nvrtc
from tilewright.engines.conv import ConvOperands, ConvWork

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(driver.missing() is not None, reason=f"no GPU: {driver.missing()}"),
    pytest.mark.skipif(nvrtc.missing() is not None, reason=str(nvrtc.missing())),
]
SHAPES = [Shape(4, 8), Shape(4, 4), Shape(2, 8), Shape(2, 4)]


def on_gpu(work: ConvWork) -> tuple[Any, Any, Any]:
    x, out, residuals = conv_chains.drawn(work)
    return x.cuda(), out.cuda(), residuals[0].cuda() if residuals else None


@pytest.mark.parametrize("shape", SHAPES, ids=lambda one: f"F({one.tile}, 3) by {one.chunk}")
@pytest.mark.parametrize("name", CASES)
def test_a_layer_is_as_right_as_promised_and_every_run_the_same(name: str, shape: Shape) -> None:
    import torch

    work = CASES[name]
    x, out, added = on_gpu(work)
    call, _held = winograd_launch.prepared(work.layers[0], shape, x, out, added, 5)
    stream = torch.cuda.current_stream().cuda_stream
    nvrtc.launcher(call)(stream)
    once = out.clone()
    residuals = () if added is None else (added,)
    exact = conv_chains.reference(work, x, residuals)
    assert conv_chains.error(once, exact) <= allowed(work, shape.tile, residuals, x, exact)
    out.fill_(float("nan"))
    nvrtc.launcher(call)(stream)
    assert torch.equal(out, once)


@pytest.mark.parametrize("exact", [False, True])
def test_what_is_not_finite_stays_in_its_receptive_field(exact: bool) -> None:
    import torch

    work = ConvWork((CASES["odd"].layers[0],), 1, 45, 71, exact=exact, source="channels_last")
    x, out, _ = on_gpu(work)
    x[0, 3, 20, 30], x[0, 1, 44, 70] = float("nan"), float("inf")
    engine, device = WinogradConv(), driver.found()[0]
    engine.bind(engine.propose(work, device), ConvOperands(x, out))()
    right = conv_chains.reference(work, x)
    assert torch.equal(torch.isnan(out), torch.isnan(right))
    assert torch.equal(torch.isinf(out), torch.isinf(right))
    there = torch.isfinite(right)
    assert conv_chains.error(out[there], right[there]) < 1e-6


def test_a_chain_runs_layer_by_layer() -> None:
    work = conv_chains.chain((5, 16, 40, 12), (2, 30, 45), "float32", shuffle=2)
    x, out, _ = on_gpu(work)
    engine, device = WinogradConv(), driver.found()[0]
    engine.bind(engine.propose(work, device), ConvOperands(x, out))()
    assert conv_chains.error(out, conv_chains.reference(work, x)) < 3e-6
