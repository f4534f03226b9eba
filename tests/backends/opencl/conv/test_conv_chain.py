"""conv_chain is right: any channels, sizes and cuts into strips and parts, F(4, 3), F(2, 3)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.support import made_up
from tests.support.conv_chains import RELU, chain, drawn, layer, reference
from tests.support.conv_opencl import bound, check, run
from tilewright import Device
from tilewright.backends.opencl.conv import chain_plan
from tilewright.backends.opencl.conv.chain import Chain
from tilewright.engines.conv import Activation, ConvOperands, ConvWork

ENGINE = Chain.name


@pytest.fixture
def device(device: Device) -> Device:
    """One that the kernel is for: a work-item runs a whole strip."""
    if device.kind != "cpu":
        pytest.skip("conv_chain is for processors")
    return device


@pytest.mark.parametrize(
    ("channels", "size"),
    [
        ((1, 32, 32, 4), (1, 16, 40)),
        ((1, 32, 32, 4), (2, 13, 37)),
        ((3, 28, 28, 5), (1, 9, 21)),
        ((28, 28), (1, 7, 9)),
        ((1, 16, 16, 16, 4), (1, 5, 130)),
        ((5, 33, 1), (1, 6, 15)),
        ((64, 128, 17), (1, 4, 6)),
    ],
    ids=str,
)
@pytest.mark.parametrize("exact", [False, True])
def test_any_channels_are_right(
    channels: tuple[int, ...], size: tuple[int, int, int], exact: bool, device: Device
) -> None:
    check(replace(chain(channels, size, "float32"), exact=exact), device, ENGINE, tolerance=1e-5)


@pytest.mark.parametrize("width", range(1, 10))
@pytest.mark.parametrize("height", [1, 4, 5])
def test_small_pictures_are_right(width: int, height: int, device: Device) -> None:
    check(chain((1, 32, 32, 4), (1, height, width), "float32"), device, ENGINE, tolerance=1e-5)


@pytest.mark.parametrize(("strip", "part"), [(8, 2), (12, 1), (20, 3), (64, 4)])
@pytest.mark.parametrize("exact", [False, True])
def test_every_cut_is_right(
    strip: int, part: int, exact: bool, intel: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = chain_plan._cut
    monkeypatch.setattr(
        chain_plan, "_cut", lambda work, units, tile, *_: made(work, 1, tile, strip, part)
    )
    work = replace(chain((1, 32, 32, 32, 4), (3, 27, 50), "float32", shuffle=2), exact=exact)
    assert Chain().propose(work, intel).decisions[1].strip == strip
    check(work, intel, ENGINE, tolerance=1e-5)


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("result", ["channels_first", "channels_last"])
def test_shuffles_types_and_layouts_are_right(dtype: str, result: Any, device: Device) -> None:
    work = chain((1, 32, 32, 4), (2, 10, 18), dtype, shuffle=2)
    tolerance = 1e-5 if dtype == "float32" else 2e-3
    check(replace(work, source=result, result=result), device, ENGINE, tolerance=tolerance)


def test_layers_may_differ_in_their_activations(intel: Device) -> None:
    rng = np.random.default_rng(2)
    slopes = rng.uniform(-1, 1, 20).astype(np.float32)
    hows = (Activation("prelu", slopes=slopes), Activation("clip", -0.5, 0.5), Activation("tanh"))
    sides = ((1, 20), (20, 20), (20, 4))
    layers = (layer(rng, a, b, activation=how) for (a, b), how in zip(sides, hows, strict=True))
    check(ConvWork(tuple(layers), 1, 9, 14), intel, ENGINE, tolerance=1e-5)


@pytest.mark.parametrize("channels", [(1, 32, 32, 4), (28, 20, 32)], ids=str)
@pytest.mark.parametrize("odd", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_stays_in_its_receptive_field(
    odd: float, channels: tuple[int, ...], device: Device
) -> None:
    import torch

    work = chain(channels, (1, 12, 21), "float32", activation=RELU)
    x, _, _ = drawn(work)
    x[0, 0, 5, 9] = odd
    found, right = run(work, device, ENGINE, x=x)
    exact = reference(work, x, dtype=torch.float32).numpy()
    near = np.zeros((12, 21), bool)
    reach = len(work.layers)
    near[5 - reach : 6 + reach, 9 - reach : 10 + reach] = True
    np.testing.assert_array_equal(np.isnan(found[..., near]), np.isnan(exact[..., near]))
    np.testing.assert_allclose(found[..., ~near], right[..., ~near], rtol=0, atol=1e-4)


def test_what_the_call_before_left_behind_changes_no_bit(intel: Device) -> None:
    import torch

    work = chain((1, 32, 32, 4), (1, 14, 30), "float32")
    before, _ = run(work, intel, ENGINE)
    x, out, _ = drawn(work)
    nans = torch.full_like(x, float("nan"))
    bound(work, intel, ENGINE, ConvOperands(nans.numpy(), out.numpy()))()
    after, _ = run(work, intel, ENGINE)
    assert before.tobytes() == after.tobytes()


def test_the_error_stays_within_what_the_house_allows(intel: Device) -> None:
    import torch

    for exact, times in ((False, 4.0), (True, 2.0)):
        work = replace(chain((1, 32, 32, 32, 32, 32, 4), (1, 32, 64), "float32"), exact=exact)
        found, right = run(work, intel, ENGINE)
        x, _, _ = drawn(work)
        plain = reference(work, x, dtype=torch.float32).numpy()
        assert np.linalg.norm(found - right) <= times * np.linalg.norm(plain - right)


@pytest.mark.parametrize(
    ("facts", "why"),
    [
        ({"kernel": (1, 1)}, "not 3x3"),
        ({"strides": (2, 2)}, "not 3x3 of stride"),
        ({"pads": (0, 0, 0, 0)}, "other pads"),
        ({"groups": 4}, "groups"),
        ({"adds": True}, "residual"),
    ],
)
def test_other_layers_are_refused(facts: dict[str, Any], why: str) -> None:
    one = layer(np.random.default_rng(0), 8, 8, **facts)
    assert why in str(Chain().why_not(ConvWork((one,), 1, 9, 9), made_up.TWO_CORES))


def test_gpus_and_wider_layers_are_refused() -> None:
    work = chain((8, 8), (1, 9, 9), "float32")
    assert "for CPUs" in str(Chain().why_not(work, made_up.ADRENO_650))
    wide = chain((8, 144), (1, 9, 9), "float32")
    assert "more than 128" in str(Chain().why_not(wide, made_up.TWO_CORES))


def test_a_cut_keeps_every_unit_busy_and_its_memory_small() -> None:
    for units in (1, 2, 16, 64):
        device = replace(made_up.TWO_CORES, compute_units=units)
        cut = chain_plan.cut(chain((1, 32, 32, 4), (1, 360, 640), "float32"), device)
        assert cut.items >= units
        assert cut.strips * cut.strip >= 640
        assert cut.parts * cut.part * cut.tile >= 360
    many = chain((1, 32, 4), (500, 360, 640), "float32")
    assert Chain().propose(many, made_up.TWO_CORES).scratch < 1 << 26
