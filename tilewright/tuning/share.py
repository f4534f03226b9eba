"""Limits how much measuring may follow a product: a tenth of the time in all, little in any call.

A short product is followed by SLICE seconds at most. What takes longer by itself waits until the
share has saved up for it. A product longer than SLICE is one whose own time people look at: it is
followed by VISIBLE of its seconds, and anything longer comes only after a pause of which it is a
RARELY. Measured before this was so, on two cores: two in eight products of 3072^3 took 331 and
413 ms instead of 185, as a visit began in any slice, however long it would take.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable

SLICE = 0.05
SHARE = 0.1
VISIBLE = 0.02
RARELY = 1 / 400
# Seconds that can be saved up: more would be a burst of slices, one after every product.
_MOST = 0.5
# What a driver takes to open or to build a program, as far as anybody can know beforehand.
_BUILD = 0.2
# Seconds until one more slice is tried where no step fitted; products take the short way then.
_WAIT = 0.1


class Room:
    """Seconds for measuring, from now on; the first step may take `once` where that is more.

    `builds`: whether a driver may be opened or a program built, of which nobody knows how long it
    takes.
    """

    def __init__(
        self,
        seconds: float = math.inf,
        once: float = math.inf,
        *,
        builds: bool = True,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._clock, self._end = clock, clock() + seconds
        self._once, self._builds = once, builds

    def left(self) -> float:
        """Seconds; below 0 where they were exceeded."""
        return self._end - self._clock()

    def fits(self, seconds: float) -> bool:
        """Whether a step that is predicted to take so long may begin."""
        return seconds <= max(self._once, self.left())

    def may_build(self) -> bool:
        """Whether a build may begin: at most one after a product."""
        return self._builds and self.fits(0.0)

    def used(self) -> None:
        """A step was made: what follows has to fit into what is left."""
        self._once = -math.inf


class Share:
    """How much of the time since the first product may go, and has gone, into measuring."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self.clock = clock
        self._seen: float | None = None
        self._saved, self._ended, self._waits = 0.0, 0.0, -math.inf
        self._process = os.getpid()

    def left(self) -> bool:
        """Whether a slice may begin; never in a forked child, where drivers do not work."""
        now = self.clock()
        if self._seen is None:
            self._seen = self._ended = now
        self._saved = min(self._saved + SHARE * (now - self._seen), _MOST)
        self._seen = now
        return self._process == os.getpid() and self._saved > 0 and now >= self._waits

    def room(self, product: float) -> Room | None:
        """What may follow a product of so many seconds; None where that is nothing."""
        if not self.left():
            return None
        if product <= SLICE:
            return Room(SLICE, max(SLICE, self._saved), clock=self.clock)
        pause = RARELY * (self.clock() - self._ended)
        seen = VISIBLE * product
        return Room(seen, max(seen, pause), builds=pause >= _BUILD, clock=self.clock)

    def spend(self, seconds: float) -> None:
        """Count a slice that ends now; one of nothing found no step that fits, and waits."""
        now = self.clock()
        if seconds > 0:
            self._saved, self._ended = self._saved - seconds, now
        else:
            self._waits = now + max(_WAIT, _WAIT * (now - self._ended))
