"""The one list of cases that every kernel is held to, and the arrays they stand for.

A case says what is multiplied and how it lies in memory. The list is chosen, not the product of
everything: each line is there for an edge that the comment above it names.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import numpy.typing as npt

NDArray = npt.NDArray[Any]
LAYOUTS = ("C", "F", "strided", "offset", "reversed")


@dataclass(frozen=True)
class Case:
    """One product, [*lead_a, m, k] @ [*lead_b, k, n].

    `a`, `b` and `out` are layouts: one of LAYOUTS, or for inputs "repeated", one row stored once.
    `special` puts that value in a corner of A and in the opposite one of B.
    """

    m: int
    n: int
    k: int
    dtype: str = "float32"
    a: str = "C"
    b: str = "C"
    out: str = "C"
    transpose_a: bool = False
    transpose_b: bool = False
    lead_a: tuple[int, ...] = ()
    lead_b: tuple[int, ...] = ()
    alpha: complex = 1.0
    beta: complex = 0.0
    bias: bool = False
    activation: str | None = None
    accumulate: str | None = None
    special: float | None = None

    def __str__(self) -> str:
        sizes = f"{self.m}x{self.n}x{self.k}"
        rest = (f for f in fields(self)[3:] if getattr(self, f.name) != f.default)
        return "-".join([sizes, *(_word(f.name, getattr(self, f.name)) for f in rest)])


def _word(name: str, value: Any) -> str:
    if value is True:
        return name
    if name in ("dtype", "activation"):
        return str(value)
    text = "x".join(map(str, value)) if isinstance(value, tuple) else str(value)
    return f"{name}_{text}"


CASES = (
    # Nothing in a dimension, or in all of them.
    Case(0, 5, 3),
    Case(4, 0, 3),
    Case(0, 0, 0),
    Case(4, 5, 0),
    Case(4, 5, 0, beta=0.5, bias=True, activation="relu"),
    Case(3, 4, 5, lead_a=(0,)),
    # One element, one row, one column, one step of k.
    Case(1, 1, 1),
    Case(1, 97, 13),
    Case(97, 1, 13),
    Case(61, 67, 1),
    Case(1, 1, 331),
    # Odd and prime; one off the vectors, micro-tiles and tiles that kernels are made of.
    Case(3, 5, 7),
    Case(4, 8, 4),
    Case(5, 9, 3),
    Case(12, 32, 4),
    Case(11, 31, 5),
    Case(13, 33, 9),
    Case(64, 64, 64),
    Case(127, 129, 17),
    Case(128, 128, 16),
    Case(129, 127, 15),
    # More than one block of `panel` in every direction.
    Case(400, 300, 401),
    # Skinny, and a long k.
    Case(512, 2, 3),
    Case(2, 512, 3),
    Case(7, 5, 4099),
    # Transposes, by flag, by strides and by both.
    Case(37, 29, 23, transpose_a=True),
    Case(37, 29, 23, transpose_b=True),
    Case(37, 29, 23, transpose_a=True, transpose_b=True),
    Case(36, 28, 24, transpose_a=True, transpose_b=True),
    Case(37, 29, 23, a="F"),
    Case(37, 29, 23, b="F"),
    Case(37, 29, 23, a="F", b="F", out="F"),
    Case(37, 29, 23, a="F", b="F", transpose_a=True, transpose_b=True),
    # Views with gaps, with an odd start, backwards, and with one row for all.
    Case(37, 29, 23, a="strided", b="strided", out="strided"),
    Case(37, 29, 23, a="offset", b="offset", out="offset"),
    Case(36, 28, 24, a="offset", b="offset", out="offset"),
    Case(37, 29, 23, a="reversed", b="reversed", out="reversed"),
    Case(37, 29, 23, a="repeated"),
    Case(37, 29, 23, b="repeated", transpose_b=True),
    Case(37, 29, 23, a="strided", b="reversed", transpose_a=True, out="F", beta=1.0),
    # Leading dimensions: alike, broadcast either way, with views under them.
    Case(5, 7, 6, lead_a=(3,), lead_b=(3,)),
    Case(5, 7, 6, lead_a=(2, 1), lead_b=(3,)),
    Case(5, 7, 6, lead_b=(4,)),
    Case(5, 7, 6, lead_a=(2, 3), lead_b=(1, 3), transpose_a=True, bias=True),
    Case(5, 7, 6, lead_a=(3,), lead_b=(3,), a="strided", b="reversed", out="strided", beta=1.0),
    Case(5, 7, 6, lead_a=(2,), a="repeated", b="offset", out="reversed"),
    # alpha and beta: none, one, other. `out` holds NaN wherever beta is zero.
    Case(37, 29, 23, alpha=0.0),
    Case(37, 29, 23, alpha=0.0, beta=1.0),
    # Where alpha is zero A and B are not read, as in BLAS.
    Case(37, 29, 23, alpha=0.0, special=np.nan),
    Case(36, 28, 24, alpha=0.0, special=np.inf, beta=2.0, bias=True, transpose_a=True),
    Case(37, 29, 23, alpha=2.5),
    Case(37, 29, 23, alpha=-0.5, beta=0.25),
    Case(37, 29, 23, beta=1.0, out="offset"),
    # The epilogue.
    Case(37, 29, 23, bias=True),
    Case(37, 29, 23, activation="relu"),
    Case(37, 29, 23, activation="gelu"),
    Case(37, 29, 23, alpha=1.5, beta=-1.0, bias=True, activation="relu", out="strided"),
    Case(13, 33, 401, alpha=0.1, beta=2.0, bias=True, activation="gelu"),
    # Doubles.
    Case(1, 1, 1, dtype="float64"),
    Case(37, 29, 23, dtype="float64", transpose_a=True),
    Case(37, 29, 23, dtype="float64", a="reversed", b="strided", out="offset"),
    Case(13, 33, 401, dtype="float64", alpha=0.3, beta=2.0, bias=True, activation="gelu"),
    # Halves, summed in single precision.
    Case(1, 1, 1, dtype="float16"),
    Case(37, 29, 23, dtype="float16"),
    Case(36, 28, 24, dtype="float16", transpose_b=True, out="F"),
    Case(37, 29, 23, dtype="float16", a="reversed", b="strided", out="offset"),
    Case(13, 33, 1031, dtype="float16", alpha=0.5, beta=2.0, bias=True, activation="gelu"),
    # Halves, summed in half precision.
    Case(37, 29, 23, dtype="float16", accumulate="fp16"),
    Case(13, 33, 401, dtype="float16", accumulate="fp16", alpha=0.5, beta=2.0, bias=True),
    # NaN and Inf spread as far as NumPy spreads them, and no further.
    Case(37, 29, 23, special=np.nan),
    Case(37, 29, 23, special=np.inf),
    Case(38, 30, 22, special=-np.inf, activation="relu", bias=True, beta=1.0),
    Case(37, 29, 23, special=np.nan, activation="relu", transpose_a=True, transpose_b=True),
    Case(37, 29, 23, special=np.inf, dtype="float16"),
    Case(37, 29, 23, special=np.nan, dtype="float64", out="strided"),
)

# Complex numbers: NumPy's BLAS, cuBLAS and one kernel of ours multiply them.
COMPLEX = tuple(
    Case(*sizes, dtype=dtype, **how)
    for dtype in ("complex64", "complex128")
    for sizes, how in (
        ((4, 5, 0), {"beta": 0.5j, "bias": True}),
        ((1, 1, 1), {}),
        ((17, 15, 33), {}),
        ((16, 32, 64), {"a": "F", "b": "F", "out": "F"}),
        ((37, 29, 23), {"transpose_a": True, "transpose_b": True}),
        ((13, 33, 9), {"a": "reversed", "b": "strided", "out": "offset"}),
        ((5, 3, 531), {"alpha": 0.5 - 2j, "beta": 1.5j, "bias": True}),
        ((7, 9, 4), {"alpha": 0.0, "special": np.nan, "beta": 2.0, "out": "strided"}),
        ((7, 9, 4), {"special": np.inf}),
    )
)


@dataclass(frozen=True)
class Operands:
    """The arrays of a case as a caller passes them.

    `base` is the memory that `out` is a view of, `before` a copy of it from before the product.
    """

    case: Case
    a: NDArray
    b: NDArray
    out: NDArray
    bias: NDArray | None
    base: NDArray
    before: NDArray
    untouched: NDArray

    @property
    def options(self) -> dict[str, Any]:
        """The keyword arguments of `tilewright.matmul`, without `out`."""
        names = ("alpha", "beta", "transpose_a", "transpose_b", "activation", "accumulate")
        return {"bias": self.bias, **{name: getattr(self.case, name) for name in names}}

    @property
    def a_matrix(self) -> NDArray:
        """op(A)."""
        return self.a.swapaxes(-1, -2) if self.case.transpose_a else self.a

    @property
    def b_matrix(self) -> NDArray:
        """op(B)."""
        return self.b.swapaxes(-1, -2) if self.case.transpose_b else self.b

    @property
    def old(self) -> NDArray:
        """What `out` held before."""
        return view_of(self.before, self.out.shape, self.case.out)


def operands(case: Case, seed: int = 0) -> Operands:
    """Arrays for a case. Where beta is 0 `out` holds NaN, as all memory between views does."""
    generator = np.random.default_rng(seed)
    a_shape = (case.k, case.m) if case.transpose_a else (case.m, case.k)
    b_shape = (case.n, case.k) if case.transpose_b else (case.k, case.n)
    a = _input(generator, (*case.lead_a, *a_shape), case.dtype, case.a)
    b = _input(generator, (*case.lead_b, *b_shape), case.dtype, case.b)
    if case.special is not None:
        a[..., 0, 0] = case.special
        b[..., -1, -1] = case.special
    shape = (*np.broadcast_shapes(case.lead_a, case.lead_b), case.m, case.n)
    base = np.full(_base_shape(shape, case.out), np.nan, case.dtype)
    out = view_of(base, shape, case.out)
    if case.beta != 0:
        out[...] = _drawn(generator, shape, case.dtype)
    bias = _drawn(generator, (case.n,), case.dtype) if case.bias else None
    outside = np.ones(base.shape, bool)
    view_of(outside, shape, case.out)[...] = False
    return Operands(case, a, b, out, bias, base, base.copy(), outside)


def _input(
    generator: np.random.Generator, shape: tuple[int, ...], dtype: str, layout: str
) -> NDArray:
    values = _drawn(generator, shape, dtype)
    if layout == "repeated":
        row = np.ascontiguousarray(values[..., :1, :])
        return np.broadcast_to(row, shape)
    base = np.full(_base_shape(shape, layout), np.nan, dtype)
    view = view_of(base, shape, layout)
    view[...] = values
    return view


def _drawn(generator: np.random.Generator, shape: tuple[int, ...], dtype: str) -> NDArray:
    values = generator.standard_normal(shape)
    if dtype.startswith("complex"):
        values = values + 1j * generator.standard_normal(shape)
    return values.astype(dtype)


def _base_shape(shape: tuple[int, ...], layout: str) -> tuple[int, ...]:
    """The memory that a matrix of this layout is cut from."""
    *lead, rows, cols = shape
    if layout == "strided":
        return (*lead, 2 * rows, 3 * cols)
    if layout == "offset":
        return (*lead, rows + 3, cols + 5)
    return shape


def view_of(base: NDArray, shape: tuple[int, ...], layout: str) -> NDArray:
    """The view of `base` that has `shape` and lies as the layout says."""
    if layout == "F":
        return base.reshape(*shape[:-2], shape[-1], shape[-2]).swapaxes(-1, -2)
    if layout == "strided":
        return base[..., 1::2, 2::3]
    if layout == "offset":
        return base[..., 2:-1, 3:-2]
    if layout == "reversed":
        return base[..., ::-1, ::-1]
    return base
