"""Where motion between pictures is found: on a GPU, by an OpenCL driver, or by the host's loops.

    a GPU of NVIDIA's, or "auto" where there is one   backends/cuda/film
    an OpenCL device; a GPU of AMD's by its OpenCL    backends/opencl/film
    anything else, and "auto" without NVIDIA's GPU    `video/motion.py`

All find the same but for rounding; kernels add in whole numbers, so that a device gives the same
samples each time. "auto" leaves OpenCL devices alone, as what GPUs do so was not measured.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from functools import cache
from typing import Protocol

from tilewright import settings
from tilewright.arrays.array import NDArray
from tilewright.backends.cuda.film.plan import Plan
from tilewright.backends.cuda.machine import driver, nvrtc
from tilewright.facts.device import Device
from tilewright.inputs.devices import devices_of, gpu, host, resolve
from tilewright.planning.film import Sizes
from tilewright.video import motion
from tilewright.video.fusion import fusion
from tilewright.video.look import Frame, Look
from tilewright.wording import short

_MAKERS = (("advanced micro", "amd"), ("nvidia",))  # words of OpenCL's names for vendors


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
    """The device that `device=` means: "auto" is TILEWRIGHT_DEVICE, else NVIDIA's GPU, else the
    host.

    For a GPU of AMD's that torch has, the same by OpenCL; the host, which a warning says, where it
    has no such driver.
    """
    if wanted != "auto" or settings.device():
        found = resolve(None if wanted == "auto" else wanted)
    else:
        return gpu(0) if driver.found() and nvrtc.is_cuda(0) else host()
    if found.backend == "cuda" and not nvrtc.is_cuda(driver.ordinal_of(found)):
        return _by_opencl(found) or _left_to_host(found)
    return found


def _by_opencl(found: Device) -> Device | None:
    """A GPU of torch's as OpenCL has it: of those of its kind the one of its number."""
    chip, words = found.version.partition(":")[0], _MAKERS[found.vendor.startswith("NVIDIA")]
    made = [one for one in devices_of("opencl") if one.kind == "gpu"]
    made = [one for one in made if any(word in one.vendor.lower() for word in words)]
    same = [one for one in made if one.name.partition(":")[0] == chip] or made
    twins = [one for one in driver.found() if one.version.partition(":")[0] == chip]
    place = twins.index(found) if len(same) == len(twins) and found in twins else 0
    return same[place] if same else None


@cache
def _left_to_host(found: Device) -> Device:
    why = nvrtc.missing() or "torch has it by ROCm"
    warnings.warn(
        f"device={short(found.id)}: motion between pictures is found on the host; {found.name} has"
        f" no OpenCL driver here, and CUDA's kernels do not run on it ({why})",
        stacklevel=3,
    )
    return host()


def engine_on(device: Device, look: Look, net: str = "none") -> Engine:
    """Memory for pictures of one look, on what `place_of` gave; on the host with a network too.

    Raises DeviceError, DeviceMemoryError or BuildError where a device does not do it.
    """
    if device.backend != "host":
        return _Elsewhere(device, look)
    return motion.Motion(look, fusion(net, look))


def sizes_of(look: Look) -> Sizes:
    """Sizes of pictures and of their motion, as the host has them."""
    sizes = motion.sizes_of(look)
    return Sizes(tuple(look.shapes), look.bits, tuple(sizes), motion.finest_of(look, sizes))


class _Kernels(Protocol):
    """What both back ends' `FilmMotion` are."""

    def given(self, first: Sequence[NDArray], second: Sequence[NDArray]) -> None: ...
    def repeats(self) -> bool: ...
    def found(self) -> None: ...
    def between(self, share: float, out: Sequence[NDArray]) -> float: ...


def _kernels_on(device: Device, sizes: Sizes) -> _Kernels:
    if device.backend == "opencl":
        from tilewright.backends.opencl.film.engine import FilmMotion as OnOpenCL

        return OnOpenCL(sizes, device, motion.SAME, motion.UNSURE)
    from tilewright.backends.cuda.film.engine import FilmMotion

    plan = Plan(sizes.shapes, sizes.bits, sizes.sizes, sizes.finest)
    return FilmMotion(plan, driver.ordinal_of(device), motion.SAME, motion.UNSURE)


class _Elsewhere:
    """The host's calls, for kernels of a back end."""

    def __init__(self, device: Device, look: Look) -> None:
        self._engine = _kernels_on(device, sizes_of(look))

    def given(self, first: Frame, second: Frame) -> None:
        self._engine.given(first.planes, second.planes)

    def repeats(self) -> bool:
        return self._engine.repeats()

    def found(self) -> None:
        self._engine.found()

    def between(self, share: float, out: Sequence[NDArray]) -> float:
        return self._engine.between(share, out)
