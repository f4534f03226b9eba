"""Whole architectures bound to a GPU give what onnxruntime gives; bits are equal.

Where architectures are drawn from outlines (tests/support/outlines.py) the definitions stand in for
onnxruntime, which has no file to read.
"""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("array_api_compat")

from tests.support.architectures import ARCHITECTURES, exported  # noqa: E402
from tests.support.onebit_networks import NETWORKS, image  # noqa: E402
from tests.support.outlines import network_of  # noqa: E402
from tilewright.nn.net import Network  # noqa: E402
from tilewright.nn.network_of_bits import of_bits  # noqa: E402
from tilewright.nn.passes.retyped import retyped  # noqa: E402

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU that torch reaches"),
]


def network(name: str) -> Network:
    try:
        return network_of(name)
    except ModuleNotFoundError as error:
        pytest.skip(f"{error.name} is not installed")


def drawn(name: str) -> list[Any]:
    rng = np.random.default_rng(1)
    shapes = ARCHITECTURES[name].shapes
    return [torch.from_numpy(rng.standard_normal(s).astype(np.float32)) for s in shapes]


def arrays(made: Any) -> tuple[Any, ...]:
    several = made if isinstance(made, tuple) else (made,)
    return tuple(one.double().cpu() for one in several)


def furthest(made: Any, wanted: tuple[Any, ...]) -> float:
    """The largest difference of any output, over its largest value."""
    pairs = zip(arrays(made), wanted, strict=True)
    return max(float((one - right).abs().max() / right.abs().max()) for one, right in pairs)


def right(name: str, net: Network, inputs: list[Any]) -> tuple[Any, ...]:
    """By onnxruntime on the host; by the definitions where there are outlines alone."""
    if os.environ.get("TILEWRIGHT_OUTLINES"):
        return arrays(net.run(*inputs))
    ort = pytest.importorskip("onnxruntime")
    session = ort.InferenceSession(exported(name), providers=["CPUExecutionProvider"])
    made = session.run(None, {f"x{at}": x.numpy() for at, x in enumerate(inputs)})
    return tuple(torch.from_numpy(one).double() for one in made)


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_an_architecture_bound_to_a_gpu(name: str) -> None:
    """In float32, to 1e-4 of the largest value."""
    net, inputs = network(name), drawn(name)
    bound = net.bind({f"x{at}": x.shape for at, x in enumerate(inputs)}, "cuda")
    made = bound(*(x.cuda() for x in inputs))
    assert furthest(made, right(name, net, inputs)) < 1e-4, bound.explain()


@pytest.mark.parametrize("name", ["ResNet-18", "ShuffleNetV2", "U-Net"])
def test_an_architecture_in_halves(name: str) -> None:
    """As near as torch's nodes one by one."""
    net, inputs = network(name), drawn(name)
    wanted, on_gpu = arrays(net.run(*inputs)), [x.cuda() for x in inputs]
    single = Network(retyped(net.graph, "float16")).run(*(x.half() for x in on_gpu))
    bound = net.bind({f"x{at}": x.shape for at, x in enumerate(inputs)}, "cuda", "float16")
    allowed = 2 * furthest(single, wanted) + 1e-3
    assert furthest(bound(*on_gpu), wanted) < allowed, bound.explain()


@pytest.mark.parametrize("make", NETWORKS)
def test_networks_of_bits_have_the_hosts_bits(make: Any) -> None:
    bits = make()
    net, x = of_bits(bits), image(bits, 3)
    wanted = net.bind(x.shape, "host")(x)
    made = net.bind(x.shape, "cuda")(torch.from_numpy(np.ascontiguousarray(x)).cuda())
    np.testing.assert_array_equal(made.cpu().numpy(), wanted)
