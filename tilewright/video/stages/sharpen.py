"""Sharper luma: every sample a little further from the mean of its neighbours (unsharp mask)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import numpy as np

from tilewright.errors import ArgumentError
from tilewright.video.look import Frame, Look
from tilewright.video.planes import blank, flat, kernels
from tilewright.video.stages.contract import Window, Work, check_luma

MOST = 4.0


@dataclass(frozen=True, slots=True)
class Sharpen:
    """Luma sharpened; chroma and opacity stay.

    amount  of the difference from the mean of 3 x 3 that is added, from 0 to 4
    """

    amount: float = 0.6

    name: ClassVar[str] = "sharpen"
    before: ClassVar[int] = 0
    after: ClassVar[int] = 0
    workers: ClassVar[int] = 1

    def turned(self, look: Look) -> Look:
        """The same look. Refuses interlaced pictures, and what has no plane of luma."""
        if not 0 <= self.amount <= MOST:
            raise ArgumentError(f"sharpen: amount={self.amount!r}; accepted are 0 to {MOST:g}")
        check_luma(self.name, look)
        return look

    def bound(self, look: Look) -> Work:
        """Nothing to make ready but the loops."""
        kernels()
        return partial(_sharpened, self.amount)


def _sharpened(amount: float, window: Window) -> Iterable[Frame]:
    frame = window.frame
    out = blank(frame, frame.look)
    source, pitch = flat(frame.planes[0])
    into, pitch_out = flat(out.planes[0])
    most = np.float32((1 << frame.look.bits) - 1)
    shape = frame.planes[0].shape
    kernels().sharpen(source, pitch, *shape, into, pitch_out, np.float32(amount), most)
    for plane, to in zip(frame.planes[1:], out.planes[1:], strict=True):
        to[...] = plane
    return (out,)
