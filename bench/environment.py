"""What a result has to say of where it came from: device, driver, versions, commit, date."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from tilewright import Device
from tilewright.report import document

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "bench" / "results"
_PEERS = ("intel-opencl-rt", "mkl", "numba", "onnxruntime", "openvino", "scipy")


def environment(device: Device) -> dict[str, Any]:
    """Facts of this run as plain JSON types: a report's, and the versions of the peers."""
    facts = document.provenance(device)
    for package in _PEERS:
        try:
            facts["versions"][package] = version(package)
        except PackageNotFoundError:
            continue
    return facts
