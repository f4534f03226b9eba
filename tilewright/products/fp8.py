"""8-bit numbers with scales, as `ragged_matmul` and `matmul` take them, made of wider ones.

    values [t, k], scales [t, 1]              scale="row"
                   scales [t, k / 128]        scale="1x128"     rounded up, as all below
                   scales [t / 128, k / 128]  scale="128x128"

An element stands for its value times the scale of its row, strip or block. 8-bit tensor cores read
operands with k contiguous, so that is how values are laid out, whichever dimension k is. int8 has
scales of rows: its sums are exact over all of k.
"""

from __future__ import annotations

from typing import Any

from tilewright.inputs.checks import check_is_tensor


def quantise_fp8(
    x: Any,
    *,
    scale: str = "1x128",
    dtype: Any = None,
    along: int = -1,
    offsets: Any = None,
) -> tuple[Any, ...]:
    """8-bit floats and the float32 scales by which they stand for x.

    Args:
        x: torch tensor of two or three dimensions, float16, bfloat16 or float32, in any layout.
        scale: what shares a scale: "row", all of k; "1x128", 128 of k in a row, the last maybe
            fewer; "128x128", blocks of 128 rows by 128 of k.
        dtype: torch.float8_e4m3fn, the default, or torch.float8_e5m2.
        along: which of the last two dimensions is k: that over which a product sums.
        offsets: int32 or int64 [g], ends of groups of the rows of x [t, n], on x's device; with
            along=0, for weight gradients. Each group then begins at a multiple of 128, zeros
            fill it up, and t becomes at most t + 127 g, rounded down to a multiple of 128; what is
            past the last group is zero.

    Returns: values of x's shape, contiguous along k, its rows at multiples of 16 bytes; and scales
        of x's shape with every dimension divided by what shares a scale, rounded up. With
        `offsets` also where the groups end in `values`: the offsets of the product.

    A scale is the largest finite magnitude over the largest number of the type (448, 57344), at
    least 2^-126, and 1 where all are zero; values are x times its inverse, rounded to nearest, ties
    to even. What is not finite stays seen: NaN, and in e5m2 infinities. The same bits on every
    device. No gradient passes; an x that requires one is refused, unless under torch.no_grad().

    Raises: ArgumentError, DtypeError, OperandError, ShapeError. Offsets on a GPU that decrease or
    run past the rows are reported as those of `ragged_matmul` are.
    """
    check_is_tensor(x, "x")
    from tilewright.torch_ops.fp8_call import quantise

    return quantise(x, scale, dtype, along, offsets)


def quantise_int8(x: Any, *, along: int = -1) -> tuple[Any, ...]:
    """int8 numbers and the float32 scales, one a row, by which they stand for x.

    Args:
        x: torch tensor of two or three dimensions, float16, bfloat16 or float32, in any layout.
        along: which of the last two dimensions is k: that over which a product sums, and which
            shares a scale.

    Returns: values of x's shape, int8 from -127 to 127, contiguous along k, its rows at multiples
        of 16 bytes; and scales of x's shape with that dimension 1.

    A scale is the largest magnitude over 127, at least 2^-126, and 1 where all are zero; values are
    x times its inverse, rounded to nearest, ties to even. int8 has neither NaN nor infinity: a row
    with either has scale NaN and zeros, so that its products are NaN. The same bits on every
    device. No gradient passes; an x that requires one is refused, unless under torch.no_grad().

    Raises: ArgumentError, DtypeError, OperandError, ShapeError.
    """
    check_is_tensor(x, "x")
    from tilewright.torch_ops import fp8_call

    return fp8_call.quantise_int8(x, along)
