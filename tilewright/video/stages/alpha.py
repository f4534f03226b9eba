"""Opacity as a film of its own: white where somebody is, black where nobody is."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar

import numpy as np

from tilewright.inputs.devices import host
from tilewright.video.look import FULL_RANGE, UNKNOWN, Frame, Look
from tilewright.video.planes import blank, kernels_of
from tilewright.video.stages.contract import Window, Work, workers_on
from tilewright.video.stages.opacity import plain, steady


@dataclass(frozen=True, slots=True)
class Alpha:
    """Pictures with opacity as grey ones of it, full range, of as many bits."""

    name: ClassVar[str] = "alpha"
    before: ClassVar[int] = 1
    after: ClassVar[int] = 1

    @property
    def workers(self) -> int:
        """A picture a core."""
        return workers_on(host())

    def turned(self, look: Look) -> Look:
        """Grey, in full range. Refuses pictures that have no opacity."""
        bare = plain(self.name, look)
        named = "gray" if look.bits == 8 else f"gray{look.bits}le"
        return replace(
            bare, format=named, kind="grey", halved=(0, 0), range=FULL_RANGE, matrix=UNKNOWN,
            siting="",
        )  # fmt: skip

    def bound(self, look: Look) -> Work:
        """Nothing to make ready but the loops."""
        kernels_of("layers")
        return partial(_shown, self.turned(look))


def _shown(look: Look, window: Window) -> Iterable[Frame]:
    out = blank(window.frame, look)
    most = np.float32((1 << look.bits) - 1)
    out.planes[0][...] = np.rint(steady(window) * most)
    return (out,)
