"""Which configurations are legal on a device: the one list and the one check.

Planning, tuning and forced kernels all ask here.
"""

from __future__ import annotations

from tilewright.batch import Problem
from tilewright.device import Device
from tilewright.kernel import Config, Kernel


def why_illegal(kernel: Kernel, config: Config, problem: Problem, device: Device) -> str | None:
    """None where the device can hold a work-group of this configuration, else the reason."""
    needs = kernel.resources(config, problem)
    if needs.work_items > device.max_work_group:
        return f"{needs.work_items} work-items a group, the device allows {device.max_work_group}"
    if needs.local_bytes > device.local_memory:
        return f"{needs.local_bytes} bytes of local memory, the device has {device.local_memory}"
    return None


def legal_configs(kernel: Kernel, problem: Problem, device: Device) -> tuple[Config, ...]:
    """The kernel's configurations that this device can run, its default first."""
    return tuple(
        config
        for config in kernel.configs(device)
        if why_illegal(kernel, config, problem, device) is None
    )
