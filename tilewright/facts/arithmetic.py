"""What arithmetic a ragged product is asked for, in one word: operators of torch take strings.

"ieee"        "tf32"        "fp32x"          how float32 is rounded before it is multiplied
"ieee alone"  "tf32 alone"  "fp32x alone"    the same, and a row's bits depend on that row alone

fp32x is as exact as IEEE's, by whatever is fastest.
"""

from __future__ import annotations

OF_SINGLES = ("tf32", "fp32x")  # what float32 alone may be asked for
_ALONE = " alone"


def asked(precision: str | None, *, alone: bool = False) -> str:
    """The word for a precision, None being IEEE's, and for `batch_invariant`."""
    return (precision or "ieee") + _ALONE * alone


def rounding(word: str) -> str:
    """How float32 is rounded: "ieee", "tf32" or "fp32x"."""
    return word.removesuffix(_ALONE)


def is_alone(word: str) -> bool:
    """Whether a row of a result may depend on its own row, its matrix and its bias only."""
    return word.endswith(_ALONE)
