"""Limits how much measuring may follow a product: a twentieth of the work, little in any call.

Work is what this process has computed since its first product: its processor's seconds, and no more
of them than have passed, so that neither pauses nor other processes' load pay for measuring. A
short product is followed by SLICE seconds at most. What takes longer by itself waits until the
share has saved up for it, and so do builds: in a process of a few seconds all is NumPy's. Measured
before they did, with nothing known of the device: the first 2,000 products took 110 ms, and one of
them 80 to 400 more, in which the driver was opened. A product longer than SLICE is one whose own
time people look at: it is followed by VISIBLE of its seconds, and anything longer comes only after
a pause of which it is a RARELY. Measured before this was so, on two cores: two in eight products of
3072^3 took 331 and 413 ms instead of 185, as a visit began in any slice, however long it would
take.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable

SLICE = 0.05
SHARE = 0.05
VISIBLE = 0.02
RARELY = 1 / 400
# Seconds that can be saved up: more would be a burst of slices, one after every product.
_MOST = 0.5
# What a driver takes to open or to build a program, as far as anybody can know beforehand.
_BUILD = 0.4
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
    """How much of the work since the first product may go, and has gone, into measuring.

    `worked` tells seconds of work; by `clock` alone all that passes is work.
    """

    def __init__(
        self,
        clock: Callable[[], float] = time.perf_counter,
        worked: Callable[[], float] | None = None,
    ) -> None:
        self.clock = clock
        self._worked = worked or clock
        self._seen: tuple[float, float] | None = None
        self._saved, self._ended, self._waits = 0.0, 0.0, -math.inf
        self._process = os.getpid()

    def left(self) -> bool:
        """Whether a slice may begin; never in a forked child, where drivers do not work."""
        now = self.clock()
        if now < self._waits or self._process != os.getpid():
            return False
        work = self._worked()
        if self._seen is None:
            self._seen, self._ended = (now, work), now
        passed = min(now - self._seen[0], work - self._seen[1])
        self._saved = min(self._saved + SHARE * passed, _MOST)
        self._seen = now, work
        if self._saved <= 0:  # asked again where as much has passed as pays for it
            self._waits = now - self._saved / SHARE
        return self._saved > 0

    def room(self, product: float) -> Room | None:
        """What may follow a product of so many seconds; None where that is nothing."""
        if not self.left():
            return None
        may_build = self._saved >= _BUILD
        if product <= SLICE:
            once = min(SLICE, self._saved)
            return Room(once, self._saved, builds=may_build, clock=self.clock)
        pause = RARELY * (self.clock() - self._ended)
        seen = min(VISIBLE * product, self._saved)
        once = max(seen, min(pause, self._saved))
        return Room(seen, once, builds=may_build and pause >= _BUILD, clock=self.clock)

    def spend(self, seconds: float) -> None:
        """Count a slice that ends now; one of nothing found no step that fits, and waits."""
        now = self.clock()
        if seconds > 0:
            self._saved, self._ended = self._saved - seconds, now
        else:
            self._waits = now + max(_WAIT, _WAIT * (now - self._ended))
