"""Shape classes: what a configuration is tuned for, with boundaries measured on the device.

    host            NumPy's BLAS is faster: found by the curves of planning/cost.py, not here
    matrix-vector   one side so narrow that its width costs nothing: the bytes alone are paid
    skinny          one side so narrow that the kernels lose rate by it
    small           a square so small that launches, packing and idle units show
    large           the rest

Matrix-vector and skinny come with the side that is narrow, as a row of twelve sums fits m = 4 and
n = 4 differently. Adding a class is adding it to `classify` and to `_NEAR`.
"""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.facts.kernel import Config
from tilewright.facts.problem import Problem

# A side is narrow where the next larger one is this many times as long.
_NARROW = 4


@dataclass(frozen=True, slots=True)
class Boundaries:
    """Where one class ends: widths for the narrow side, the side of a square for `small`.

    The defaults are no measurement, and `measured` says so.
    """

    matrix_vector: int = 1
    skinny: int = 16
    small: int = 256
    measured: bool = False


UNMEASURED = Boundaries()


@dataclass(frozen=True, slots=True)
class Tuned:
    """A configuration that beat the kernel's default where both ran in turns.

    `ratio` is its time over the default's on that shape of `shape_class` where it gained least;
    `origin` says where the record was found, in words.
    """

    kernel: str
    config: Config
    ratio: float
    shape_class: str
    origin: str


def classify(problem: Problem, boundaries: Boundaries) -> str:
    """The class of a problem: "large", "small", "skinny n", "matrix-vector m", ..."""
    sides = {"m": problem.m, "n": problem.n, "k": problem.k}
    name = min(sides, key=lambda side: sides[side])
    narrow, middle, _ = sorted(sides.values())
    if middle >= _NARROW * narrow:
        if narrow <= boundaries.matrix_vector:
            return f"matrix-vector {name}"
        if narrow <= boundaries.skinny:
            return f"skinny {name}"
    return "small" if problem.flops <= 2 * boundaries.small**3 else "large"


_NEAR: dict[str, tuple[str, ...]] = {"small": ("large",), "large": ("small",)}
for _side in "mnk":
    _NEAR[f"matrix-vector {_side}"] = (f"skinny {_side}",)
    _NEAR[f"skinny {_side}"] = (f"matrix-vector {_side}", "large", "small")
CLASSES = tuple(_NEAR)


def nearest(shape_class: str) -> tuple[str, ...]:
    """The class itself and those whose configurations may serve it, the nearest first."""
    return (shape_class, *_NEAR[shape_class])


def layout_of(problem: Problem) -> str:
    """Along which dimension A's and B's neighbours lie: "rows-rows" is row-major twice."""

    def along(row: int, col: int) -> str:
        if col == 1:
            return "rows"
        return "columns" if row == 1 else "strided"

    first = along(problem.a_row, problem.a_col)
    return f"{first}-{along(problem.b_row, problem.b_col)}"


def record_name(problem: Problem, shape_class: str) -> str:
    """What a tuned configuration is filed under, within a kernel and a device."""
    return f"{problem.dtype} {problem.accumulate} {layout_of(problem)} {shape_class}"


def record_words(name: str) -> str:
    """A record's name as people read it: the type of the sums only where it is another.

    >>> record_words("float32 float32 rows-rows large")
    'float32 rows-rows large'
    >>> record_words("float16 float32 rows-rows row")
    'float16 summed in float32 rows-rows row'
    """
    dtype, accumulate, *rest = name.split(" ")
    sums = [] if accumulate == dtype else ["summed in", accumulate]
    return " ".join([dtype, *sums, *rest])


def describe(problem: Problem, boundaries: Boundaries) -> str:
    """The class of a problem and every boundary, in words."""
    known = "measured" if boundaries.measured else "assumed, not measured"
    return (
        f"{classify(problem, boundaries)} (matrix-vector to a narrow side of"
        f" {boundaries.matrix_vector}, skinny to {boundaries.skinny}, small to"
        f" {boundaries.small}^3; {known})"
    )
