"""The one rule by which a result is right."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tests.support.cases import NDArray, Operands
from tilewright.products import reference

# Sums of halves are single; the truth of doubles needs more bits than a double has.
_SUM = {
    "float16": np.float32,
    **{kind: getattr(np, kind) for kind in ("float32", "float64", "complex64", "complex128")},
}
_ULPS = 8


def assert_right(result: NDArray, given: Operands) -> None:
    """NaN and Inf where NumPy has them, and an error of at most

        2 x NumPy's own error in the same dtype + 8 units in the last place of the largest element

    (1e-6 of it for float32, and of its modulus for complex numbers). NumPy's own is that of its
    BLAS or of its plain loop, whichever is worse, and for float16 that of float32 sums rounded
    once. The truth is float64; for float64 it is long double.
    """
    case = given.case
    assert result.shape == given.out.shape
    assert result.dtype == case.dtype
    with np.errstate(all="ignore"):
        truth = true_product(given)
        numpys = [_numpys(given, np.matmul), _numpys(given, _plain_loop)]
        error = np.abs(result - truth)
        own = np.maximum(*(np.abs(value - truth) for value in numpys))
    np.testing.assert_array_equal(np.isnan(result), np.isnan(truth))
    infinite = np.isinf(numpys[0])
    np.testing.assert_array_equal(result[infinite], numpys[0][infinite])
    finite = np.isfinite(truth) & ~infinite
    if not finite.any():
        return
    if case.accumulate == "fp16":
        assert (error <= half_bound(given))[finite].all()
        return
    slack = _ULPS * np.finfo(_SUM[case.dtype]).eps * np.abs(truth[finite]).max()
    error, own = error[finite].max(), own[finite].max()
    assert error <= 2 * own + slack, f"error {error:.3g}, NumPy's {own:.3g}"


def assert_right_together(results: Sequence[NDArray], given: Sequence[Operands]) -> None:
    """Root mean square errors at most twice NumPy's: of single sums the luckier may be NumPy's."""
    errors = np.array([_errors(result, one) for result, one in zip(results, given, strict=True)])
    ours, numpys = np.sqrt((errors**2).mean(0))
    assert ours <= 2 * numpys, f"error {ours:.3g}, NumPy's {numpys:.3g}"


def _errors(result: NDArray, given: Operands) -> tuple[float, float]:
    """The largest error of a finite result, and NumPy's own."""
    truth = true_product(given)
    ways = [_numpys(given, np.matmul), _numpys(given, _plain_loop)]
    ours, *numpys = (float(np.abs(value - truth).max()) for value in (result, *ways))
    return ours, max(numpys)


def assert_rest_untouched(given: Operands) -> None:
    """What lies around `out` in its memory is as it was, bit for bit."""
    outside = given.untouched
    assert given.base[outside].tobytes() == given.before[outside].tobytes()


def true_product(given: Operands) -> NDArray:
    """What a computer of unlimited patience would answer."""
    case = given.case
    a, b, old, bias = given.a_matrix, given.b_matrix, given.old, given.bias
    wider = {"float64": np.longdouble, "complex128": np.clongdouble}.get(case.dtype)
    if wider is not None and case.activation != "gelu":
        wide = _formula(given, np.matmul, wider)
        return np.maximum(wide, 0) if case.activation == "relu" else wide
    return reference.matmul(
        a,
        b,
        c=old,
        alpha=case.alpha,
        beta=case.beta,
        bias=bias,
        activation=case.activation or "none",
    )


def half_bound(given: Operands) -> NDArray:
    """How far float16 sums may be off: k + 4 roundings of 2^-11 each, of all that was summed."""
    case = given.case
    terms = np.abs(case.alpha) * np.matmul(
        np.abs(given.a_matrix).astype(np.float64), np.abs(given.b_matrix).astype(np.float64)
    )
    if case.beta:
        terms += np.abs(case.beta * given.old.astype(np.float64))
    if given.bias is not None:
        terms += np.abs(given.bias)
    return (case.k + 4) * 2.0**-11 * terms


def _numpys(given: Operands, multiply: Any) -> NDArray:
    """The same product by NumPy in the same dtype."""
    case = given.case
    value = _formula(given, multiply, _SUM[case.dtype])
    if case.activation:
        value = reference.activate(value, case.activation)
    return value.astype(case.dtype)


def _formula(given: Operands, multiply: Any, wide: Any) -> NDArray:
    case = given.case
    a, b = given.a_matrix.astype(wide), given.b_matrix.astype(wide)
    if case.alpha == 0:
        a, b = a[..., :0], b[..., :0, :]
    value = wide(case.alpha) * multiply(a, b)
    if case.beta:
        value = value + wide(case.beta) * given.old.astype(wide)
    if given.bias is not None:
        value = value + given.bias.astype(wide)
    return value


def _plain_loop(a: NDArray, b: NDArray) -> NDArray:
    return np.einsum("...ij,...jk->...ik", a, b, optimize=False)
