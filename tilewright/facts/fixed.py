"""`Fixed`: a record whose arrays nobody can write to.

Plans and layouts are found again by sizes and shared by all who ask: an element that one of them
changed would send later kernels to another's memory.
"""

from __future__ import annotations

import numpy as np


class Fixed:
    """What frozen dataclasses with columns inherit."""

    def __post_init__(self) -> None:
        for value in vars(self).values():
            if isinstance(value, np.ndarray):
                value.flags.writeable = False
