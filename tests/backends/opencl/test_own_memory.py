"""The whole case list on a device whose every map copies: what is not mapped back is missing."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import tilewright
from tests.support.cases import CASES, Case
from tests.support.own_memory import OwnMemory
from tests.support.runs import run
from tilewright import Device
from tilewright.arrays.views import view_host
from tilewright.backends import backends
from tilewright.backends.opencl import memory, runtime
from tilewright.engines.dense import plan_kernel
from tilewright.facts.problem import Problem
from tilewright.facts.scalars import Scalars

OPENCL = backends()["opencl"]


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch) -> OwnMemory:
    made = OwnMemory(runtime.pyopencl())
    monkeypatch.setattr(memory, "pyopencl", lambda: made)
    return made


@pytest.fixture
def phone(intel: Device, module: OwnMemory) -> Device:
    """The host's memory is within reach of it, and it keeps copies all the same."""
    return replace(intel, features=intel.features - {"svm_system", "svm_fine", "svm_coarse"})


@pytest.mark.parametrize("kernel", ["naive", "panel"])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_every_case_is_right_where_a_map_copies(
    case: Case, kernel: str, phone: Device, module: OwnMemory
) -> None:
    out = run(case, phone, kernel)
    refused = kernel == "panel" and case.k == 0
    assert module.maps == (0 if refused or out.size == 0 else 1)


@pytest.mark.parametrize("kernel", ["image_ab", "coalesced", "local", "dot4"])
@pytest.mark.parametrize("out", ["C", "F", "strided", "offset", "reversed"])
def test_other_kernels_are_right_there_too(kernel: str, out: str, phone: Device) -> None:
    run(Case(36, 28, 24, out=out, beta=0.5, bias=True), phone, kernel)


@pytest.mark.parametrize(("kernel", "image_c"), [("image_b", 0), ("image_ab", 0), ("image_ab", 1)])
def test_images_that_cannot_lie_on_buffers_are_copied_there_and_back(
    kernel: str, image_c: int, intel: Device
) -> None:
    device = replace(intel, features=intel.features - {"image_from_buffer"}, image_pitch=1)
    (found,) = (one for one in OPENCL.kernels(device) if one.name == kernel)
    a = np.random.default_rng(3).standard_normal((36, 24)).astype(np.float32)
    b = np.random.default_rng(4).standard_normal((24, 28)).astype(np.float32)
    problem = Problem(36, 28, 24, 24, 1, 28, 1, 28, 1, aligned=True)
    config = replace(found.configs(problem, device)[0], image_c=image_c)
    c = np.full((36, 28), np.nan, np.float32)
    made = plan_kernel(problem, device, found, config)
    operands = {name: view_host(array) for name, array in (("a", a), ("b", b), ("c", c))}
    OPENCL.run(made, operands, Scalars())
    np.testing.assert_allclose(c, a.astype(np.float64) @ b, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("way", ["allocate", "copy", "use"])
def test_arrays_are_written_and_read_through_maps(
    way: str, phone: Device, module: OwnMemory
) -> None:
    values = np.arange(64 * 64, dtype=np.float32).reshape(64, 64)
    a = tilewright.asarray(values.copy(), device=phone, memory=way)
    np.testing.assert_array_equal(np.asarray(a), values)
    with a.map() as view:
        view[0, 0] = 7.0
    identity = tilewright.asarray(np.eye(64, dtype=np.float32), device=phone, memory=way)
    result = tilewright.matmul(identity, a, kernel="naive")
    expected = values.copy()
    expected[0, 0] = 7.0
    np.testing.assert_array_equal(np.asarray(result), expected)
    assert module.maps > 0
