"""What a result has to say of where it came from: device, driver, versions, commit, date."""

from __future__ import annotations

import datetime
import platform
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from tilewright import Device

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "bench" / "results"
_PACKAGES = ("tilewright", "numpy", "pyopencl", "torch", "intel-opencl-rt", "mkl")


def environment(device: Device) -> dict[str, Any]:
    """Facts of this run, as plain JSON types."""
    return {
        "date": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "commit": _commit(),
        "python": platform.python_version(),
        "versions": {name: found for name in _PACKAGES if (found := _version(name))},
        "device": device.as_dict(),
    }


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _commit() -> str:
    command = ["git", "-C", str(ROOT), "describe", "--always", "--dirty", "--abbrev=12"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
