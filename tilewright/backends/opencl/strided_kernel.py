"""StridedKernel: kernels that read A and B where they lie, through any strides, in one launch.

`naive` and `local` share argument list and lowering; they differ in tiles and compile-time options.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from tilewright.backends.opencl.lowering import (
    computed,
    grid,
    itemsize,
    multiply_add,
    round_up,
    tail,
    types,
    whole,
    why_unsupported,
)
from tilewright.backends.opencl.rules import preferences
from tilewright.batch import Problem
from tilewright.device import Device
from tilewright.kernel import Config, Int, Launch, Long, Operand, Resources, Step


def _no_options(problem: Problem, config: Config) -> tuple[tuple[str, int], ...]:
    return ()


@dataclass(frozen=True, slots=True)
class StridedKernel:
    """`options` gives the -D options besides types and multiply-add; `ladder` the configurations.

    A configuration without tiles computes one element a work-item.
    """

    name: str
    entry: str
    ladder: tuple[Config, ...]
    smallest_k: int = 1
    options: Callable[[Problem, Config], tuple[tuple[str, int], ...]] = _no_options

    def supports(self, problem: Problem, device: Device) -> bool | str:
        """True, or the reason why not."""
        if problem.k < self.smallest_k:
            return f"k == {problem.k} leaves nothing to block"
        return why_unsupported(problem, device) or True

    def configs(self, device: Device) -> tuple[Config, ...]:
        """The ladder with the device's own multiply-add, then with the others for the tuner."""
        prior = preferences(device)
        ways = (prior.multiply_add, *({0, 1, 2} - {prior.multiply_add}))
        return tuple(
            replace(config, multiply_add=way, require_group=prior.require_group)
            for way in ways
            for config in self.ladder
        )

    def resources(self, config: Config, problem: Problem) -> Resources:
        """One block of A and one of B, each row padded against bank conflicts."""
        if not config.tile_m:
            return Resources(work_items=1)
        work_items = config.tile_m // config.micro_m * (config.tile_n // config.micro_n)
        elements = config.tile_k * (config.tile_m + config.tile_n + 8)
        return Resources(work_items, elements * max(4, itemsize(problem)))

    def lower(self, problem: Problem, device: Device, config: Config) -> Step:
        """One launch."""
        size, group = self._sizes(problem, device, config)
        launch = Launch(
            program=self.name,
            entry=self.entry,
            defines=(*types(problem), *multiply_add(config), *self.options(problem, config)),
            global_size=size,
            local_size=group,
            arguments=(
                Int(problem.m),
                Int(problem.n),
                Int(problem.k),
                Operand("a"),
                Long(problem.a_row),
                Long(problem.a_col),
                Operand("b"),
                Long(problem.b_row),
                Long(problem.b_col),
                *tail(problem, whole(problem)),
            ),
        )
        tiles = (max(1, config.tile_m), max(1, config.tile_n), max(1, config.tile_k))
        return Step(self.name, config, (launch,), computed_flops=computed(problem, *tiles))

    def _sizes(
        self, problem: Problem, device: Device, config: Config
    ) -> tuple[tuple[int, int], tuple[int, int]]:
        if not config.tile_m:
            return grid((problem.n, problem.m), device)
        group = (config.tile_n // config.micro_n, config.tile_m // config.micro_m)
        return (
            round_up(problem.n, config.tile_n) // config.micro_n,
            round_up(problem.m, config.tile_m) // config.micro_m,
        ), group
