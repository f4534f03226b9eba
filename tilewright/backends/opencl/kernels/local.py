"""`local`: blocks of A and B in local memory, a register tile a work-item, any strides."""

from __future__ import annotations

from tilewright.backends.opencl.strided_kernel import StridedKernel
from tilewright.batch import Problem
from tilewright.kernel import Config


def _options(problem: Problem, config: Config) -> tuple[tuple[str, int], ...]:
    """Tiles, and the hints that say along which side neighbours lie in memory."""
    return (
        ("TILE_M", config.tile_m),
        ("TILE_N", config.tile_n),
        ("TILE_K", config.tile_k),
        ("MICRO_M", config.micro_m),
        ("MICRO_N", config.micro_n),
        ("A_ALONG", int(abs(problem.a_row) < abs(problem.a_col))),
        ("B_ALONG", int(abs(problem.b_row) < abs(problem.b_col))),
        ("REQUIRE_GROUP", config.require_group),
    )


KERNEL = StridedKernel(
    "local",
    entry="local_tiles",
    ladder=(
        Config(tile_m=128, tile_n=128, tile_k=16, micro_m=8, micro_n=8),
        Config(tile_m=64, tile_n=64, tile_k=16, micro_m=4, micro_n=4),
        Config(tile_m=32, tile_n=32, tile_k=16, micro_m=4, micro_n=4),
        Config(tile_m=16, tile_n=16, tile_k=16, micro_m=2, micro_n=2),
    ),
    options=_options,
)
