"""What compression did taken out, by a network: blocks, and rings round edges.

The network sees for itself how strong the damage is. It is told what made it, a picture's JPEG or a
film's codec, as the two differ; pictures come in sixteen bits, which films never have.

Of what it says of a film 0.85 is added. It learned from films that were encoded once; many were
encoded before, and no measure of a picture tells the older damage, which the film is judged by,
from its own. Over training photographs encoded once and twice, equally many, 0.85 gains most with
size m (+0.46 dB), and no less with s than all of it (+0.38). A film encoded once gains 0.03 dB less
by it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tilewright.video.look import Frame, Look
from tilewright.video.stages.contract import Work
from tilewright.video.stages.restore import Means, Restoring

STILL, FILM = 0.0, 1.0  # what the network is told
_DEEP = 16  # bits that pictures have
_PLANES = 3
_SHARE = 0.85  # of films


@dataclass(frozen=True, slots=True)
class Deblock:
    """Pictures with less of what compression did to them.

    size    "s" or "m": the networks `deblock-s` and `-m` of `tilewright.models`
    dtype   "float32", "float16" or "int8"
    device  where the network runs, as of `Network.bind`
    """

    size: str = "s"
    dtype: str = "float32"
    device: str = "auto"

    name: ClassVar[str] = "deblock"
    before: ClassVar[int] = 0
    after: ClassVar[int] = 0

    @property
    def card(self) -> str:
        """The network's name, whose card `tilewright.models` has."""
        return f"deblock-{self.size}"

    @property
    def workers(self) -> int:
        """A picture a core; on other devices one after the other."""
        return self._means().workers

    def turned(self, look: Look) -> Look:
        """The same look. Refuses interlaced pictures, and what has no plane of luma."""
        self._means().check(look)
        return look

    def bound(self, look: Look) -> Work:
        """The network bound for luma and for chroma, once."""
        kind, share = (STILL, 1.0) if look.bits == _DEEP else (FILM, _SHARE)

        def told(frame: Frame, planes: int) -> list[float]:
            return [kind] * planes

        return Restoring(self._means(), look, told, _PLANES, share)

    def _means(self) -> Means:
        return Means("deblock", self.size, self.dtype, self.device)
