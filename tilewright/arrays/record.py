"""A problem of a batch as grouped kernels read it, on CUDA and OpenCL: a record of 16 words.

    int64 words     0     1     2     3     4  5  6   7      8      9      10     11     12
                    A     B     C     bias  m  n  k   a_row  a_col  b_row  b_col  c_row  c_col

A record is one cache line of 128 bytes. Words 13 to 15 are a back end's own: alpha and beta as
float64 for Triton (backends/cuda/kernels/triton/record.py), the epilogue's bits for OpenCL
(backends/opencl/kernels/grouped.clh). Strides, which are bytes everywhere else, count elements here
as in the kernels; places stay bytes, or are elements of a buffer where a device has no addresses.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

from tilewright.arrays.addresses import Columns

WORDS = 16
A, B, C, BIAS, M, N, K, A_ROW, A_COL, B_ROW, B_COL, C_ROW, C_COL, OWN = range(14)
Ints = npt.NDArray[np.int64]


def fill(
    table: Ints, parts: Iterable[Columns], bias: Any, sizes: Iterable[Any], itemsize: int
) -> None:
    """Write all but a back end's own words; `parts` are A, B and C, `sizes` m, n and k.

    `bias` are the addresses of its vectors.
    """
    a, b, c = parts
    columns = (
        a.address, b.address, c.address, bias, *sizes, a.row, a.col, b.row, b.col, c.row, c.col,
    )  # fmt: skip
    for word, column in enumerate(columns):
        table[:, word] = column
    table[:, A_ROW:OWN] >>= itemsize.bit_length() - 1  # whole elements, forwards or backwards


def of_parts(rows: Ints, begin: Ints, end: Ints, place: Any, item: int = 1) -> Ints:
    """Records of parts of products cut along k, whose sums lie at `place`, gapless, row-major.

    Args:
        rows: the record of each part's product.
        begin, end: each part's steps of k.
        place: of each part's sum.
        item: what one element is in the units of places.
    """
    made = rows.copy()
    made[:, A] += begin * rows[:, A_COL] * item
    made[:, B] += begin * rows[:, B_ROW] * item
    made[:, C] = place
    made[:, K] = np.minimum(rows[:, K], end - begin)  # 0 where alpha is
    made[:, C_ROW], made[:, C_COL], made[:, OWN:] = rows[:, N], 1, 0
    return made
