"""Bound networks on a GPU give what the definitions give on the host, in every type and layout."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.support.nets import attention, picture, plain_net, residual_blocks, upscaler
from tilewright.nn import quantise

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


@pytest.mark.parametrize("dtype", ERRORS)
@pytest.mark.parametrize("sizes", [(2, 19, 24, 3), (1, 197, 192, 3)])
def test_products(dtype: str, sizes: tuple[int, int, int, int]) -> None:
    net = plain_net(*attention(*sizes))
    x = picture(*sizes[:3])
    bound, given = net.bind(x.shape, "cuda", dtype), torch.from_numpy(x).cuda()
    for _ in range(4):  # the third run is a recorded graph's
        assert error(bound(given), net.run(x)) < ERRORS[dtype], bound.explain()
    engines = [step.engine for step in bound.steps if step.node.operator == "Product"]
    assert len(engines) == 7
    assert "definition" not in engines


def test_every_engine_of_products_ends_them_alike() -> None:
    from tilewright.calls.network_gpu import product_engines
    from tilewright.engines.choose import choose
    from tilewright.engines.product import Matrices, ProductOperands, ProductWork
    from tilewright.inputs.devices import gpu

    device, (m, n, k) = gpu(0), (33, 48, 64)
    a, b, bias, added = (
        torch.from_numpy(picture(*s)).cuda() for s in ((3, m, k), (k, n), (n,), (m, n))
    )
    for dtype, bound in ERRORS.items():
        kind = getattr(torch, dtype)
        given = [one.to(kind) for one in (a, b, bias, added)]
        x, y, z, c = (one.double() for one in given)
        out = torch.full((3, m, n), float("nan"), dtype=kind, device="cuda")
        steps = Matrices((3, k, n), (0, n, 1))
        laid = Matrices((3, m, k), (m * k, k, 1)), steps, Matrices((3, m, n), (m * n, n, 1))
        for beta, activation in ((0.0, "relu"), (0.5, "gelu"), (0.0, "none")):
            work = ProductWork(*laid, dtype, True, 2.0, beta, activation)
            wanted = 2 * (x @ y) + beta * c + z
            wanted = {"relu": torch.relu, "gelu": torch.nn.functional.gelu}.get(
                activation, lambda v: v
            )(wanted)
            for proposal in choose(work, device, product_engines()).proposals:
                engine = next(e for e in product_engines() if e.name == proposal.engine)
                operands = ProductOperands(
                    given[0], given[1].expand(3, k, n), out, given[2], given[3] if beta else None
                )
                launch = engine.bind(proposal, operands)
                out.fill_(float("nan"))
                launch()
                assert float((out.double() - wanted).abs().max() / wanted.abs().max()) < bound, (
                    engine.name
                )


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


@pytest.mark.parametrize("text", [upscaler(16, 3, shuffle=True), residual_blocks()])
def test_whole_numbers_have_the_bits_that_they_have_on_the_host(text: Any) -> None:
    images, channels = next(iter(text[1].values()))[:2]
    x = picture(images, channels, 37, 52)
    net = quantise(plain_net(*text), [x])
    wanted = net.bind(x.shape, "host")(x)
    bound = net.bind(x.shape, "cuda")
    assert "definition" not in {step.engine for step in bound.steps if "Conv" in step.node.operator}
    for _ in range(4):
        np.testing.assert_array_equal(bound(x), wanted, bound.explain())


def test_definitions_are_recorded_too() -> None:
    nodes, inputs, weights = residual_blocks()
    pools: Any = {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1] * 4, "ceil_mode": 0}
    more: Any = [
        ("MaxPool", ["y"], ["p"], {**pools, "storage_order": 0}),
        ("GlobalAveragePool", ["p"], ["g"], {}),
    ]
    net = plain_net([*nodes, *more], inputs, weights, ("g", "p"))
    pictures = [picture(2, 3, 30, 41) * k for k in (1, -2, 3, 0.5, 2)]
    bound = net.bind((2, 3, 30, 41), "cuda")
    given = [torch.from_numpy(x).cuda() for x in pictures]
    made = [bound(x) for x in given]
    assert bound._recorded.is_recorded
    for x, results in zip(pictures, made, strict=True):
        for result, wanted in zip(results, net.run(x), strict=True):
            assert error(result, wanted) < 2e-5


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
