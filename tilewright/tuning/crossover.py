"""Finds which products a device runs faster than NumPy's BLAS, by curves measured of both.

Until they are known every product on the host's arrays is NumPy's, so that a first call costs what
opening the drivers does. They are measured in slices (share.py says how long they are, visits.py
has the points, probe.py visits them): after a product that they would have decided, in the thread
that asked for it, and never begun where what they would take by the curves so far is more than may
be spent. Threads of our own would take the processor while the user works, and drivers do not
forgive a process that ends under their compiler. What was found is stored after every slice, per
device, driver, dtype and version of the kernels, so that the next process goes on with it.

Curves are checked as time goes by, and measured anew where a check or 16 products in a row
contradict them: whoever measured under load believes it for ten minutes, not for ever. No call
waits for another's slice.
"""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Callable
from functools import cache

import numpy as np

from tilewright.backends.host.blas import blas
from tilewright.engines.backend import Backend
from tilewright.errors import DeviceError, KernelError
from tilewright.facts.device import Device
from tilewright.facts.kernel import Plan, Priors
from tilewright.planning.cost import Measured
from tilewright.remember import Shelf, open_after_fork
from tilewright.tuning import store
from tilewright.tuning.curves import from_json, to_json
from tilewright.tuning.probe import Probe, WrongResultError, bandwidth
from tilewright.tuning.share import Room, Share
from tilewright.tuning.visits import Point, Visits, visits_of

# Products in a row that all took this many times what was predicted, or this little of it.
_RUNS = 16
_SLOWER, _FASTER = 1.6, 0.6
# A check finds less than this share of what was measured: it was measured under load.
_LESS = 0.85
# Seconds between two checks: as long as the curves have held, within these.
_CHECKS = (600.0, 30 * 86400.0)

_measuring = open_after_fork(threading.Lock())
_changed: list[Callable[[], object]] = []


class Campaign:
    """What is known of one device and dtype, and what is still to be measured of it."""

    def __init__(self, device: Device, backend: Backend, dtype: str, priors: Priors) -> None:
        self.key, self.dtype = _key(device, priors), dtype
        self._device, self._backend, self._priors = device, backend, priors
        self._probe: Probe | None = None
        document = store.load(self.key)
        self.measured = _stored(document, dtype)
        self.visits, self._since, self._checked, unfinished = _stored_visits(document, dtype)
        self._again = self.measured is None or unfinished
        self._doubted: list[Point] | None = None
        self._ratios: list[float] = []

    @property
    def settled(self) -> bool:
        """Whether there is nothing to measure now."""
        return not self._again and not self._check_is_due()

    def saw(self, ratio: float) -> None:
        """A product took `ratio` times what the curves predict; measured anew where many agree."""
        self._ratios = [*self._ratios[1 - _RUNS :], ratio]
        if len(self._ratios) < _RUNS or self._again:
            return
        if min(self._ratios) > _SLOWER or max(self._ratios) < _FASTER:
            self._ratios = []
            self._begin_again(Visits())

    def advance(self, room: Room) -> bool:
        """Measure as long as there is room and something left, and store what was found.

        Returns whether anything was done. Raises DeviceError where the device does not open: of
        that nothing is stored.
        """
        if self._probe is None:
            if not room.may_build():
                return False
            self._probe = Probe(self._device, self._backend, self.dtype, self._priors)
        with self._probe as probe:
            done = self._visit(probe, room) if self._again else self._check(probe, room)
        if done:
            self._save()
        return done

    def give_up(self) -> None:
        """Measure no more in this process."""
        self._again, self._checked, self._since = False, time.time(), 0.0

    def _begin_again(self, visits: Visits) -> None:
        self.visits, self._again, self._since = visits, True, time.time()

    def _visit(self, probe: Probe, room: Room) -> bool:
        """Whether anything was measured."""
        done = False
        while due := self.visits.due(probe.kernels, probe.computed):
            point = next((one for one in due if self._fits(probe, one, room)), None)
            if point is None:
                return done
            done = True
            if not self._one(probe, point, room):
                return True
        if not room.fits(probe.last_cost()):
            return done
        self._assemble(probe)
        return True

    def _check(self, probe: Probe, room: Room) -> bool:
        """Visit what decides the crossover once more; less than was measured means: all anew.

        Returns whether anything was measured.
        """
        if self._doubted is None:
            self._doubted = self.visits.doubted(probe.kernels)
        done = False
        while self._doubted:
            point = self._doubted[0]
            if not self._fits(probe, point, room):
                return done
            done = True
            before = self.visits.least(point)
            if not self._one(probe, point, room):
                return True
            self._doubted.pop(0)
            after = self.visits.least(point)
            if before is not None and after is not None and after < _LESS * before:
                self._doubted = None
                self.visits.again()
                self._begin_again(self.visits)
                return True
        self._doubted, self._checked = None, time.time()
        return True

    def _fits(self, probe: Probe, point: Point, room: Room) -> bool:
        if not probe.is_ready(point):
            return room.may_build()
        return room.fits(probe.cost(point, self.visits.predicted(point, probe.computed)))

    def _one(self, probe: Probe, point: Point, room: Room) -> bool:
        predicted = self.visits.predicted(point, probe.computed)
        try:
            seconds = probe.visit(point, predicted, room)
        except WrongResultError:
            self.visits.wrong.add(point[0])
            self.visits.fail(point[0])
            return True
        except (DeviceError, KernelError):
            self.visits.fail(point[0])
            return True
        finally:
            room.used()
        if seconds is not None:
            self.visits.add(point, seconds)
        return seconds is not None

    def _assemble(self, probe: Probe) -> None:
        self.measured = self.visits.measured(
            probe.kernels, probe.computed, bandwidth(), probe.transfer
        )
        self._again = False
        self._since = self._checked = time.time()
        for tell in _changed:
            tell()

    def _check_is_due(self) -> bool:
        now, least, most = time.time(), *_CHECKS
        held = min(max(self._checked - self._since, least), most)
        return not 0 <= now - self._checked < held

    def _save(self) -> None:
        def change(content: store.Content) -> store.Content:
            others, since, *_ = _stored_visits(content, self.dtype)
            if since == self._since:  # another process is at the same curves
                self.visits.merge(others)
            times = {"since": self._since, "checked": self._checked, "unfinished": self._again}
            visits = {**self.visits.as_dict(), **times}
            known = {} if self.measured is None else {self.dtype: to_json(self.measured)}
            return {**content, **known, f"{self.dtype} visits": visits}

        store.update(store.MEASURED, store.digest(self.key), change, self.key)


_campaigns: Shelf[tuple[str, str], Campaign] = Shelf("curves of devices", most=4 << 20)
_CAMPAIGN_BYTES = 64 << 10
_share = Share(worked=time.process_time)


def known(device: Device, backend: Backend, dtype: str, priors: Priors) -> Measured | None:
    """The curves of a device for one dtype, from memory or the store; nothing is measured."""
    return _campaign(device, backend, dtype, priors).measured


def settled(device: Device, backend: Backend, dtype: str, priors: Priors) -> bool:
    """Whether curves are known and no check of them is due."""
    return _campaign(device, backend, dtype, priors).settled


def measured(device: Device, backend: Backend, dtype: str, priors: Priors) -> Measured:
    """The curves, all that is missing of them measured now: seconds, minutes on slow devices."""
    campaign = _campaign(device, backend, dtype, priors)
    with _measuring:
        while campaign.measured is None:
            campaign.advance(Room())
    return campaign.measured


def after(plan: Plan, backend: Backend, seconds: float, *, host_operands: bool) -> None:
    """A product was made by `plan`: learn from its seconds, and measure as long as may be.

    Returns at once where nothing is to be measured, where the share is spent, and where another
    thread is at it. Seconds of operands on a device are not compared with the plan's: it may still
    be at work.
    """
    device, dtype = plan.device, plan.problem.dtype
    campaign = _campaign(device, backend, dtype, backend.priors(device))
    if host_operands and plan.seconds:
        campaign.saw(seconds / plan.seconds)
    if campaign.settled or (room := _share.room(seconds)) is None:
        return
    if not _measuring.acquire(blocking=False):
        return
    begun, done = _share.clock(), True
    try:
        done = campaign.advance(room)
    except DeviceError:  # the product at hand was made: nobody asked for more
        campaign.give_up()
    finally:
        _share.spend(_share.clock() - begun if done else 0.0)
        _measuring.release()


def is_quiet() -> bool:
    """Whether no slice may begin now, whatever there is to measure."""
    return not _share.left()


def on_change(tell: Callable[[], object]) -> None:
    """Have `tell` called whenever curves become known or others: plans made before are old."""
    _changed.append(tell)


def _campaign(device: Device, backend: Backend, dtype: str, priors: Priors) -> Campaign:
    key = (_key(device, priors), dtype)
    return _campaigns.found(
        key, lambda: Campaign(device, backend, dtype, priors), lambda _: _CAMPAIGN_BYTES
    )


def _key(device: Device, priors: Priors) -> str:
    return f"crossover|{device.key}|{priors.digest}|{_host_digest()}"


@cache
def _host_digest() -> str:
    built = np.show_config(mode="dicts")
    return hashlib.sha256(repr((built, blas())).encode()).hexdigest()[:8]


def _stored(document: store.Content, dtype: str) -> Measured | None:
    if dtype not in document:
        return None
    try:
        return from_json(document[dtype])
    except (AttributeError, KeyError, TypeError, ValueError):
        return None  # written by hand or by another version: to be measured again and replaced


def _stored_visits(document: store.Content, dtype: str) -> tuple[Visits, float, float, bool]:
    """Visits, since when the curves hold, when they were checked last, and whether some lack."""
    try:
        part = document[f"{dtype} visits"]
        times = float(part["since"]), float(part["checked"])
        return visits_of(part), *times, part.get("unfinished") is True
    except (AttributeError, KeyError, TypeError, ValueError):
        return Visits(), 0.0, 0.0, False
