"""Which blocks of two block-sparse matrices meet: the products, and the pattern of their sum.

Block row i of the result has a block in column j where a stored block (i, k) of the left matrix
meets a stored block (k, j) of the right one. The products of one result lie beside each other, in
the order in which the blocks of the left matrix are stored, so that sums have the same bits always.

Worked example, four products in three results, of which the first is a sum of two:

    left   block 0 at (0, 0), 1 at (0, 2), 2 at (1, 1)      right   0 at (0, 1), 1 at (1, 0),
                                                                    2 at (2, 1), 3 at (2, 3)

>>> left = Pattern(np.array([0, 2, 3]), np.array([0, 2, 1]))
>>> right = Pattern(np.array([0, 1, 2, 4]), np.array([1, 0, 1, 3]))
>>> found = meeting(left, right)
>>> found.left.tolist(), found.right.tolist(), found.into.tolist()
([0, 1, 1, 2], [0, 2, 3, 1], [0, 0, 1, 2])
>>> found.result.starts.tolist(), found.result.columns.tolist()
([0, 2, 3], [1, 3, 0])

F. G. Gustavson, Two fast algorithms for sparse matrices, ACM Trans. Math. Softw. 4, 1978: the same
by rows, which here are taken all at once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tilewright.planning.within import within

Indices = npt.NDArray[np.int64]

# Seconds on two cores of an AMD EPYC (Zen 4): of a call, of a product, and flops a second (complex
# multiply-adds being eight). SciPy's plain loop against a batch of tiles, or of BLAS's calls.
_SCIPY = {"f": (70e-6, 15e-9, 3.4e9), "c": (70e-6, 15e-9, 6e9)}
_BATCH = {"f": (1.5e-3, 0.7e-6, 25e9), "c": (1.5e-3, 7e-6, 33e9)}


@dataclass(frozen=True, slots=True)
class Pattern:
    """Where blocks stand: those of block row r are starts[r] to starts[r + 1], each in a column."""

    starts: npt.NDArray[Any]
    columns: npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class Meeting:
    """Product p is of blocks left[p] and right[p] and is added into block into[p] of `result`.

    The columns of every row of `result` increase, none twice.
    """

    left: Indices
    right: Indices
    into: Indices
    result: Pattern


def is_scipys(a: Pattern, b: Pattern, blocks: tuple[int, int, int], kind: str) -> bool:
    """Whether SciPy's own product is the faster on a processor, as it is of small blocks.

    `blocks` are R, C and D of blocks R x C by C x D; `kind` is that of the dtype, "f" or "c".
    """
    products = int(np.diff(b.starts)[a.columns].sum())
    flops = (8.0 if kind == "c" else 2.0) * products * blocks[0] * blocks[1] * blocks[2]
    theirs, ours = (
        call + products * one + flops / rate for call, one, rate in (_SCIPY[kind], _BATCH[kind])
    )
    return theirs < ours


def meeting(a: Pattern, b: Pattern) -> Meeting:
    """The products of two patterns; the columns of `a` are rows of `b`. Not checked here."""
    counts = np.diff(b.starts).astype(np.int64)[a.columns]
    left = np.repeat(np.arange(len(a.columns)), counts)
    # Of product p the block in its row of b: which product of its left block p is.
    right = b.starts.astype(np.int64)[a.columns][left] + within(counts)
    rows = np.repeat(np.arange(len(a.starts) - 1), np.diff(a.starts))[left]
    columns = b.columns.astype(np.int64)[right]
    by_place = np.lexsort((columns, rows))  # stable
    left, right, rows, columns = (one[by_place] for one in (left, right, rows, columns))
    new = np.ones(len(left), np.bool_)
    new[1:] = (np.diff(rows) != 0) | (np.diff(columns) != 0)
    starts = np.zeros(len(a.starts), np.int64)
    np.cumsum(np.bincount(rows[new], minlength=len(starts) - 1), out=starts[1:])
    return Meeting(left, right, np.cumsum(new) - 1, Pattern(starts, columns[new]))
