"""StridedKernel: kernels that read A and B where they lie, through any strides, in one launch.

`naive` and `local` share argument list and lowering; they differ in tiles and compile-time options.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from tilewright.backends.opencl.lowering import (
    MULTIPLY_ADD_AXIS,
    arithmetic,
    chains,
    computed,
    grid,
    ints,
    round_up,
    strided,
    sum_bytes,
    tail,
    whole,
    why_unsupported,
)
from tilewright.backends.opencl.rules import preferences
from tilewright.facts.device import Device
from tilewright.facts.kernel import Axis, Config, Defines, Launch, Resources, Step
from tilewright.facts.problem import Problem

# Twice what the largest configuration of the ladder writes out; past it Intel's compiler takes more
# than 20 s.
_MOST_UNROLLED = 4096


def _width(problem: Problem) -> int:
    """The widest load that is legal for a problem, in elements."""
    return 16 // problem.itemsize if _loads_whole_vectors(problem) else 1


def _why_not_cut(config: Config, vector: int) -> str | None:
    """Why blocks.clh cannot cut these tiles, if so."""
    if config.micro_m % 2 or config.micro_n % 2:
        return "micro-tiles have even sides"
    if config.tile_m % config.micro_m or config.tile_n % config.micro_n:
        return "micro-tiles must divide the tile"
    if any(size % vector for size in (config.tile_m, config.tile_n, config.tile_k)):
        return "whole vectors must divide the blocks"
    if config.tile_k * config.micro_m * config.micro_n > _MOST_UNROLLED:
        return "more steps written out than a compiler takes in seconds"
    loads = config.tile_m // config.micro_m * (config.tile_n // config.micro_n) * vector
    if config.tile_m * config.tile_k % loads or config.tile_n * config.tile_k % loads:
        return "work-items must divide the blocks' loads evenly"
    return None


def _loads_whole_vectors(problem: Problem) -> bool:
    """Whether every 16-byte load of A and B along its dense dimension is whole and aligned.

    Of strides (1, 1), a sliding window, the second row begins one element after the first.
    """
    width = 16 // problem.itemsize
    a, b = (problem.a_row, problem.a_col), (problem.b_row, problem.b_col)
    a_extent, b_extent = (problem.m, problem.k)[a[1] == 1], (problem.k, problem.n)[b[1] == 1]
    return (
        problem.aligned
        and a.count(1) == b.count(1) == 1
        and a_extent % width == b_extent % width == 0
        and all(step == 1 or step % width == 0 for step in (*a, *b))
    )


@dataclass(frozen=True, slots=True)
class StridedKernel:
    """`options` gives the -D options besides types and multiply-add; `ladder` the configurations.

    `axes` are what may be tuned besides. Large register tiles spill on CPUs, and their compilers
    take seconds over them: `cpu_ladder` and `cpu_axes`, where there are any.
    A configuration without tiles computes one element a work-item.
    """

    name: str
    entry: str
    ladder: tuple[Config, ...]
    options: Callable[[Problem, Config], Defines]
    axes: tuple[Axis, ...]
    cpu_ladder: tuple[Config, ...] = ()
    cpu_axes: tuple[Axis, ...] = ()
    smallest_k: int = 1

    def why_not(self, problem: Problem, device: Device) -> str | None:
        """Why it cannot take a problem there, if so."""
        if problem.k < self.smallest_k:
            return f"k == {problem.k} leaves nothing to block"
        return why_unsupported(problem, device)

    def configs(self, problem: Problem, device: Device) -> tuple[Config, ...]:
        """The ladder with the device's own multiply-add; wide loads where they are legal."""
        prior, widest = preferences(device), _width(problem)
        ladder = (device.kind == "cpu" and self.cpu_ladder) or self.ladder
        own = {"multiply_add": prior.multiply_add, "require_group": prior.require_group}
        return tuple(replace(one, **own, vector=min(one.vector, widest)) for one in ladder)

    def space(self, problem: Problem, device: Device) -> tuple[Axis, ...]:
        """Tiles and loads where it has tiles, else work-groups and unrolling."""
        return (MULTIPLY_ADD_AXIS, *((device.kind == "cpu" and self.cpu_axes) or self.axes))

    def resources(self, config: Config, problem: Problem) -> Resources:
        """One block of A and one of B, each row padded against bank conflicts."""
        if not config.tile_m:
            return Resources(work_items=max(1, config.group_m * config.group_n))
        why = _why_not_cut(config, min(config.vector, _width(problem)))
        if why is not None:
            return Resources(1, why_not=why)
        work_items = config.tile_m // config.micro_m * (config.tile_n // config.micro_n)
        # Each block line is padded by up to 4 sums against bank conflicts; the epilogue borrows
        # the same memory for one row of every micro-tile.
        blocks = config.buffers * config.tile_k * (config.tile_m + config.tile_n + 8)
        rows = config.tile_m // config.micro_m * config.tile_n
        return Resources(work_items, max(blocks, rows) * sum_bytes(problem))

    def lower(self, problem: Problem, device: Device, config: Config) -> Step:
        """One launch; a `vector` wider than this problem's loads can be is taken as their width."""
        config = replace(config, vector=min(config.vector, _width(problem)))
        size, group = self._sizes(problem, device, config)
        launch = Launch(
            program=self.name,
            entry=self.entry,
            defines=(
                *arithmetic(problem.dtype, problem.accumulate, config.multiply_add),
                *chains(problem.dtype, problem.accumulate, problem.k),
                *self.options(problem, config),
                *((("LOOP", 1),) if config.tile_m and device.kind != "gpu" else ()),
            ),
            global_size=size,
            local_size=group,
            arguments=(
                *ints(problem.m, problem.n, problem.k),
                *strided("a", problem.a_row, problem.a_col),
                *strided("b", problem.b_row, problem.b_col),
                *tail(problem, whole(problem)),
            ),
        )
        tiles = (max(1, config.tile_m), max(1, config.tile_n), max(1, config.tile_k))
        return Step(self.name, config, (launch,), computed_flops=computed(problem, *tiles))

    def _sizes(
        self, problem: Problem, device: Device, config: Config
    ) -> tuple[tuple[int, int], tuple[int, int]]:
        if not config.tile_m:
            return grid((problem.n, problem.m), device, config)
        group = (config.tile_n // config.micro_n, config.tile_m // config.micro_m)
        return (
            round_up(problem.n, config.tile_n) // config.micro_n,
            round_up(problem.m, config.tile_m) // config.micro_m,
        ), group
