"""`local`: blocks of A and B in local memory, a register tile a work-item, any strides."""

from __future__ import annotations

from tilewright.backends.opencl.strided_kernel import StridedKernel
from tilewright.facts.kernel import Config, Defines, axis
from tilewright.facts.problem import Problem


def _options(problem: Problem, config: Config) -> Defines:
    """Tiles, and the hints that say along which side neighbours lie in memory."""
    return (
        *config.macros("tile_m", "tile_n", "tile_k", "micro_m", "micro_n"),
        ("A_ALONG", int(problem.a_row == 1 != problem.a_col)),
        ("B_ALONG", int(problem.b_row == 1 != problem.b_col)),
        *config.macros("vector", "buffers", "require_group"),
        *((("OFFSET", "int"),) if _is_near(problem, config) else ()),
    )


def _is_near(problem: Problem, config: Config) -> bool:
    """Whether every element of a block lies within 2^31 elements of its first (blocks.clh)."""
    steps = (
        config.tile_m * abs(problem.a_row) + config.tile_k * abs(problem.a_col),
        config.tile_n * abs(problem.b_col) + config.tile_k * abs(problem.b_row),
    )
    return max(steps) < 2**31


_SMALL = (
    Config(tile_m=32, tile_n=32, tile_k=16, micro_m=4, micro_n=4, vector=4, rate=0.5),
    Config(tile_m=16, tile_n=16, tile_k=16, micro_m=2, micro_n=2, vector=4, rate=0.2),
)

_LOADS = (axis("vector", 1, 4), axis("buffers", 1, 2), axis("require_group", 0, 1))

# Rates are shares of the best at 4096^3, measured on an H200 (fp32, vector 4). Micro-tiles of
# 8 x 16 were the best there while k was summed in one chain: with the sums of two (blocks.clh) they
# no longer fit into registers, 43 to 44 TFLOP/s where 8 x 8 has 45. `vector` is an upper limit:
# loads are as wide as strides and alignment allow.
KERNEL = StridedKernel(
    "local",
    entry="local_tiles",
    ladder=(
        Config(
            tile_m=128, tile_n=128, tile_k=16, micro_m=8, micro_n=8, vector=4, buffers=2, rate=1.0
        ),
        Config(tile_m=128, tile_n=128, tile_k=8, micro_m=8, micro_n=8, vector=4, rate=0.94),
        Config(tile_m=64, tile_n=64, tile_k=16, micro_m=8, micro_n=8, vector=4, rate=0.96),
        Config(
            tile_m=64, tile_n=128, tile_k=16, micro_m=8, micro_n=8, vector=4, buffers=2, rate=0.97
        ),
        *_SMALL,
    ),
    cpu_ladder=_SMALL,
    options=_options,
    axes=(
        axis("tile_m", 16, 32, 64, 128),
        axis("tile_n", 16, 32, 64, 128, 256),
        axis("tile_k", 8, 16, 32, 64),
        axis("micro_m", 2, 4, 8, 16),
        axis("micro_n", 2, 4, 8, 16),
        *_LOADS,
    ),
    cpu_axes=(
        axis("tile_m", 8, 16, 32),
        axis("tile_n", 16, 32, 64, 128),
        axis("tile_k", 8, 16),
        axis("micro_m", 2, 4),
        axis("micro_n", 2, 4, 8),
        *_LOADS,
    ),
)
