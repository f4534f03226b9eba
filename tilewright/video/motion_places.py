"""Where motion between pictures is found: on an NVIDIA GPU, or by the host's loops.

    given a GPU of NVIDIA's, or "auto" where there is one   kernels/film (`backends/cuda/film`)
    anything else                                           `video/motion.py`

Both find the same but for rounding; the kernels add in whole numbers, so that a GPU gives the same
samples each time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from tilewright import settings
from tilewright.arrays.array import NDArray
from tilewright.backends.cuda.film.plan import Plan
from tilewright.backends.cuda.machine import driver, nvrtc
from tilewright.facts.device import Device
from tilewright.inputs.devices import gpu, host, resolve
from tilewright.video import motion
from tilewright.video.fusion import fusion
from tilewright.video.look import Frame, Look


class Engine(Protocol):
    """Finds motion between two pictures, and makes those between them."""

    def given(self, first: Frame, second: Frame) -> None:
        """Look at two pictures."""

    def repeats(self) -> bool:
        """Whether the two are the same, but for what coding left."""

    def found(self) -> None:
        """Find motion between the two, both ways, and what stands still."""

    def between(self, share: float, out: tuple[NDArray, ...]) -> float:
        """Write planes of the picture at a share of the time; how much of it is unsure."""


def place_of(wanted: Device | str) -> Device:
    """The device that `device=` means: "auto" is TILEWRIGHT_DEVICE, else a GPU, else the host.

    The host where that is none of NVIDIA's GPUs: others have no kernels of motion.
    """
    if wanted != "auto" or settings.device():
        found = resolve(None if wanted == "auto" else wanted)
    else:
        found = gpu(0) if driver.found() else host()
    runs = found.backend == "cuda" and nvrtc.is_cuda(driver.ordinal_of(found))
    return found if runs else host()


def engine_on(device: Device, look: Look, net: str = "none") -> Engine:
    """Memory for pictures of one look, on what `place_of` gave; on the host with a network too."""
    if device.backend != "host":
        return _OnGpu(device, look)
    return motion.Motion(look, fusion(net, look))


def plan_of(look: Look) -> Plan:
    """Sizes of pictures and of their motion, as the host has them."""
    sizes = motion.sizes_of(look)
    return Plan(tuple(look.shapes), look.bits, tuple(sizes), motion.finest_of(look, sizes))


class _OnGpu:
    def __init__(self, device: Device, look: Look) -> None:
        from tilewright.backends.cuda.film.engine import FilmMotion

        ordinal = driver.ordinal_of(device)
        self._engine = FilmMotion(plan_of(look), ordinal, motion.SAME, motion.UNSURE)

    def given(self, first: Frame, second: Frame) -> None:
        self._engine.given(first.planes, second.planes)

    def repeats(self) -> bool:
        return self._engine.repeats()

    def found(self) -> None:
        self._engine.found()

    def between(self, share: float, out: Sequence[NDArray]) -> float:
        return self._engine.between(share, out)
