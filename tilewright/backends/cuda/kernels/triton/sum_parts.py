"""sum_parts: the second phase of products cut along k: parts added in one order, then C.

    scratch of one product, parts dense m x n            pieces (int32 x 2)  [split, chunk]
      part 0  [ . . . . c c c c . . . . ]                program: CHUNK elements of one product
      part 1  [ . . . . c c c c . . . . ]   + in order   splits (int64 x 3)
      part 2  [ . . . . c c c c . . . . ]   0, 1, 2        [problem, parts, first element]
                          |
      C = activation(alpha sum + beta C + bias), element e is row e / n, column e % n

Which program finished first decides nothing: the same bits in every run.
"""

import triton
import triton.language as tl

from tilewright.backends.cuda.kernels.triton.record import activated, number


@triton.jit
def sum_parts(
    problems,
    splits,
    pieces,
    scratch,
    DTYPE: tl.constexpr,
    SUM: tl.constexpr,
    CHUNK: tl.constexpr,
    ACTIVATION: tl.constexpr,
):
    """Program i finishes piece i; `scratch` points to the sum's type."""
    piece = pieces + 2 * tl.program_id(0)
    split = splits + 3 * tl.load(piece).to(tl.int64)
    problem = problems + 16 * tl.load(split)
    n = tl.load(problem + 5)
    size = tl.load(problem + 4) * n
    at = tl.load(piece + 1).to(tl.int64) * CHUNK + tl.arange(0, CHUNK)
    inside = at < size
    part = scratch + tl.load(split + 2) + at
    total = tl.zeros((CHUNK,), SUM)
    for _ in range(0, tl.load(split + 1).to(tl.int32)):
        total += tl.load(part, mask=inside, other=0.0)
        part += size
    row, col = at // n, at % n
    c = tl.load(problem + 2).to(tl.pointer_type(DTYPE))
    c += row * tl.load(problem + 11) + col * tl.load(problem + 12)
    total *= number(problem + 13, SUM)
    beta = number(problem + 14, SUM)
    if beta != 0:
        total += beta * tl.load(c, mask=inside, other=0.0).to(SUM)
    bias = tl.load(problem + 3)
    if bias != 0:
        added = bias.to(tl.pointer_type(DTYPE)) + col
        total += tl.load(added, mask=inside, other=0.0).to(SUM)
    tl.store(c, activated(total, ACTIVATION).to(DTYPE), mask=inside)
