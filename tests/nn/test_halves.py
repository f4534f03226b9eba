"""Networks of halves where engines have none: float32 between the layers, outputs rounded once."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support.nets import model, picture, upscaler
from tilewright import Device, nn
from tilewright.arrays.array import NDArray
from tilewright.errors import DtypeError
from tilewright.nn.evaluate import rounded
from tilewright.nn.net import Network
from tilewright.nn.passes.halves import halved
from tilewright.nn.passes.retyped import retyped

pytest.importorskip("onnx")

X = picture(1, 1, 44, 53)
HELD = {"float16": "float16", "bfloat16": "float32"}


def net_of(dtype: str) -> Network:
    """A file whose real values are all of a type."""
    return Network(retyped(nn.import_onnx(model(*upscaler())).graph, dtype))


def off(made: NDArray, wanted: NDArray) -> float:
    return float(np.sqrt(((made.astype(np.float64) - wanted) ** 2).mean()))


@pytest.mark.parametrize("dtype", HELD)
def test_results_are_nearer_than_the_definitions(dtype: str) -> None:
    """Both beside the float32 network of the same rounded weights and picture."""
    net, x = net_of(dtype), rounded(X, dtype)
    wanted = Network(retyped(net.graph, "float32")).run(x.astype(np.float32))
    bound = net.bind(X.shape, "host")
    assert all(step.engine != "definition" for step in bound.steps), bound.explain()
    made = bound(x)
    assert str(made.dtype) == HELD[dtype]
    assert 0 < off(made, wanted) < off(net.run(x), wanted)
    np.testing.assert_array_equal(made, rounded(made, dtype))
    np.testing.assert_array_equal(bound(X), made)
    np.testing.assert_array_equal(bound(x, out=np.empty_like(made)), made)


@pytest.mark.parametrize("dtype", HELD)
def test_torchs_tensors_come_back_in_that_type(dtype: str) -> None:
    torch = pytest.importorskip("torch")
    bound = net_of(dtype).bind(X.shape, "host")
    kind = getattr(torch, dtype)
    made = bound(torch.from_numpy(X).to(kind))
    assert made.dtype == kind
    np.testing.assert_array_equal(made.float().numpy(), bound(X).astype(np.float32))
    out = torch.empty_like(made)
    assert bound(torch.from_numpy(X), out=out) is out
    assert torch.equal(out, made)


def test_planned_arrays_are_float32() -> None:
    bound = net_of("float16").bind(X.shape, "host")
    made, x, y = bound(X), bound.inputs["x"], bound.results["y"]
    x[...] = X.astype(np.float16)
    assert bound(x, out=y) is y
    np.testing.assert_array_equal(y.astype(np.float16), made)
    with pytest.raises(DtypeError, match=r"out.dtype=float32: accepted is float16"):
        bound(X, out=np.empty_like(y))


def test_a_type_is_asked_for_whatever_the_file_has() -> None:
    net = net_of("float16")
    wide = net.bind(X.shape, "host", "float32")
    made = wide(X.astype(np.float16))
    assert made.dtype == np.float32
    np.testing.assert_array_equal(made, wide(X.astype(np.float16).astype(np.float32)))
    assert net.bind(X.shape, "host")(X).dtype == np.float16
    short = net_of("bfloat16").bind(X.shape, "host", "float16")
    assert short(X).dtype == np.float16
    assert net.profile(X.shape)[0].dtype == "float16"
    assert net.profile(X.shape, "float32")[0].dtype == "float32"


def test_layers_of_halves_among_others_are_one_chain() -> None:
    net = nn.import_onnx(model(*upscaler()))
    some = Network(halved(net.graph, [net.graph.nodes[2].name]))
    bound = some.bind(X.shape, "host")
    assert bound(X).dtype == np.float32
    assert len(bound.steps) == len(net.bind(X.shape, "host").steps)
    np.testing.assert_allclose(bound(X), some.run(X), rtol=0, atol=4e-3 * np.abs(bound(X)).max())


def test_explain_says_where_it_is_rounded() -> None:
    told = net_of("bfloat16").explain(X.shape, "host")
    assert "x [1, 1, 44, 53] bfloat16" in told
    assert "no engine has bfloat16 here" in told
    assert "no engine has" not in net_of("float32").explain(X.shape, "host")


def test_bfloat16_runs_by_engines_of_opencl_too(opencl_device: Device) -> None:
    net = net_of("bfloat16")
    bound = net.bind(X.shape, opencl_device.id)
    assert any(step.engine.startswith("conv_") for step in bound.steps)
    wanted = net.run(X)
    made = bound(X)
    assert off(made, wanted) < 3e-2 * np.abs(wanted).max()
    np.testing.assert_array_equal(made, rounded(made, "bfloat16"))


@pytest.mark.parametrize("dtype", HELD)
def test_float32_widens_a_file_of_halves(dtype: str) -> None:
    net, x = net_of(dtype), rounded(X, dtype)
    bound = net.bind(X.shape, "host", "float32")
    made = bound(x)
    assert made.dtype == np.float32
    wanted = Network(retyped(net.graph, "float32")).run(x.astype(np.float32))
    np.testing.assert_allclose(made, wanted, atol=1e-5)
    assert off(made, wanted) < off(net.bind(X.shape, "host")(x), wanted), "nothing is rounded"
    assert "no engine has" not in bound.explain()


def test_layers_of_halves_between_others_are_told_of_and_cut_no_chain_on_the_host() -> None:
    net = nn.import_onnx(model(*upscaler()))
    names = [node.name for node in net.graph.nodes if node.operator == "Conv"]
    mixed = Network(halved(net.graph, names[1:2]))
    assert "no engine has float16 here" in mixed.explain(X.shape, "host")
    engines = [step.engine for step in mixed.bind(X.shape, "host").steps]
    assert engines == [step.engine for step in net.bind(X.shape, "host").steps]


def test_a_file_of_halves_is_quantised_and_given_types_as_float32() -> None:
    whole, halves = net_of("float32"), net_of("float16")
    samples = [X[..., :12, :12], X[..., 20:32, 20:32]]
    for given in (samples, [one.astype(np.float16) for one in samples]):
        small = nn.quantise(halves, given)
        assert {n.operator for n in small.graph.nodes} >= {"QuantizeLinear", "DequantizeLinear"}
        assert nn.damage(halves, small, given).psnr > 30
        found = nn.choose_types(halves, given, loss=0.1, shape=X.shape, device="host")
        wanted = nn.choose_types(whole, samples, loss=0.1, shape=X.shape, device="host")
        assert [layer.name for layer in found.layers] == [layer.name for layer in wanted.layers]
        assert found.seconds[0] > 0
