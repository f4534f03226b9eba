"""Ten bits out of eight, so that what comes after, and the encoder, have finer steps.

Where a plane rises so slowly that eight bits cut it into bands, its samples become the mean of up
to 65 x 65 round them, which is what stood there before it was rounded; edges and grain stay.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar

import numpy as np

from tilewright.errors import ArgumentError
from tilewright.video.look import FULL_RANGE, Frame, Look, planar
from tilewright.video.planes import blank, flat, kernels_of
from tilewright.video.stages.contract import Window, Work


@dataclass(frozen=True, slots=True)
class TenBit:
    """Samples of ten bits."""

    name: ClassVar[str] = "ten-bit"
    before: ClassVar[int] = 0
    after: ClassVar[int] = 0
    workers: ClassVar[int] = 1

    def turned(self, look: Look) -> Look:
        """The same in ten bits. Refuses what has not eight, is packed or interlaced."""
        if look.bits != 8 or look.kind == "packed" or look.interlaced:
            what = f"interlaced {look.format}" if look.interlaced else look.format
            raise ArgumentError(
                f"ten-bit: samples are {what} of {look.bits} bits; accepted are whole pictures of"
                " planes of 8 bits, as yuv420p"
            )
        return replace(look, bits=10, format=planar(look.format, bits=10))

    def bound(self, look: Look) -> Work:
        """Nothing to make ready but the loops."""
        kernels_of("bands")
        return partial(_deepened, self.turned(look))


def _deepened(look: Look, window: Window) -> Iterable[Frame]:
    out = blank(window.frame, look)
    scale = 1023 / 255 if look.range == FULL_RANGE else 4
    for plane, to in zip(window.frame.planes, out.planes, strict=True):
        source, pitch = flat(plane)
        into, pitch_out = flat(to)
        kernels_of("bands").deepen(
            source, pitch, *plane.shape, into, pitch_out, np.float32(scale), np.float32(1023)
        )
    return (out,)
