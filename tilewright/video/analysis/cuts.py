"""Where a film's scenes begin: pictures that are unlike the one before, and their neighbours not.

Motion makes pictures unlike each other for a while, a cut once: the difference of a picture from
the one before is held against those of the six before and after it, as Yeo and Liu did (1995), and
the two pictures must not correlate. A flash makes two differences beside each other, and no cut.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tilewright.arrays.array import NDArray
from tilewright.video.analysis.small import shrunk
from tilewright.video.look import Frame
from tilewright.video.tables import LIGHT, span

ROWS = 24  # of the pictures that are compared
_NEAR, _TIMES = 6, 2.0
_LEAST, _ALIKE = 10.0, 0.5  # mean difference, of 255; correlation


@dataclass(frozen=True, slots=True)
class Step:
    """How unlike the picture before one is: mean difference of light, 0 to 255; correlation."""

    apart: float
    alike: float

    @property
    def large(self) -> bool:
        """Whether it may be a cut, if its neighbours are small."""
        return self.apart > _LEAST and self.alike < _ALIKE


def tiny(frame: Frame) -> NDArray:
    """A picture's light, 0 to 255, in about 24 rows."""
    plane = frame.planes[0]
    block = max(1, round(min(plane.shape) / ROWS))
    skip = max(1, block // 4)  # of a large picture some samples are enough
    black, wide = span(frame.look)
    found: NDArray = (shrunk(plane[::skip, ::skip], max(1, block // skip)) - black) * (LIGHT / wide)
    return found


def step(before: NDArray, now: NDArray) -> Step:
    """From one picture to the next, as `tiny` makes them."""
    a, b = before - before.mean(), now - now.mean()
    both = float(np.sqrt((a * a).sum() * (b * b).sum()))
    # Of pictures that are even all over nothing correlates: they are alike where light is.
    alike = float((a * b).sum()) / both if both > a.size else 0.0
    return Step(float(np.abs(now - before).mean()), alike)


def cuts(steps: Sequence[Step]) -> tuple[int, ...]:
    """Numbers of the pictures that scenes begin with; steps[0] leads to picture 1."""
    found = []
    for number, one in enumerate(steps):
        near = [*steps[max(0, number - _NEAR) : number], *steps[number + 1 : number + 1 + _NEAR]]
        most = max((other.apart for other in near), default=0.0)
        if one.large and one.apart > _TIMES * most:
            found.append(number + 1)
    return tuple(found)
