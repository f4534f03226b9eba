"""Lists what a tuner has to do: a kernel for a shape class, with shapes that stand for the class.

The first shape of a class is the one to search with, all are there for the proof: odd sizes and
powers of two among them, as caches dislike the latter.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tilewright.facts.dtypes import sums_of
from tilewright.facts.kernel import Kernel
from tilewright.planning.classes import CLASSES, Boundaries, classify, record_name
from tilewright.tuning.trial import Shape

# Large products are the ones that last.
_WEIGHTS = {"large": 4.0, "small": 2.0}
_PROOFS = 3


@dataclass(frozen=True, slots=True)
class Task:
    """One kernel for one class: shapes of it, the first to search with and all to prove with."""

    kernel: Kernel
    shape_class: str
    shapes: tuple[Shape, ...]
    weight: float = 1.0

    @property
    def record(self) -> str:
        """What its results are filed under."""
        return record_name(self.shapes[0].problem(), self.shape_class)


def tasks(
    kernels: Sequence[Kernel], shapes: Sequence[Shape], boundaries: Boundaries
) -> tuple[Task, ...]:
    """A task for every kernel and every class that the shapes fall into, large classes first."""
    by_class: dict[str, list[Shape]] = {}
    for shape in shapes:
        by_class.setdefault(classify(shape.problem(), boundaries), []).append(shape)
    order = sorted(by_class, key=lambda name: (-_WEIGHTS.get(name, 1.0), CLASSES.index(name)))
    return tuple(
        Task(kernel, name, tuple(by_class[name][:_PROOFS]), _WEIGHTS.get(name, 1.0))
        for name in order
        for kernel in kernels
    )


def representatives(boundaries: Boundaries, dtype: str, layout: str) -> tuple[Shape, ...]:
    """Shapes of every class, for a device with these boundaries."""
    small, big = boundaries.small, max(2 * boundaries.small, 512)
    thin = boundaries.matrix_vector
    wide = max(boundaries.skinny, thin + 1)
    squares = [(size,) * 3 for size in (big, big + big // 2 + 4, 2 * big)]
    squares += [(size,) * 3 for size in (3 * small // 4, small // 2 + 2, small)]
    narrow = [(wide, 1024, 1024), ((thin + wide) // 2 + 1, 515, 1531), (wide, 2048, 512)]
    narrow += [(thin, 1024, 1024), (1, 515, 1531), (1, 2048, 512)]
    turned = [(n, m, k) for m, n, k in narrow] + [(n, k, m) for m, n, k in narrow]
    sums = sums_of(dtype)
    return tuple(Shape(*sides, dtype, sums, layout) for sides in (*squares, *narrow, *turned))


def heaviest(shapes: Sequence[tuple[int, int, int]], model: Shape) -> tuple[Shape, ...]:
    """Distinct shapes with the dtype and layout of `model`, those with the most work first."""
    work: dict[tuple[int, int, int], int] = {}
    for m, n, k in shapes:
        if m and n and k:
            work[m, n, k] = work.get((m, n, k), 0) + m * n * k
    order = sorted(work, key=lambda sides: (-work[sides], sides))
    return tuple(replace(model, m=m, n=n, k=k) for m, n, k in order)
