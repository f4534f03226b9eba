"""Numbers things within their runs, where runs of unlike lengths lie one behind another.

>>> within(np.array([2, 0, 3])).tolist()
[0, 1, 0, 1, 2]
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt


def within(counts: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Of every element of runs of so many which of its run it is, from 0 on."""
    ends = np.cumsum(counts)
    total = int(ends[-1]) if len(ends) else 0
    found: npt.NDArray[Any] = np.arange(total) - np.repeat(ends - counts, counts)
    return found
