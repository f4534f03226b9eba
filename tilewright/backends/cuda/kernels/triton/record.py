"""record: the table that tells a kernel of its problems, and how a sum becomes C.

    int64 words     0     1     2     3     4  5  6   7      8      9      10     11     12
                    A     B     C     bias  m  n  k   a_row  a_col  b_row  b_col  c_row  c_col
                    13            14           15
                    alpha         beta         unused
                    (bits of a float64)

Words 0 to 12 as arrays/record.py writes them. Addresses are bytes, bias 0 where there is none.
"""

import triton
import triton.language as tl


@triton.jit
def number(word, SUM: tl.constexpr):
    """A float64 of the record in the type of the sum."""
    return tl.load(word).to(tl.float64, bitcast=True).to(SUM)


@triton.jit
def activated(total, ACTIVATION: tl.constexpr):
    """relu, the exact gelu, or nothing. A NaN stays one."""
    if ACTIVATION == "relu":
        total = tl.where(total < 0, 0.0, total)
    if ACTIVATION == "gelu":
        total = 0.5 * total * (1 + tl.erf(total * 0.7071067811865476))
    return total
