"""What every kernel needs to turn a problem into launches: blocks, work-groups, options, arguments.

Pure functions of numbers: blocks, work-groups, options of the compiler. Every multiplying kernel
ends its argument list alike: C with its strides, alpha, beta, bias, epilogue.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from tilewright.backends.opencl.rules import preferences
from tilewright.facts.device import Device
from tilewright.facts.kernel import (
    Argument,
    Axis,
    Config,
    Defines,
    Int,
    Long,
    Operand,
    Scalar,
    axis,
)
from tilewright.facts.limits import MOST
from tilewright.facts.problem import Problem

_BITS = {"float16": 16, "float32": 32, "float64": 64}
# The widest there is (Adreno, GCN); narrower ones divide it.
_WAVEFRONT = 64
# 64 bytes of float32, a line of every cache known.
_NARROWEST = 16
# Four wavefronts; no kernel of the ladder gains from more.
_LARGEST_GROUP = 256
# One chain of float32 additions of 0.1 * 0.1 is off by 1.4e-5 after 1024, 2e-5 after 4096 and 2e-2
# after 2 million, chains of 512 by 4e-6, of 256 by 1e-6; NumPy by 3e-7, 1e-6, 6e-5. Up to 16
# chains are added up plainly; of more, what the additions round away is kept. Beside one chain at
# k = 1024, on AVX-512, Intel's compiler takes 0 to 2 % more for `local`, `coalesced` and images, 3
# for `dot4`, 4 for `naive`; PoCL's takes 1 % more for `naive` and a quarter less for `dot4`.
LONG, CHAIN = 4096, 256
EPILOGUE_BIAS = 1
EPILOGUE_ACTIVATION = {"none": 0, "relu": 2, "gelu": 4}


@dataclass(frozen=True, slots=True)
class Block:
    """A part of the product: C[i:, j:] (m x n) gains A[i:, depth:] @ B[depth:, j:] over k steps."""

    i: int
    j: int
    depth: int
    m: int
    n: int
    k: int
    first: bool
    last: bool


def sum_bytes(problem: Problem) -> int:
    """Bytes of a running sum."""
    return np.dtype(problem.accumulate).itemsize


def types(problem: Problem) -> Defines:
    """The -D options that fix the types of a problem."""
    return (("PRECISION", _BITS[problem.dtype]), ("ACCUMULATE", _BITS[problem.accumulate]))


def arithmetic(dtype: str, accumulate: str, multiply_add: int) -> Defines:
    """The -D options of products: types and the multiply-add."""
    bits = (("PRECISION", _BITS[dtype]), ("ACCUMULATE", _BITS[accumulate]))
    return (*bits, ("MULTIPLY_ADD", multiply_add))


def chains(dtype: str, accumulate: str, k: int) -> Defines:
    """The -D options of sums in chains, one program for any k up to LONG and one above.

    float16 shows what a chain rounds away from LONG on; float64 and sums in float16 do not sum so.
    """
    if accumulate != "float32" or (dtype != "float32" and k <= LONG):
        return ()
    return ("CHAIN", CHAIN), ("LOSSES", int(k > LONG))


def whole(problem: Problem) -> Block:
    """The product in one block."""
    return Block(0, 0, 0, problem.m, problem.n, problem.k, first=True, last=True)


def blocks(problem: Problem, m_limit: int, n_limit: int, k_limit: int) -> Iterator[Block]:
    """The product cut so that no block passes a limit; where it must cut, at multiples of 8."""
    sides = ((problem.m, m_limit), (problem.n, n_limit), (problem.k, k_limit))
    m_limit, n_limit, k_limit = (
        max(8, limit if size <= limit else limit // 8 * 8) for size, limit in sides
    )
    for i in range(0, problem.m, m_limit):
        for j in range(0, problem.n, n_limit):
            m, n = min(m_limit, problem.m - i), min(n_limit, problem.n - j)
            for depth in range(0, problem.k, k_limit):
                k = min(k_limit, problem.k - depth)
                last = depth + k_limit >= problem.k
                yield Block(i, j, depth, m, n, k, first=depth == 0, last=last)


def tail(problem: Problem, block: Block) -> tuple[Argument, ...]:
    """C, alpha, beta, bias and epilogue of one block.

    Only the first block along k sees the caller's beta, only the last one bias and activation.
    """
    epilogue = 0
    if block.last:
        epilogue = EPILOGUE_ACTIVATION[problem.activation]
        epilogue |= EPILOGUE_BIAS if problem.bias else 0
    return (
        *strided("c", problem.c_row, problem.c_col, block.i, block.j),
        Scalar("alpha"),
        Scalar("beta") if block.first else Scalar(1.0),
        Operand("bias", block.j),
        Int(epilogue),
    )


def ints(*numbers: int) -> tuple[Int, ...]:
    """Sizes."""
    return tuple(map(Int, numbers))


def strided(name: str, row: int, col: int, i: int = 0, j: int = 0) -> tuple[Argument, ...]:
    """An operand from row i and column j on, and its strides."""
    return Operand(name, i * row + j * col), Long(row), Long(col)


def work_group(extent: tuple[int, int], device: Device) -> tuple[int, int]:
    """The work-group for `extent` work-items (x, y): fewest idle lanes, then the largest.

    Sides are powers of two within the device's limits. Lanes are idle past the extent's edge and in
    wavefronts that a group does not fill: of 513 x 513 groups of one, 63 of 64 would be. Neighbours
    along x read neighbouring memory in every kernel here, so a group is at least 16 wide where the
    extent is, and among equals the one as wide as the device's rules ask for wins.
    """
    wanted = preferences(device).group_width.bit_length()
    limit = min(device.max_work_group, _LARGEST_GROUP)
    x_limit, y_limit = (*device.max_work_item_sizes, 1, 1)[:2]
    narrowest = min(_NARROWEST, extent[0], limit, x_limit)
    shapes = [
        (1 << x, 1 << y)
        for x in range(limit.bit_length())
        for y in range(limit.bit_length() - x)
        if narrowest < 2 << x
        if (1 << x) <= x_limit and (1 << y) <= y_limit and (1 << (x + y)) <= limit
    ]

    def lanes(shape: tuple[int, int]) -> int:
        groups = -(-extent[0] // shape[0]) * -(-extent[1] // shape[1])
        return groups * round_up(shape[0] * shape[1], _WAVEFRONT)

    def key(shape: tuple[int, int]) -> tuple[int, int, int]:
        return lanes(shape), -shape[0] * shape[1], abs(shape[0].bit_length() - wanted)

    return min(shapes, key=key)


def round_up(size: int, multiple: int) -> int:
    """The smallest multiple of `multiple` that is not below `size`."""
    return -(-size // multiple) * multiple


def grid(
    extent: tuple[int, int], device: Device, config: Config | None = None
) -> tuple[tuple[int, int], tuple[int, int]]:
    """Global and local size for `extent` work-items; a group of the configuration's own first."""
    local = work_group(extent, device)
    if config is not None and config.group_n:
        local = (config.group_n, config.group_m)
    return (round_up(extent[0], local[0]), round_up(extent[1], local[1])), local


def computed(problem: Problem, tile_m: int, tile_n: int, tile_k: int = 1) -> int:
    """Multiplications and additions of whole tiles, edges included."""
    return (
        2 * round_up(problem.m, tile_m) * round_up(problem.n, tile_n) * round_up(problem.k, tile_k)
    )


_WIDE = ((0, 0), (1, 16), (1, 64), (1, 256), (4, 16), (4, 64), (8, 8), (16, 16), (32, 32))
_HIGH = ((16, 4), (32, 8), (64, 1), (64, 16), (256, 1))
# Work-groups and steps of k written out that are worth a try where a work-item needs no neighbour.
GROUP_AXIS = Axis(tuple((("group_m", high), ("group_n", wide)) for high, wide in (*_WIDE, *_HIGH)))
UNROLL_AXIS = axis("unroll", 1, 2, 4, 8)
MULTIPLY_ADD_AXIS = axis("multiply_add", 0, 1, 2)


def why_unsupported(problem: Problem, device: Device, *, images: bool = False) -> str | None:
    """The reasons every kernel but `naive` shares; None where there is none."""
    if problem.dtype not in device.dtypes:
        return f"the device has no {problem.dtype} arithmetic"
    if problem.accumulate == "float16" and not device.has("fp16"):
        return "the device has no float16 arithmetic to accumulate in"
    if max(problem.m, problem.n, problem.k) > MOST:
        return "a side of more than 2^31 elements"
    if not images:
        return None
    if not device.has("images"):
        return "the device has no images"
    if problem.dtype == "float64":
        return "images hold float16 and float32 only"
    return None
