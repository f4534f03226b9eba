"""`panel`: packed panels and a wide-vector micro-kernel, for CPUs through OpenCL."""

from __future__ import annotations

from dataclasses import dataclass, replace

from tilewright.backends.opencl.lowering import (
    CHAIN,
    LONG,
    MULTIPLY_ADD_AXIS,
    arithmetic,
    chains,
    computed,
    ints,
    round_up,
    sum_bytes,
    tail,
    types,
    whole,
    why_unsupported,
)
from tilewright.backends.opencl.operands import Source, sources
from tilewright.backends.opencl.rules import preferences
from tilewright.facts.device import Device
from tilewright.facts.kernel import Axis, Config, Launch, Raw, Resources, Scratch, Step, axis
from tilewright.facts.problem import Problem

_UNROLL = 4
# Blocks of C, and how many of the larger each compute unit has at least: at 2048 x 2048 x 2048 they
# took 4 to 7 % less on two cores (Zen 4), at 1024, where each had three, 2 to 4 % more.
_SMALL, _LARGE, _SHARE = (192, 256), (384, 512), 8
# C takes so long a sum block by block; of more, each addition to C would round too much away.
_MOST_IN_PARTS = 1 << 17


@dataclass(frozen=True, slots=True)
class Panel:
    """`tile_*` are the blocks that share L2, `micro_*` the sums held in registers."""

    name: str = "panel"

    def why_not(self, problem: Problem, device: Device) -> str | None:
        """Why it cannot take a problem there, if so."""
        if problem.k == 0:
            return "k == 0 leaves nothing to pack"
        return why_unsupported(problem, device)

    def configs(self, problem: Problem, device: Device) -> tuple[Config, ...]:
        """Widest vectors that a register holds first: 12 x 2 of 16 floats fill AVX-512's registers,
        6 x 2 of 8 AVX2's, which hold a third of 12 x 2 of 16: those went through memory.
        """
        shapes = ((12, 16), (8, 16), (14, 16), (6, 8), (4, 8), (12, 8), (8, 4), (4, 4))
        floats = device.vector_floats
        block_m, block_n = _blocks(problem, device)
        madd = preferences(device).multiply_add
        blocks = Config(block_m, block_n, 512, multiply_add=madd)
        return tuple(
            replace(blocks, micro_m=rows, micro_n=2 * vector, vector=vector)
            for rows, vector in sorted(shapes, key=lambda shape: 0 < floats < shape[1])
        )

    def space(self, problem: Problem, device: Device) -> tuple[Axis, ...]:
        """Blocks, rows of the micro-tile, width of its two vectors, and the multiply-add."""
        return (
            MULTIPLY_ADD_AXIS,
            axis("micro_m", 1, 2, 4, 6, 8, 12, 14),
            Axis(tuple((("vector", lanes), ("micro_n", 2 * lanes)) for lanes in (4, 8, 16))),
            axis("tile_k", 128, 192, 256, 384, 512, 768, 1024),
            axis("tile_m", 48, 96, 144, 192, 288, 384, 768),
            axis("tile_n", 32, 64, 128, 256, 384, 512, 1024),
        )

    def resources(self, config: Config, problem: Problem) -> Resources:
        """One work-item owns a block."""
        if config.micro_n != 2 * config.vector:
            return Resources(1, why_not="a row of the micro-tile is two vectors")
        return Resources(work_items=1)

    def lower(self, problem: Problem, device: Device, config: Config) -> Step:
        """Pack A, pack B, multiply block by block."""
        config = _vectors_for(problem, config)
        depth = _depth(problem, config)
        block_m, block_n = _balanced(problem, device, config)
        a, b = sources(problem, whole(problem))
        sides = ((a, config.micro_m), (b.transposed, config.micro_n))
        packs = tuple(_pack(problem, config, side, width, depth) for side, width in sides)
        multiply = Launch(
            program=self.name,
            entry="panel",
            defines=(
                *arithmetic(problem.dtype, problem.accumulate, config.multiply_add),
                *(chains(problem.dtype, problem.accumulate, problem.k) if problem.k > LONG else ()),
                *config.macros("micro_m", "vector"),
            ),
            global_size=(-(-problem.n // block_n), -(-problem.m // block_m)),
            local_size=(1, 1),
            arguments=(
                *ints(problem.m, problem.n, problem.k, depth, block_m, block_n),
                Raw("a_packed"),
                Raw("b_packed"),
                *tail(problem, whole(problem)),
            ),
        )
        scratch = tuple(_scratch(problem, side, width) for side, width in sides)
        return Step(
            self.name,
            config,
            (*packs, multiply),
            scratch,
            computed_flops=computed(problem, config.micro_m, config.micro_n, _UNROLL),
            moved_bytes=2 * sum(item.bytes for item in scratch),
        )


def _blocks(problem: Problem, device: Device) -> tuple[int, int]:
    """Rows and columns of blocks of C."""
    count = -(-problem.m // _LARGE[0]) * -(-problem.n // _LARGE[1])
    many = count >= _SHARE * device.compute_units
    return _LARGE if many and device.kind == "cpu" else _SMALL


def _vectors_for(problem: Problem, config: Config) -> Config:
    """A vector holds as many bytes whatever the type: halve its lanes for doubles."""
    if problem.accumulate != "float64" or config.vector <= 4:
        return config
    return replace(config, vector=config.vector // 2, micro_n=config.micro_n // 2)


def _depth(problem: Problem, config: Config) -> int:
    """Steps of k a block holds: evened out, and all of k where C cannot keep the running sum.

    A block of float32 is a chain by itself where the program has none: 0 to 3 % of the time.
    """
    if problem.dtype != problem.accumulate or problem.k > _MOST_IN_PARTS:
        return round_up(problem.k, _UNROLL)
    is_chain = problem.accumulate == "float32" and problem.k <= LONG
    parts = -(-problem.k // (min(config.tile_k, CHAIN) if is_chain else config.tile_k))
    return round_up(-(-problem.k // parts), _UNROLL)


def _balanced(problem: Problem, device: Device, config: Config) -> tuple[int, int]:
    """Blocks near tile_m x tile_n whose number divides among the compute units."""
    columns = -(-problem.n // config.tile_n)
    block_n = round_up(-(-problem.n // columns), config.micro_n)
    columns = -(-problem.n // block_n)
    rows = -(-problem.m // config.tile_m)
    strips = -(-problem.m // config.micro_m)
    while rows * columns % device.compute_units and rows < strips:
        rows += 1
    block_m = round_up(-(-problem.m // rows), config.micro_m)
    return block_m, block_n


def _pack(problem: Problem, config: Config, source: Source, width: int, depth: int) -> Launch:
    return Launch(
        program="pack",
        entry="pack",
        defines=(*types(problem), ("WIDTH", width), ("VECTOR", config.vector)),
        global_size=(-(-source.rows // width), -(-source.cols // depth)),
        local_size=(1, 1),
        arguments=(
            *ints(source.rows, source.cols, depth),
            *source.argument,
            Raw(f"{source.name}_packed"),
        ),
    )


def _scratch(problem: Problem, source: Source, width: int) -> Scratch:
    elements = round_up(source.rows, width) * round_up(source.cols, _UNROLL)
    return Scratch(f"{source.name}_packed", elements * sum_bytes(problem))


KERNEL = Panel()
