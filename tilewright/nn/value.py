"""What a layer takes and gives, without the numbers: real or bits, height, width, channels.

    real   float32 [N, H, W, C]          bits   {-1, +1} [N, H, W, C]

Vectors are images of one pixel. A layer that wants reals takes bits too, as -1.0 and +1.0.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Kind = Literal["real", "bits"]


@dataclass(frozen=True, slots=True)
class Value:
    """What a layer gives for one input: its kind and sizes."""

    kind: Kind
    height: int
    width: int
    channels: int

    @property
    def size(self) -> int:
        """Elements."""
        return self.height * self.width * self.channels
