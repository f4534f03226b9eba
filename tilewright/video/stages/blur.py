"""The background blurred, or the person: the former to look at, the latter so that nobody is seen.

Blurred backgrounds are of background alone, so that nobody throws a halo. A person is covered with
all that was theirs in the two pictures before and after too, and some samples more: what is blurred
in one picture and open in the next is not hidden.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import numpy as np

from tilewright.arrays.array import NDArray
from tilewright.errors import ArgumentError
from tilewright.inputs.devices import host
from tilewright.video.look import Frame, Look
from tilewright.video.planes import flat, kernels_of
from tilewright.video.stages.contract import Window, Work, workers_on
from tilewright.video.stages.opacity import laid, plain, softened, steady

WHAT = ("background", "person")
SOFT, HIDDEN = 0.05, 0.12  # of the height that a blur reaches; in less one reads a coarse text
OPEN = 0.06  # of opacity: what has more is covered
_MORE = 90  # rows of a picture a sample that a cover is larger all round


@dataclass(frozen=True, slots=True)
class Blur:
    """Pictures with opacity, one side of it blurred; without opacity afterwards.

    what    "background" or "person"
    amount  how far the blur reaches, about, as a share of the height: 0.01 to 0.5; None takes 0.05
            for a background and 0.12 where nobody is to be known
    """

    what: str = "background"
    amount: float | None = None

    name: ClassVar[str] = "blur"

    @property
    def hides(self) -> bool:
        """Whether it is there so that nobody is seen."""
        return self.what != "background"

    @property
    def before(self) -> int:
        """One picture, to hold opacity still; two for whom nobody is to see."""
        return 2 if self.what == "person" else 1

    @property
    def after(self) -> int:
        """As many."""
        return self.before

    @property
    def workers(self) -> int:
        """A picture a core."""
        return workers_on(host())

    @property
    def reach(self) -> float:
        """The amount that is taken."""
        if self.amount is not None:
            return self.amount
        return HIDDEN if self.hides else SOFT

    def turned(self, look: Look) -> Look:
        """The same look without opacity. Refuses pictures that have none."""
        if self.what not in WHAT or not 0.01 <= self.reach <= 0.5:
            raise ArgumentError(
                f"blur: what={self.what!r}, amount={self.amount!r}; accepted are"
                f" {', '.join(WHAT)}, and 0.01 to 0.5"
            )
        return plain(self.name, look)

    def bound(self, look: Look) -> Work:
        """Nothing to make ready but the loops."""
        kernels_of("layers")
        made = _hidden if self.what == "person" else _behind
        return partial(made, self.turned(look), self.reach)


def _behind(look: Look, amount: float, window: Window) -> Iterable[Frame]:
    alpha = steady(window)
    under = softened(window.frame, alpha, amount, aside=True)
    return (laid(window.frame, look, alpha, under, above=True),)


def _hidden(look: Look, amount: float, window: Window) -> Iterable[Frame]:
    cover = covering((*window.before, window.frame, *window.after))
    over = softened(window.frame, cover, amount, aside=False)
    return (laid(window.frame, look, cover, over, above=False),)


def covering(frames: Iterable[Frame]) -> NDArray:
    """1 over all that is not surely open in one of some pictures, and falling off round it."""
    run, several = kernels_of("layers"), list(frames)
    look = several[0].look
    small = np.zeros((-(-look.height // 2), -(-look.width // 2)), np.float32)
    for frame in several:
        limit = int(OPEN * ((1 << look.bits) - 1))
        run.covered(*flat(frame.planes[-1]), look.height, look.width, limit, small)
    more = max(2, look.height // _MORE // 2)
    wider, soft = np.empty_like(small), np.empty_like(small)
    kernels_of("mattes").grown(small, 2 * more, wider)
    kernels_of("mattes").boxed(wider, more, soft)
    found = np.empty((look.height, look.width), np.float32)
    run.spread(soft, found)
    return found
