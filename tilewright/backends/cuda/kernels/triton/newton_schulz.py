"""newton_schulz: what lies between the products of Newton-Schulz steps, for matrices of any shapes.

    x, all matrices one behind another, bf16       pieces (int64 x 4), of one matrix each
    | matrix 0       | matrix 1 | ...        |       begin, end, and of `square` and `divide` the
      piece | piece .  piece                         first and last piece of the matrix,
        v       v        v                           of `shift` where it begins and its row length
      sums[0] sums[1]  sums[2]   square
        x / max(sqrt(sums 0 + 1), eps)   divide      h = keep g + add I    shift
                                                          . 1 . . | g, rows padded
Of symmetric products only block rows up to the diagonal are computed; `mirror` copies the rest:

    [ D . . ]      [ D t t ]     a tile of TILE x TILE a program, read below the diagonal blocks
    [ x D . ]  ->  [ x D t ]     and written turned above them
    [ x x D ]      [ x x D ]
Pieces are added in their order, so results do not depend on which program came first.
"""

import triton
import triton.language as tl


@triton.jit
def square(x, pieces, sums, CHUNK: tl.constexpr):
    """Program p writes the sum of squares of piece p."""
    piece = pieces + 4 * tl.program_id(0).to(tl.int64)
    at = tl.load(piece) + tl.arange(0, CHUNK)
    value = tl.load(x + at, mask=at < tl.load(piece + 1), other=0.0).to(tl.float32)
    tl.store(sums + tl.program_id(0), tl.sum(value * value, 0))


@triton.jit
def divide(x, pieces, sums, EPS: tl.constexpr, CHUNK: tl.constexpr, PARTS: tl.constexpr):
    """Program p divides piece p by its matrix's norm, which is rounded to bf16, or by EPS."""
    piece = pieces + 4 * tl.program_id(0).to(tl.int64)
    first, last = tl.load(piece + 2), tl.load(piece + 3)
    total = tl.zeros((PARTS,), tl.float32)
    for start in range(first, last, PARTS):
        part = start + tl.arange(0, PARTS)
        total += tl.load(sums + part, mask=part < last, other=0.0)
    norm = tl.sqrt(tl.sum(total, 0)).to(tl.bfloat16).to(tl.float32)
    norm = tl.where(norm < EPS, EPS, norm)  # NaN stays
    at = tl.load(piece) + tl.arange(0, CHUNK)
    inside = at < tl.load(piece + 1)
    value = tl.load(x + at, mask=inside, other=0.0).to(tl.float32)
    tl.store(x + at, (value / norm).to(tl.bfloat16), mask=inside)


@triton.jit
def shift(g, h, pieces, KEEP: tl.constexpr, ADD: tl.constexpr, CHUNK: tl.constexpr):
    """Program p writes KEEP g, with ADD added on the diagonal, into piece p of h."""
    piece = pieces + 4 * tl.program_id(0).to(tl.int64)
    begin, step = tl.load(piece), tl.load(piece + 3).to(tl.int32)
    from_start = begin - tl.load(piece + 2)
    row = from_start // step
    column = (from_start - row * step).to(tl.int32) + tl.arange(0, CHUNK)
    row = row + column // step
    at = begin + tl.arange(0, CHUNK)
    inside = at < tl.load(piece + 1)
    value = tl.load(g + at, mask=inside, other=0.0).to(tl.float32) * KEEP
    value += tl.where(column % step == row, ADD, 0.0)
    tl.store(h + at, value.to(tl.bfloat16), mask=inside)


@triton.jit
def mirror(g, tiles, TILE: tl.constexpr):
    """Program p writes the transpose of tile p: begin of its matrix, row length, row, column.

    Tiles are whole along their columns; of their rows there are as many as the fifth word says.
    """
    tile = tiles + 5 * tl.program_id(0).to(tl.int64)
    begin, step = tl.load(tile), tl.load(tile + 1)
    row, column, rows = tl.load(tile + 2), tl.load(tile + 3), tl.load(tile + 4)
    down, right = tl.arange(0, TILE), tl.arange(0, TILE)
    inside = down[:, None] < rows + 0 * right[None, :]
    source = g + begin + (row + down[:, None]) * step + column + right[None, :]
    value = tl.load(source, mask=inside, other=0.0)
    into = g + begin + (column + down[:, None]) * step + row + right[None, :]
    tl.store(into, tl.trans(value), mask=right[None, :] < rows + 0 * down[:, None])
