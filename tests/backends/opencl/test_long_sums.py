"""float32 of a long k is as near to float64 as NumPy brings it, by every kernel on every driver.

Constants are the hard case: a sum that grows rounds each of them the same way.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import tilewright
from tests.support.made_up import H200
from tests.support.runs import KERNELS
from tilewright import Device
from tilewright.arrays.views import view
from tilewright.backends.opencl import BACKEND
from tilewright.backends.opencl.grouped import GpuGroups
from tilewright.backends.opencl.runtime import session
from tilewright.calls.grouped_loop_host import operands_of
from tilewright.engines.dense import plan_kernel
from tilewright.errors import KernelError
from tilewright.facts.problem import Problem
from tilewright.facts.scalars import Scalars
from tilewright.inputs.batch import Call
from tilewright.inputs.matrices import matrices
from tilewright.planning.grouped import lay_out


def product(a: np.ndarray, b: np.ndarray, device: Device, kernel: str) -> np.ndarray:
    try:
        return tilewright.matmul(a, b, device=device, kernel=kernel)
    except KernelError as error:
        pytest.skip(str(error))


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("k", [20_000, 2_000_003])
@pytest.mark.parametrize("kernel", KERNELS)
def test_a_long_sum_is_at_most_twice_as_far_off_as_numpys(
    kernel: str, k: int, dtype: str, device: Device
) -> None:
    a, b = np.full((3, k), 0.1, dtype), np.full((k, 5), 0.01, dtype)
    truth = k * float(a[0, 0]) * float(b[0, 0])
    off = [
        float(np.abs(found / truth - 1).max())
        for found in (product(a, b, device, kernel).astype(float), (a @ b).astype(float))
    ]
    assert off[0] <= 2 * off[1] + 1e-6


@pytest.mark.parametrize("k", [1024, 4096, 20_000])
@pytest.mark.parametrize("kernel", KERNELS)
def test_any_sum_is_at_most_twice_as_far_off_as_numpys(kernel: str, k: int, device: Device) -> None:
    rng = np.random.default_rng(k)
    positive = [rng.random(size, dtype=np.float32) for size in ((3, k), (k, 5))]
    normal = [rng.standard_normal(x.shape, dtype=np.float32) for x in positive]
    for a, b in (positive, normal, [np.full_like(x, 0.1) for x in positive]):
        truth = a.astype(float) @ b.astype(float)
        off = [
            float(np.abs(found.astype(float) - truth).max() / np.abs(truth).max())
            for found in (product(a, b, device, kernel), a @ b)
        ]
        assert off[0] <= 2 * off[1] + 1e-6


@pytest.mark.parametrize("kernel", KERNELS)
def test_one_program_serves_every_k_that_is_not_long(kernel: str) -> None:
    """Who measures in slices knows what a first product takes: nothing is built for the second."""
    lowers = next(one for one in BACKEND.kernels(H200) if one.name == kernel)
    programs = set()
    for k in (8, 256, 260, 512, 4096):
        problem = Problem(64, 64, k, k, 1, 64, 1, 64, 1)
        config = lowers.configs(problem, H200)[0]
        multiply = next(
            one for one in lowers.lower(problem, H200, config).launches if one.program == kernel
        )
        programs.add(multiply.defines)
    assert len(programs) == 1


@pytest.mark.parametrize("k", [3, 300, 1024, 20_000])
@pytest.mark.parametrize("kernel", ["coalesced", "image_a", "image_ab", "image_b", "local"])
def test_sums_of_chains_that_wait_in_memory_are_as_near(
    kernel: str, k: int, device: Device
) -> None:
    """As on GPUs where the chain that is under way takes all registers (ASIDE)."""
    rng = np.random.default_rng(k)
    positive = [rng.random(size, dtype=np.float32) for size in ((9, k), (k, 7))]
    for a, b in (positive, [np.full_like(x, 0.1) for x in positive]):
        c = _with_sums_aside(kernel, a, b, device)
        truth = a.astype(float) @ b.astype(float)
        off = [np.abs(found.astype(float) - truth).max() / truth.max() for found in (c, a @ b)]
        assert off[0] <= 2 * off[1] + 1e-6


@pytest.mark.parametrize("k", [1, 16, 255, 256, 257, 272, 513, 4097])
@pytest.mark.parametrize("kernel", ["coalesced", "image_a", "image_ab", "image_b", "local"])
def test_no_step_is_lost_or_counted_twice_where_sums_wait_in_memory(
    kernel: str, k: int, device: Device
) -> None:
    rng = np.random.default_rng(k)
    a, b = (rng.integers(-8, 9, size).astype(np.float32) for size in ((33, k), (k, 5)))
    found = _with_sums_aside(kernel, a, b, device)
    assert np.array_equal(found, a.astype(float) @ b.astype(float))


def _with_sums_aside(kernel: str, a: np.ndarray, b: np.ndarray, device: Device) -> np.ndarray:
    (m, k), n = a.shape, b.shape[1]
    c = np.full((m, n), np.nan, np.float32)
    lowers = next(one for one in BACKEND.kernels(device) if one.name == kernel)
    problem = Problem(m, n, k, k, 1, n, 1, n, 1)
    if (why := lowers.why_not(problem, device)) is not None:
        pytest.skip(why)
    plan = plan_kernel(problem, device, lowers)
    launches = tuple(
        replace(one, defines=(*dict(one.defines, ASIDE=1).items(),))
        if one.program == kernel
        else one
        for one in plan.step.launches
    )
    plan = replace(plan, step=replace(plan.step, launches=launches))
    BACKEND.run(plan, {"a": view(a, "a"), "b": view(b, "b"), "c": view(c, "c")}, Scalars())
    return c


@pytest.mark.parametrize("k", [255, 257, 513, 4097, 8191])
@pytest.mark.parametrize("kernel", KERNELS)
def test_no_step_is_lost_or_counted_twice_where_chains_meet(
    kernel: str, k: int, device: Device
) -> None:
    rng = np.random.default_rng(k)
    a, b = (rng.integers(-8, 9, size).astype(np.float32) for size in ((33, k), (k, 5)))
    assert np.array_equal(product(a, b, device, kernel), a.astype(float) @ b.astype(float))


@pytest.mark.parametrize("cut", [False, True], ids=["whole", "cut"])
def test_a_long_sum_in_a_batch_for_gpus_is_as_near(cut: bool, device: Device) -> None:
    # Devices that do not read the host's memory cut k: of an H200's slots into 3,677 parts.
    if cut:
        device = replace(device, features=device.features - {"svm_system"})
    k = (500_000, 3, 20_000)
    a, b, c = (
        tilewright.RaggedBatch.empty(list(zip(rows, cols, strict=True)))
        for rows, cols in (((3,) * 3, k), (k, (5,) * 3), ((3,) * 3, (5,) * 3))
    )
    for batch, value in ((a, 0.1), (b, 0.01), (c, np.nan)):
        batch.flat[:] = value
    results = c.to(device)
    kernel = GpuGroups(device, "float32")
    ones = np.ones(3)
    left, right, out = (matrices(x, "batch") for x in (a.to(device), b.to(device), results))
    call = Call(left, right, out, None, ones, 0 * ones, "none", list)
    slots = GpuGroups(H200, "float32").slots if cut else kernel.slots
    layout = lay_out((3,) * 3, (5,) * 3, k, kernel.tiles, slots)
    assert (layout.parts.max() > 3000) == (cut or device.kind == "gpu")
    kernel.bind_in(session(device), layout, operands_of(call))()
    truth = np.array(k) * float(a[0][0, 0]) * float(b[0][0, 0])
    found = np.stack(list(results.to("host"))).astype(float)
    assert np.abs(found / truth[:, None, None] - 1).max() <= 3e-6
