"""Lists the devices there are, and finds the one that a call means."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

from tilewright import remember, settings
from tilewright.backends import backends
from tilewright.backends.cuda.machine import driver
from tilewright.engines.backend import Backend
from tilewright.errors import DeviceError
from tilewright.facts.device import Device
from tilewright.tuning import brief
from tilewright.tuning.peak import with_ceilings
from tilewright.wording import short

INSTALL_HINT = "pip install 'tilewright[cpu]'"


@cache
def devices() -> tuple[Device, ...]:
    """Every device of every back end, the best first and the host last.

    Finding OpenCL drivers loads them, which takes a moment the first time. Each carries the
    ceilings that were stored of it; nothing is measured here.
    """
    others = (name for name in backends() if name != "host")
    return (*(device for name in others for device in devices_of(name)), host())


@cache
def devices_of(name: str) -> tuple[Device, ...]:
    """Those of one back end: no library of another is loaded. Of a name that is none, none."""
    if name == "host":
        return (host(),)
    return tuple(map(with_ceilings, backends()[name].devices())) if name in backends() else ()


@cache
def host() -> Device:
    """The host: NumPy's BLAS, with what was stored of it."""
    found = with_ceilings(backends()["host"].devices()[0])
    return replace(found, brief=brief.stored(found))


def host_for(*, bits: bool = False) -> Device:
    """The host, what its engines' predictions go by measured now where nobody did (milliseconds).

    `bits`: the rate of one-bit products too.
    """
    before = host()
    found = brief.known(before, bits=bits)
    if found is not before:
        forget()
    return found


def gpu(ordinal: int) -> Device:
    """A GPU by torch's number, with the ceilings that were stored of it."""
    return _measured(driver.device_of(ordinal))


_measured = cache(with_ceilings)


def forget() -> None:
    """Look for devices anew at the next call: new ceilings were stored of one."""
    for known in (devices, devices_of, host, _named, _measured):
        known.cache_clear()


def backend_of(device: Device) -> Backend:
    """The back end that runs a device."""
    backend = backends().get(device.backend)
    if backend is None:
        raise DeviceError(f"device={short(device.id)}: no such device; {_choices()}")
    return backend


def resolve(wanted: Device | str | None) -> Device:
    """The device a call means: `device=`, else TILEWRIGHT_DEVICE, else the best one.

    Accepts a Device, "host", "opencl" (the best of them), "opencl:0" (by number) and
    "opencl:intel" (by a part of name, vendor or platform). Raises DeviceError for anything else.
    """
    if isinstance(wanted, Device):
        return wanted
    if wanted is None:
        return _named(settings.device() or "", "TILEWRIGHT_DEVICE")
    if not isinstance(wanted, str):
        raise DeviceError(f"device={short(wanted)}: accepted are a Device or a name; {_choices()}")
    return _named(wanted, "device")


def check_named() -> None:
    """Raise DeviceError where TILEWRIGHT_DEVICE names none; looks for no device otherwise."""
    if settings.device() is not None:
        resolve(None)


@cache
def _named(name: str, argument: str) -> Device:
    if not name:
        return _best()
    if name == "host":
        return host()
    backend, colon, which = name.partition(":")
    candidates = list(devices_of(backend))
    if which.isdecimal():
        candidates = [device for device in candidates if device.id == name]
    elif colon:
        candidates = _by_part(candidates, which.lower()) if which else []
    if not candidates:
        raise DeviceError(f"{argument}={short(name)}: no such device; {_choices()}")
    return candidates[0]


def _by_part(candidates: list[Device], part: str) -> list[Device]:
    """Devices whose platform, else vendor, else name holds `part`: "intel" means Intel's driver
    before it means another driver on an Intel processor."""
    for facts in ("platform", "vendor", "name"):
        found = [device for device in candidates if part in getattr(device, facts).lower()]
        if found:
            return found
    return []


def _best() -> Device:
    """The first device that takes the host's arrays; others, and what they load, are not asked."""
    takers = (name for name, one in backends().items() if one.takes_host_arrays)
    return next(
        device
        for name in sorted(takers, key="host".__eq__)
        for device in devices_of(name)
        if device.kind != "simulator"
        and (device.backend == "host" or backend_of(device).kernels(device))
    )


def _choices() -> str:
    names = ", ".join(f"{short(device.id)} ({device.name})" for device in devices())
    hint = "" if len(devices()) > 1 else f"; '{INSTALL_HINT}' adds an OpenCL device"
    return f"accepted are {names}{hint}"


remember.forgets(forget)
