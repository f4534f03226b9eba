"""What arithmetic a ragged product is asked for, in one word: operators of torch take strings.

"ieee"        "tf32"          how float32 is rounded before it is multiplied
"ieee alone"  "tf32 alone"    the same, and a row's bits depend on that row alone
"""

from __future__ import annotations

_ALONE = " alone"


def asked(precision: str | None, *, alone: bool = False) -> str:
    """The word for a precision, None being IEEE's, and for `batch_invariant`."""
    return (precision or "ieee") + _ALONE * alone


def rounding(word: str) -> str:
    """How float32 is rounded: "ieee" or "tf32"."""
    return word.removesuffix(_ALONE)


def is_alone(word: str) -> bool:
    """Whether a row of a result may depend on its own row, its matrix and its bias only."""
    return word.endswith(_ALONE)
