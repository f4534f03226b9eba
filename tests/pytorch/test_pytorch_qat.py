"""Training for int8: what a module gives in evaluation is what the network in int8 gives."""

from __future__ import annotations

import io
import warnings
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("onnx")

from torch import nn  # noqa: E402

import tilewright  # noqa: E402
from tilewright.errors import ArgumentError, DtypeError  # noqa: E402
from tilewright.nn.net import Network  # noqa: E402
from tilewright.nn.passes.int8 import with_int8  # noqa: E402
from tilewright.pytorch import qat  # noqa: E402


def upscaler() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(),
        nn.Conv2d(16, 16, 3, padding=1, stride=2, bias=False), nn.ReLU6(),
        nn.Conv2d(16, 16, 3, padding=1, groups=16), nn.ReLU(),
        nn.Conv2d(16, 4, 1), nn.PixelShuffle(2),
    )  # fmt: skip


def classifier() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(1, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 6 * 6, 12), nn.ReLU(),
        nn.Linear(12, 3),
    )  # fmt: skip


def exported(module: nn.Module, x: torch.Tensor) -> Network:
    file = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(module.eval(), (x,), file, dynamo=False, opset_version=17)
    return tilewright.nn.import_onnx(file.getvalue())


def trained(module: nn.Module, steps: int = 8) -> list[float]:
    """Losses of a few steps towards the mean of each picture."""
    optimiser = torch.optim.Adam(module.parameters(), lr=3e-3)
    module.train()
    losses = []
    for _ in range(steps):
        x = torch.rand(8, 1, 8, 8)
        loss = ((module(x) - x.mean()) ** 2).mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(float(loss))
    return losses


@pytest.mark.parametrize("make", [upscaler, classifier])
def test_a_trained_module_and_the_network_in_int8_give_the_same_bits(make: object) -> None:
    module = qat.prepare(make())  # type: ignore[operator]
    losses = trained(module)
    assert losses[-1] < losses[0]
    x = torch.rand(2, 1, 8, 8)
    with torch.no_grad():
        wanted = module.eval()(x).numpy()
    net = exported(qat.restored(module), x)
    small = tilewright.nn.quantise(net, ranges=qat.ranges(module))
    np.testing.assert_array_equal(Network(with_int8(small.graph)).run(x.numpy()), wanted)
    np.testing.assert_array_equal(small.bind(device="host")(x.numpy()), wanted)


def test_parameters_stay_the_same_objects_and_names() -> None:
    module = upscaler()
    before = dict(module.named_parameters())
    prepared = qat.prepare(module)
    after = dict(prepared.named_parameters())
    assert {name: id(p) for name, p in after.items()} == {n: id(p) for n, p in before.items()}
    assert isinstance(prepared[0], qat.QuantConv2d)
    assert type(qat.restored(prepared)[0]) is nn.Conv2d


def test_training_and_evaluation_differ_by_the_rounding_of_float32_sums_alone() -> None:
    module = qat.prepare(nn.Conv2d(4, 5, 3))
    x = torch.randn(2, 4, 7, 7)
    with torch.no_grad():
        first = module.train()(x)
        second = module.eval()(x)
    np.testing.assert_allclose(first.numpy(), second.numpy(), atol=1e-5)


def test_in_training_only_whole_numbers_below_256_are_multiplied(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """So that TF32, whose eleven bits hold them, gives the products of float32."""
    seen: list[torch.Tensor] = []
    conv2d = nn.functional.conv2d

    def watched(x: torch.Tensor, weight: torch.Tensor, *rest: object) -> torch.Tensor:
        seen.extend((x.detach(), weight.detach()))
        return conv2d(x, weight, *rest)

    module = qat.prepare(nn.Conv2d(3, 4, 3)).train()
    monkeypatch.setattr(qat.functional, "conv2d", watched)
    module(torch.randn(1, 3, 6, 6))
    assert len(seen) == 2
    for values in seen:
        torch.testing.assert_close(values, values.round(), atol=1e-4, rtol=0)
        assert values.abs().max() <= 255


def test_gradients_pass_straight_through_but_not_from_beyond_the_range() -> None:
    module = qat.prepare(nn.Linear(3, 1, bias=False)).train()
    module(torch.tensor([[0.0, 1.0, 2.0]]))
    module.batches.fill_(10)
    x = torch.tensor([[0.5, 1.0, 40.0]], requires_grad=True)
    module(x).sum().backward()
    assert x.grad is not None
    assert x.grad[0, 0] != 0
    assert x.grad[0, 2] == 0


def test_ranges_that_are_given_stay_and_the_others_follow_the_batches() -> None:
    module = qat.prepare(upscaler(), {"0.weight": (0.0, 1.0), "2.weight": (0.5, 2.0)})
    trained(module)
    found = qat.ranges(module)
    assert found["0.weight"] == (0.0, 1.0)
    assert found["2.weight"] == (0.0, 2.0)  # 0 is always among them
    assert found["4.weight"] not in ((0.0, 0.0), (0.0, 1.0))
    x = torch.rand(2, 1, 8, 8)
    with torch.no_grad():
        wanted = module.eval()(x).numpy()
    small = tilewright.nn.quantise(exported(qat.restored(module), x), ranges=found)
    np.testing.assert_array_equal(small.bind(device="host")(x.numpy()), wanted)


def test_ranges_of_no_layer_and_those_that_are_none_are_refused() -> None:
    with pytest.raises(ArgumentError, match=r"no layer has weights '1.weight'; accepted are '0.we"):
        qat.prepare(upscaler(), {"1.weight": (0.0, 1.0)})
    for ends in ((1.0, 0.0), (0.0, float("inf")), (float("nan"), 1.0)):
        with pytest.raises(ArgumentError, match=r"ranges\['0.weight'\]=.* finite, low <= high"):
            qat.prepare(upscaler(), {"0.weight": ends})


def test_what_cannot_be_trained_so_is_named() -> None:
    value: Any = 3
    with pytest.raises(ArgumentError, match="module=3: accepted are modules of torch"):
        qat.prepare(value)
    with pytest.raises(ArgumentError, match="padding_mode='reflect'; accepted is 'zeros'"):
        qat.prepare(nn.Sequential(nn.Conv2d(1, 1, 3, padding_mode="reflect")))
    with pytest.raises(ArgumentError, match="no batch of finite numbers went through '0' in"):
        qat.ranges(qat.prepare(upscaler()))


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
def test_a_batch_that_is_not_finite_moves_no_range(bad: float) -> None:
    module, twin = qat.prepare(upscaler()).train(), qat.prepare(upscaler()).train()
    good = torch.rand(3, 1, 8, 8)
    spoilt = good.clone()
    spoilt[1, 0, 2, 3] = bad
    module(spoilt)  # the first, too
    with pytest.raises(ArgumentError, match="no batch of finite numbers went through '0'"):
        qat.ranges(module)
    for _ in range(2):
        module(good), module(spoilt), twin(good)
    assert qat.ranges(module)["0.weight"] == qat.ranges(twin)["0.weight"]
    assert torch.isfinite(module.eval()(good)).all()


def test_an_empty_batch_moves_no_range() -> None:
    module = qat.prepare(upscaler()).train()
    module(torch.rand(2, 1, 8, 8))
    before = qat.ranges(module)
    assert module(torch.rand(0, 1, 8, 8)).shape == (0, 1, 8, 8)
    assert qat.ranges(module) == before


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_halves_are_trained_by_autocast_and_refused_without_it(dtype: torch.dtype) -> None:
    x = torch.rand(2, 1, 8, 8)
    with pytest.raises(DtypeError, match=r"weight: torch\..*accepted in training is torch.float32"):
        qat.prepare(upscaler().to(dtype)).train()(x.to(dtype))
    module = qat.prepare(upscaler()).train()
    with pytest.raises(DtypeError, match=r"x: torch\..*accepted is torch.float32, or"):
        module(x.to(dtype))
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.isfinite(module(x)).all()


def test_a_layer_at_two_places_stays_one() -> None:
    layer = nn.Conv2d(2, 2, 3, padding=1)
    module = qat.prepare(nn.Sequential(layer, nn.ReLU(), layer)).train()
    assert module[0] is module[2]
    assert isinstance(module[2], qat.QuantConv2d)
    module(torch.rand(1, 2, 4, 4))
    plain = qat.restored(module)
    assert plain[0] is plain[2]
    assert type(plain[0]) is nn.Conv2d
