"""What is there, whether it multiplies rightly and how fast: the questions of `tilewright doctor`.

Each device is asked in a process of its own (doctored.py), as a driver that is broken may end the
process or never answer; the others are asked all the same. doctor.schema.json says what the JSON
holds, so that figures of machines that nobody here has can be compared.
"""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from tilewright import settings
from tilewright.facts.device import Device
from tilewright.report.document import provenance

SCHEMA = "tilewright-doctor/1"
SCHEMA_FILE = Path(__file__).with_suffix(".schema.json")
SECONDS = 120.0  # for all devices together
_LEAST = 5.0  # for one
_MORE = 30.0  # for a first compile
_GRACE = 5.0  # for a process that was killed to end
_WORKER = ("-m", "tilewright.report.doctored")

# What a package is for, and the line that brings it.
PACKAGES = (
    ("pyopencl", "OpenCL devices", "opencl"),
    ("torch", "CUDA and ROCm, gradients", "cuda"),
    ("triton", "kernels of GPUs", "cuda"),
    ("numba", "one-bit products and networks on the processor", "onebit"),
    ("onnx", "networks from ONNX files", "onebit"),
    ("array_api_compat", "networks of any layers", "nn"),
    ("av", "films", "video"),
    ("PIL", "pictures", "video"),
    ("jinja2", "pages about films", "report"),
    ("distributed", "batches and films on several machines", "workers"),
    ("scipy", "Matrix Market files", "files"),
    ("matplotlib", "pictures of measurements", "plot"),
)
_DISTRIBUTIONS = {"PIL": "pillow", "array_api_compat": "array-api-compat"}


@dataclass(frozen=True)
class Package:
    """A library that is used where it is installed; `version` is empty where it is not."""

    name: str
    purpose: str
    version: str
    mend: str


@dataclass(frozen=True)
class Timing:
    """A call beside what a user would run instead, milliseconds, medians, in turns."""

    name: str
    ours_ms: float
    peer: str
    peer_ms: float

    @property
    def ratio(self) -> float:
        """How many times as fast as the peer."""
        return self.peer_ms / self.ours_ms


@dataclass(frozen=True)
class Examined:
    """What a device's process answered; `failure` says why it answered no further."""

    device: Device
    right: int = 0
    kernels: int = 0  # that were right at least once
    wrong: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()
    timings: tuple[Timing, ...] = ()
    failure: str = ""

    @property
    def is_well(self) -> bool:
        """Whether a case came out right on the device itself, and none wrong."""
        return self.right > 0 and not (self.wrong or self.failure or self.idle)

    @property
    def idle(self) -> str:
        """Why no kernel of the device ran, where another device answered for it; mostly empty."""
        forced = [why for why in self.refused if not why.startswith(("chosen", "bound", "one bit"))]
        return forced[0] if forced and self.kernels == 0 else ""


@dataclass(frozen=True)
class Report:
    """A whole machine."""

    packages: tuple[Package, ...]
    devices: tuple[Examined, ...]
    advice: tuple[str, ...]
    seconds: float


def packages() -> tuple[Package, ...]:
    """Every library that Tilewright uses where it is, with the line that brings it."""
    return tuple(_package(*row) for row in PACKAGES)


def _package(module: str, purpose: str, extra: str) -> Package:
    mend = f"pip install 'tilewright[{extra}]'"
    name = _DISTRIBUTIONS.get(module, module)
    if importlib.util.find_spec(module) is None:
        return Package(name, purpose, "", mend)
    try:
        return Package(name, purpose, version(name), "")
    except PackageNotFoundError:  # a copy without records
        return Package(name, purpose, "unknown", "")


def examine(
    devices: Sequence[Device],
    seconds: float = SECONDS,
    begun: Callable[[Device], object] = lambda device: None,
) -> Iterator[Examined]:
    """Each device in turn, in a process of its own, within `seconds` for all of them."""
    end = time.monotonic() + seconds
    for index, device in enumerate(devices):
        begun(device)
        share = max(_LEAST, (end - time.monotonic()) / (len(devices) - index))
        yield _examined(device, share)


def _examined(device: Device, seconds: float) -> Examined:
    """A device's answers, one JSON object a line, as far as they came."""
    command = [sys.executable, *_WORKER, device.id, f"{seconds:.1f}"]
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=settings.for_children(),
    )
    failure = ""
    limit = 2.0 * seconds + _MORE  # what begins in its time may take as long again: a first compile
    try:
        text, complaint = process.communicate(timeout=limit)
    except subprocess.TimeoutExpired:
        text, complaint = _killed(process), ""
        failure = f"no answer within {limit:.0f} s"
    except BaseException:  # Ctrl-C
        process.kill()
        raise
    if not failure and process.returncode:
        said = complaint.strip().splitlines()
        last = f": {said[-1]}" if said and process.returncode > 0 else ""
        failure = f"its process ended with status {process.returncode}{last}"
    return _told(device, text, failure)


def _killed(process: subprocess.Popen[str]) -> str:
    """What a process that is ended had printed.

    One that waits within a driver cannot be ended, and a child of it may hold what it prints into.
    """
    process.kill()
    try:
        return process.communicate(timeout=_GRACE)[0]
    except subprocess.TimeoutExpired as error:
        text = error.stdout or b""
        return text.decode(errors="replace") if isinstance(text, bytes) else str(text)


def _told(device: Device, text: str, failure: str) -> Examined:
    right = kernels = 0
    wrong, refused, timings = list[str](), list[str](), list[Timing]()
    for line in text.splitlines():
        try:
            found = json.loads(line)
        except json.JSONDecodeError:  # cut off, or a driver's own words
            continue
        if not isinstance(found, dict):
            continue
        right += found.get("right", 0)
        kernels += found.get("kernel") is not None and found.get("right", 0) > 0
        wrong += found.get("wrong", ())
        refused += found.get("refused", ())
        timings += [Timing(**one) for one in found.get("timings", ())]
    return Examined(device, right, kernels, tuple(wrong), tuple(refused), tuple(timings), failure)


def advice(found: Sequence[Package], examined: Sequence[Examined]) -> tuple[str, ...]:
    """What is missing or ill, a line each, with the line that mends it."""
    lines = []
    if not any(one.device.backend != "host" for one in examined):
        lines.append("no device but the host: pip install 'tilewright[cpu]', or a GPU's driver")
    for one in examined:
        if one.idle:
            lines.append(f"{one.device.id}: no kernel of its own ran: {one.idle}")
        if one.failure or one.wrong:
            what = one.failure or f"{len(one.wrong)} wrong results, first {one.wrong[0]}"
            lines.append(f"{one.device.id}: {what}: a newer driver, or TILEWRIGHT_DEVICE=host")
    missing: dict[str, list[str]] = {}
    for package in found:
        if not package.version:
            missing.setdefault(package.mend, []).append(f"{package.name} ({package.purpose})")
    lines += [f"{', '.join(names)}: {mend}" for mend, names in missing.items()]
    return tuple(lines)


def document(report: Report) -> dict[str, Any]:
    """The report in plain JSON types, as doctor.schema.json has it."""
    told = provenance(report.devices[-1].device)
    told.pop("device")
    return {
        "schema": SCHEMA,
        **told,
        "seconds": round(report.seconds, 1),
        "packages": [asdict(package) for package in report.packages],
        "devices": [
            {
                "device": one.device.as_dict(),
                "is_well": one.is_well,
                "right": one.right,
                "kernels": one.kernels,
                "wrong": list(one.wrong),
                "refused": list(one.refused),
                "failure": one.failure,
                "timings": [asdict(timing) for timing in one.timings],
            }
            for one in report.devices
        ],
        "advice": list(report.advice),
    }
