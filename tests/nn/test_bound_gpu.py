"""Bound networks on a GPU give what the definitions give on the host, in every type and layout."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.support.nets import picture, plain_net, residual_blocks, upscaler

torch = pytest.importorskip("torch")
pytest.importorskip("array_api_compat")
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU that torch reaches"),
]
ERRORS = {"float32": 2e-5, "float16": 4e-3, "bfloat16": 3e-2}


def error(made: Any, wanted: Any) -> float:
    numbers = made.float().cpu().numpy() if isinstance(made, torch.Tensor) else made
    return float(np.abs(numbers.astype(np.float32) - wanted).max() / np.abs(wanted).max())


@pytest.mark.parametrize("dtype", ERRORS)
@pytest.mark.parametrize("width", [8, 32, 64])
def test_chains(dtype: str, width: int) -> None:
    net = plain_net(*upscaler(width, 4))
    x = picture(1, 1, 61, 83)
    wanted = net.run(x)
    bound = net.bind(x.shape, "cuda", dtype)
    for given in (torch.from_numpy(x).cuda().to(getattr(torch, dtype)), torch.from_numpy(x).cuda()):
        made = bound(given)
        assert made.is_cuda
        assert made.dtype == getattr(torch, dtype)
        assert error(made, wanted) < ERRORS[dtype], bound.explain()
    assert isinstance(bound(x), np.ndarray)
    assert error(bound(x), wanted) < ERRORS[dtype]


@pytest.mark.parametrize("dtype", ERRORS)
def test_residuals(dtype: str) -> None:
    net = plain_net(*residual_blocks())
    x = picture(2, 3, 30, 41)
    bound = net.bind(x.shape, "cuda", dtype)
    assert error(bound(torch.from_numpy(x).cuda()), net.run(x)) < ERRORS[dtype], bound.explain()


def test_a_cuda_graph_captures_a_run() -> None:
    net = plain_net(*upscaler(32, 4))
    x = torch.from_numpy(picture(1, 1, 61, 83)).cuda().half()
    bound = net.bind(x.shape, "cuda", "float16")
    wanted = bound(x)
    out = torch.zeros_like(wanted)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        bound(x, out=out)
    graph.replay()
    torch.cuda.synchronize()
    assert torch.equal(out, wanted)


def test_what_is_recorded_gives_what_was_launched() -> None:
    nodes, inputs, weights = upscaler(32, 4, shuffle=True)
    net = plain_net(nodes, inputs, weights)
    bound = net.bind((1, 1, 61, 83), "cuda", "float16")
    pictures = [torch.from_numpy(picture(1, 1, 61, 83) * k).cuda().half() for k in range(6)]
    wanted = [net.run(x.float().cpu().numpy()) for x in pictures]
    for x, right in list(zip(pictures, wanted, strict=True))[1:]:
        assert error(bound(x), right) < ERRORS["float16"]
    assert bound._recorded.is_recorded
    out = torch.zeros((1, 1, 122, 166), dtype=torch.float16, device="cuda")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        bound(pictures[3], out=out)
    graph.replay()
    assert error(out, wanted[3]) < ERRORS["float16"]


def test_streams_take_turns() -> None:
    net = plain_net(*upscaler(32, 4))
    pictures = [torch.from_numpy(picture(1, 1, 300, 400) * k).cuda() for k in (1, -2, 3)]
    bound = net.bind((1, 1, 300, 400), "cuda", "float16")
    wanted = [bound(x).clone() for x in pictures]
    torch.cuda.synchronize()
    streams = [torch.cuda.Stream() for _ in pictures]
    for _ in range(20):
        made = []
        for x, stream in zip(pictures, streams, strict=True):
            with torch.cuda.stream(stream):
                made.append(bound(x))
        torch.cuda.synchronize()
        assert all(torch.equal(a, b) for a, b in zip(made, wanted, strict=True))
