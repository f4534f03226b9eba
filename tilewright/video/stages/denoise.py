"""Noise taken out, by a network that is told how strong it is.

Left out, the strength is estimated: of a film before its first picture is made, the median of its
samples; of single pictures from differences across the diagonal, whose median edges hardly move
(Donoho and Johnstone 1994, of the finest wavelets).

That is luma's. Chroma has less of a camera's noise, which it mixes and halves: each of its planes
is estimated in every picture and told that, or luma's strength where it is less. Told luma's, with
noise of 10, 25 and 50 of red, green and blue, chroma of 4:2:0 came out 3.9, 3.4 and 13 dB worse.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from statistics import median
from typing import ClassVar

import numpy as np

from tilewright.arrays.array import NDArray
from tilewright.errors import ArgumentError
from tilewright.video.analysis.record import Survey
from tilewright.video.look import Frame, Look
from tilewright.video.stages.contract import Work
from tilewright.video.stages.restore import Means, Restoring

LOUDEST = 75.0  # in codes of eight bits
_MEDIAN = 0.6745  # of the size of what is Gaussian with deviation 1
_PLANES = 3


@dataclass(frozen=True, slots=True)
class Denoise:
    """Pictures with less noise; details that noise hides go with it.

    sigma   the deviation of luma's noise, in codes of eight bits, 0 to 75; None estimates it.
            Chroma's is estimated, and taken for no more than that
    size    "s" or "m": the networks `denoise-s` and `-m` of `tilewright.models`
    dtype   "float32" or "float16"
    device  where the network runs, as of `Network.bind`
    """

    sigma: float | None = None
    size: str = "s"
    dtype: str = "float32"
    device: str = "auto"

    name: ClassVar[str] = "denoise"
    before: ClassVar[int] = 0
    after: ClassVar[int] = 0

    @property
    def card(self) -> str:
        """The network's name, whose card `tilewright.models` has."""
        return f"denoise-{self.size}"

    @property
    def workers(self) -> int:
        """A picture a core; on other devices one after the other."""
        return self._means().workers

    def turned(self, look: Look) -> Look:
        """The same look. Refuses interlaced pictures, and what has no plane of luma."""
        if self.sigma is not None and not 0 <= self.sigma <= LOUDEST:
            raise ArgumentError(
                f"denoise: sigma={self.sigma!r}; accepted are 0 to {LOUDEST:g}, and None"
            )
        self._means().check(look)
        return look

    @property
    def unfitted(self) -> bool:
        """Whether the strength has yet to be found."""
        return self.sigma is None

    def fitted(self, survey: Survey) -> Denoise:
        """With one strength for the whole film: the median of its samples'."""
        if self.sigma is not None:
            return self
        seen = median(sample.noise for sample in survey.samples)
        return replace(self, sigma=min(LOUDEST, seen))

    def bound(self, look: Look) -> Work:
        """The network bound for luma and for chroma, once."""

        def told(frame: Frame, planes: int) -> list[float]:
            luma = seen(frame) if self.sigma is None else self.sigma
            chroma = (min(luma, seen(frame, plane)) for plane in range(1, planes))
            return [one / 255 for one in (luma, *chroma)]

        return Restoring(self._means(), look, told, _PLANES)

    def _means(self) -> Means:
        return Means("denoise", self.size, self.dtype, self.device)


def seen(frame: Frame, plane: int = 0) -> float:
    """The deviation of noise in a plane of a picture, in codes of eight bits, 0 to 75."""
    return min(LOUDEST, strength(frame.planes[plane]) * 255 / ((1 << frame.look.bits) - 1))


def strength(plane: NDArray) -> float:
    """Deviation of noise in a plane, in its own codes; 0 where it is smaller than 2 x 2."""
    x = plane[: plane.shape[0] // 2 * 2, : plane.shape[1] // 2 * 2].astype(np.float32)
    if not x.size:
        return 0.0
    across = (x[::2, ::2] - x[::2, 1::2] - x[1::2, ::2] + x[1::2, 1::2]) / 2
    return float(np.median(np.abs(across))) / _MEDIAN
