"""Runs one case on one kernel and checks all that must hold of it."""

from __future__ import annotations

import pytest

import tilewright
from tests.support.cases import Case, NDArray, Operands, operands
from tests.support.checks import assert_rest_untouched, assert_right
from tilewright import Device
from tilewright.backends import backends
from tilewright.calls.dense_run_host import Call, prepare
from tilewright.engines.dense import plan_kernel
from tilewright.errors import KernelError
from tilewright.facts.kernel import Config, Kernel
from tilewright.inputs.devices import backend_of, host
from tilewright.planning.tiles import legal_configs

DECLARED = {kernel.name: kernel for kernel in backends()["opencl"].kernels(host())}
KERNELS = tuple(DECLARED)
IMAGES = tuple(name for name in KERNELS if name.startswith("image_"))


def refusal(kernel: str, case: Case, device: Device) -> str | None:
    """What the error says where this kernel does not take the case; None where it must."""
    if case.k < getattr(DECLARED[kernel], "smallest_k", 1):
        return "k == 0"
    if kernel == "dot4" and case.accumulate == "fp16":
        return "half"
    if case.dtype not in device.dtypes:
        return f"no {case.dtype}"
    if kernel in IMAGES and not device.has("images"):
        return "no images"
    if kernel in IMAGES and case.dtype == "float64":
        return "images hold"
    return None


def run(case: Case, device: Device, kernel: str, seed: int = 0) -> NDArray:
    """The product into `out`, checked; or the refusal, checked, and then `out` as it was."""
    given = operands(case, seed)
    kept = given.a.tobytes(), given.b.tobytes()
    call = {"out": given.out, "device": device, "kernel": kernel, **given.options}
    reason = refusal(kernel, case, device)
    if reason is not None and given.out.size:
        with pytest.raises(KernelError, match=reason):
            tilewright.matmul(given.a, given.b, **call)
        assert given.base.tobytes() == given.before.tobytes()
        return given.out
    result = tilewright.matmul(given.a, given.b, **call)
    assert result is given.out
    assert_right(result, given)
    assert_rest_untouched(given)
    assert (given.a.tobytes(), given.b.tobytes()) == kept
    return result


def configurations(device: Device, case: Case) -> list[tuple[Kernel, Config]]:
    """Every legal configuration of every kernel that takes the case."""
    problem = prepared(operands(case), device).plan.problem
    return [
        (kernel, config)
        for kernel in backend_of(device).kernels(device)
        if kernel.why_not(problem, device) is None
        for config in legal_configs(kernel, problem, device)
    ]


def prepared(given: Operands, device: Device) -> Call:
    return prepare(given.a, given.b, out=given.out, device=device, **given.options)


def run_configuration(case: Case, device: Device, kernel: Kernel, config: Config) -> None:
    """The product into `out` with this configuration, checked."""
    given = operands(case)
    call = prepared(given, device)
    plan = plan_kernel(call.plan.problem, device, kernel, config)
    assert bool(config.image_c) == any(image.written for image in plan.step.images)
    backend_of(device).run(plan, call.product.views, call.product.scalars)
    assert_right(given.out, given)
    assert_rest_untouched(given)
