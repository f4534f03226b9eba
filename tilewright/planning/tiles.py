"""Which configurations are legal on a device: the one list and the one check.

Planning, tuning and forced kernels all ask here.
"""

from __future__ import annotations

from tilewright.facts.device import Device
from tilewright.facts.kernel import Config, Kernel
from tilewright.facts.limits import why_too_long
from tilewright.facts.problem import Problem


def why_not(kernel: Kernel, config: Config, problem: Problem, device: Device) -> str | None:
    """None where the device can hold a work-group of this configuration, else the reason."""
    if (too_long := why_too_long(problem.k, device)) is not None:
        return too_long
    needs = kernel.resources(config, problem)
    if needs.why_not is not None:
        return needs.why_not
    sides = zip((config.group_n, config.group_m), device.max_work_item_sizes, strict=False)
    if any(side > limit for side, limit in sides):
        return f"a group of {config.group_n} x {config.group_m} work-items is beyond the device"
    if needs.work_items > device.max_work_group:
        return f"{needs.work_items} work-items a group, the device allows {device.max_work_group}"
    if needs.local_bytes > device.local_memory:
        return f"{needs.local_bytes} bytes of local memory, the device has {device.local_memory}"
    return None


def legal_configs(kernel: Kernel, problem: Problem, device: Device) -> tuple[Config, ...]:
    """The kernel's configurations that this device can run, the one to prefer first.

    Before anything is tuned, the order is that of `waves`; equals keep the kernel's own order.
    """
    legal = (
        config
        for config in kernel.configs(problem, device)
        if why_not(kernel, config, problem, device) is None
    )
    return tuple(sorted(legal, key=lambda config: waves(config, problem, device)))


def waves(config: Config, problem: Problem, device: Device) -> float:
    """Time of a configuration in arbitrary units: rounds of tiles over the compute units.

    A large tile has the better rate, but one round of 32 of them on 132 compute units leaves 100
    idle; and every round costs as much as a full one. Zero where a kernel has no tiles, and on
    CPUs, where `panel` evens its blocks out itself.
    """
    if not config.tile_m or device.kind == "cpu":
        return 0.0
    tiles = -(-problem.m // config.tile_m) * -(-problem.n // config.tile_n)
    rounds = -(-tiles // device.compute_units)
    return rounds * config.tile_m * config.tile_n / config.rate
