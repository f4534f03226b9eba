"""The one list of cases of one-bit products, and what a case's answer is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

NDArray = npt.NDArray[Any]


@dataclass(frozen=True)
class Case:
    """A [m, k] and B [n, k] of -1 and +1 (or 0 and 1); `fill` is "random", "same" or "opposite"."""

    m: int
    n: int
    k: int
    form: str = "xor"
    out: str = "int32"
    scale: bool = False
    shift: bool = False
    fill: str = "random"

    def __str__(self) -> str:
        rest = [self.form, self.out, "scale" * self.scale, "shift" * self.shift, self.fill]
        return "-".join([f"{self.m}x{self.n}x{self.k}", *(word for word in rest if word)])


CASES = (
    # One element, one row, one column, one bit.
    Case(1, 1, 1),
    Case(1, 37, 5),
    Case(37, 1, 5),
    Case(29, 31, 1),
    # Words: one less, whole, one more; two and three of them.
    *(Case(7, 9, k) for k in (63, 64, 65, 127, 128, 129, 191, 192, 193)),
    # Odd and prime; one off the tiles, panels and words of columns that kernels are made of.
    Case(3, 5, 7),
    Case(2, 16, 64),
    Case(5, 15, 67),
    Case(6, 17, 130),
    Case(31, 33, 257),
    Case(33, 63, 321),
    Case(65, 65, 100),
    Case(67, 129, 1025),
    Case(4, 260, 70),
    # Trees of adders: 4, 8 and 16 words, one more and one less.
    *(Case(5, 18, 64 * words) for words in (3, 4, 5, 15, 16, 17, 31, 33)),
    # Skinny and long: more words than a kernel advances at once.
    Case(500, 2, 9),
    Case(2, 500, 9),
    Case(6, 34, 66_000),
    Case(3, 5, 140_001),
    # The largest counts: rows alike, rows opposite; 31 bytes, 32 and 33; 264 flushes and one more.
    *(Case(5, 17, k, fill="opposite") for k in (8, 248, 256, 264, 2048, 65_472, 65_480, 65_536)),
    Case(5, 17, 65_536, fill="same"),
    Case(5, 17, 300, form="and", fill="same"),
    # Zeros and ones.
    Case(1, 1, 1, form="and"),
    Case(33, 63, 321, form="and"),
    Case(3, 40, 1000, form="and"),
    # Reals.
    Case(1, 1, 1, out="float32"),
    Case(33, 63, 321, out="float32", scale=True),
    Case(33, 65, 321, out="float32", shift=True),
    Case(67, 129, 1025, out="float32", scale=True, shift=True),
    Case(3, 21, 1025, out="float32", scale=True, shift=True),
    Case(33, 63, 321, out="float16", scale=True, shift=True),
    Case(2, 63, 4097, out="float16"),
    # Bits.
    Case(1, 1, 1, out="bits"),
    Case(33, 64, 321, out="bits"),
    Case(35, 65, 321, out="bits"),
    Case(67, 129, 1025, out="bits"),
    Case(3, 200, 77, out="bits"),
    Case(9, 31, 64, out="bits", fill="same"),
)
EMPTY = (Case(0, 5, 3), Case(4, 0, 3), Case(4, 5, 0), Case(0, 0, 0), Case(4, 5, 0, out="float32"))


@dataclass(frozen=True)
class Operands:
    """What a case multiplies: booleans, True for +1 (or 1), and its epilogue."""

    case: Case
    a: NDArray
    b: NDArray
    scale: NDArray | None
    shift: NDArray | None
    threshold: NDArray | None
    flip: NDArray | None

    @property
    def options(self) -> dict[str, Any]:
        """The keyword arguments of `onebit.matmul`."""
        names = ("scale", "shift", "threshold", "flip")
        options = {name: getattr(self, name) for name in names}
        dtype = None if self.case.out == "bits" else self.case.out
        return {"form": self.case.form, "dtype": dtype, **options}


def operands(case: Case, seed: int = 0) -> Operands:
    generator = np.random.default_rng(seed)
    a = generator.random((case.m, case.k)) < 0.5
    b = generator.random((case.n, case.k)) < 0.5
    if case.fill != "random":
        a[:] = True
        b[:] = case.fill == "same"
    reals = [generator.standard_normal(case.n).astype(np.float32) for _ in range(2)]
    span = max(2, int(np.sqrt(case.k)))
    threshold = generator.integers(-span, span, case.n) if case.out == "bits" else None
    return Operands(
        case,
        a,
        b,
        reals[0] if case.scale else None,
        reals[1] if case.shift else None,
        threshold,
        generator.random(case.n) < 0.5 if case.out == "bits" else None,
    )


def expected(given: Operands) -> NDArray:
    """The answer by NumPy's integer product; bits as booleans."""
    a, b = (array.astype(np.int64) for array in (given.a, given.b))
    if given.case.form == "xor":
        a, b = 2 * a - 1, 2 * b - 1
    dot = a @ b.T
    if given.case.out == "bits":
        return (dot >= given.threshold) ^ given.flip
    if given.case.out == "int32":
        return dot.astype(np.int32)
    real = dot.astype(np.float32)
    if given.scale is not None:
        real = real * given.scale
    if given.shift is not None:
        real = real + given.shift
    return real.astype(given.case.out)
