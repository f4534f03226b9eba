"""What all engines of convolutions on OpenCL devices share: memory, refusals, prediction."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tests.support import made_up
from tests.support.conv_chains import chain, drawn, reference
from tests.support.conv_opencl import ENGINES, bound, check, takes
from tests.support.own_memory import OwnMemory
from tilewright import Device
from tilewright.backends.opencl import memory, runtime
from tilewright.backends.opencl.conv.direct import Direct
from tilewright.backends.opencl.conv.engines import CONV_ENGINES
from tilewright.engines.choose import choose
from tilewright.engines.conv import ConvOperands, ConvWork
from tilewright.errors import DtypeError, OperandError, ShapeError
from tilewright.facts.ceilings import Bandwidth, Ceilings, Rate

WORK = chain((1, 8, 4), (2, 9, 11), "float32", shuffle=2, adds=True)
WIDE = chain((64, 64), (1, 56, 56), "float32")
NARROW = chain((32, 32), (1, 56, 56), "float32")


def first(work: ConvWork, device: Device) -> str:
    return choose(work, device, CONV_ENGINES).best.engine


@pytest.fixture
def phone(intel: Device, monkeypatch: pytest.MonkeyPatch) -> Device:
    """Shares the host's memory, and keeps copies all the same."""
    own = OwnMemory(runtime.pyopencl())
    monkeypatch.setattr(memory, "pyopencl", lambda: own)
    return replace(intel, features=intel.features - {"svm_system", "svm_fine", "svm_coarse"})


@pytest.mark.parametrize("engine", ENGINES)
def test_an_engine_is_right_where_every_map_copies(engine: str, phone: Device) -> None:
    if takes(WORK, phone, engine):
        check(WORK, phone, engine)
    plain = chain((5, 7), (1, 6, 10), "float32")
    check(plain, phone, engine)


@pytest.mark.parametrize("engine", ENGINES)
def test_arrays_of_the_device_are_taken_as_they_are(engine: str, intel: Device) -> None:
    work = chain((3, 6), (2, 7, 9), "float32")
    x, out, _ = drawn(work)
    operands = ConvOperands(*(tw.asarray(one.numpy(), device=intel) for one in (x, out)))
    bound(work, intel, engine, operands)()
    np.testing.assert_allclose(operands.out, reference(work, x), rtol=1e-5, atol=1e-5)


def test_arrays_of_pyopencl_run_on_their_own_queue(intel: Device) -> None:
    import pyopencl.array as cla

    cl = runtime.pyopencl()
    context = cl.Context([runtime.session(intel).cl_device])
    queue = cl.CommandQueue(context)
    work = chain((3, 6), (2, 7, 9), "float32")
    x, out, _ = drawn(work)
    given, result = (cla.to_device(queue, one.numpy()) for one in (x, out))
    bound(work, intel, "conv_direct", ConvOperands(given, result))()
    np.testing.assert_allclose(result.get(), reference(work, x), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("engine", ENGINES)
def test_pictures_with_gaps_in_memory_are_taken(engine: str, phone: Device) -> None:
    work = chain((3, 6), (1, 7, 9), "float32")
    x, _, _ = drawn(work)
    wide = np.zeros((1, 3, 14, 20), np.float32)
    wide[:, :, ::2, 1:19:2] = x.numpy()
    out = np.full((1, 9, 7, 10), np.nan, np.float32)
    operands = ConvOperands(wide[:, :, ::2, 1:19:2], out[:, 1:7, :, :9])
    bound(work, phone, engine, operands)()
    np.testing.assert_allclose(operands.out, reference(work, x), rtol=1e-5, atol=1e-5)
    assert np.isnan(out[:, 0]).all()
    assert np.isnan(out[..., 9]).all()


@pytest.mark.parametrize(
    ("change", "error", "says"),
    [
        ({"x": np.zeros((2, 1, 9, 12), np.float32)}, ShapeError, "x.shape=.*accepted is"),
        ({"out": np.zeros((2, 1, 18, 22), np.float16)}, DtypeError, "out.dtype='float16'"),
        ({"residuals": ()}, OperandError, "residuals: 0 of them"),
    ],
)
def test_operands_that_do_not_fit_are_named(
    change: dict[str, Any], error: type[Exception], says: str, intel: Device
) -> None:
    x, out, residuals = drawn(WORK)
    fitting = ConvOperands(x.numpy(), out.numpy(), tuple(one.numpy() for one in residuals))
    with pytest.raises(error, match=says):
        bound(WORK, intel, "conv_direct", replace(fitting, **change))
    assert np.isnan(out.numpy()).all()


@pytest.mark.parametrize("one", made_up.DEVICES, ids=lambda one: one.name)
def test_every_made_up_device_has_a_proposal_with_its_rule(one: Device) -> None:
    verdict = choose(WORK, one, CONV_ENGINES)
    assert verdict.best.seconds
    assert all("convs" in proposal.reason for proposal in verdict.proposals)


def test_rules_prefer_images_then_winograd_on_an_adreno_and_direct_on_an_xclipse() -> None:
    assert first(NARROW, made_up.ADRENO_650) == "conv_direct_image"
    assert first(WIDE, made_up.ADRENO_650) == "conv_winograd"
    assert first(NARROW, made_up.MALI_G77) == "conv_direct"
    assert first(WIDE, made_up.H200) in ("conv_gemm", "conv_winograd")
    assert first(WIDE, made_up.TWO_CORES) == "conv_chain"
    verdict = choose(WIDE, made_up.XCLIPSE_960, CONV_ENGINES)
    assert verdict.best.engine == "conv_direct"
    assert "Xclipse 960" in verdict.best.reason


def test_measured_ceilings_replace_typical_ones() -> None:
    rates = (Rate("float32", "fma", 4, 8, 1e12),)
    ceilings = Ceilings("key", "date", rates, (Bandwidth("read", 1 << 30, 1e10),))
    measured = replace(made_up.MALI_G77, ceilings=ceilings)
    typical = Direct().propose(WIDE, made_up.MALI_G77)
    found = Direct().propose(WIDE, measured)
    assert "of the measured peak" in found.reason
    assert "typical" in typical.reason
    assert found.seconds != typical.seconds


def test_what_cannot_be_done_is_refused_before_memory_is_taken() -> None:
    small = replace(made_up.MALI_G77, max_allocation=1 << 20)
    verdict = choose(chain((64, 64, 64), (1, 512, 512), "float32"), small, CONV_ENGINES)
    assert verdict.proposals == ()
    assert "bytes at once" in verdict.reasons
    assert not takes(replace(WIDE, dtype="bfloat16"), made_up.MALI_G77, "conv_direct")
    host = replace(made_up.MALI_G77, backend="host")
    assert not takes(WIDE, host, "conv_direct")
