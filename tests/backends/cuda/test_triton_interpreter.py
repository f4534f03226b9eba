"""Every Triton kernel runs in Triton's interpreter, on the host, against the case list.

So do the calls for tensors. The interpreter is chosen when Triton is first imported, so each gets a
process of its own.
"""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.support import paths
from tests.support.triton_proof import batches

ROOT = Path(__file__).parents[3]


def interpreted(script: str) -> str:
    """What a script of tests/support prints with Triton interpreted; it must end well."""
    for package in ("torch", "triton"):
        if find_spec(package) is None:
            pytest.skip(f"{package} is not installed: pip install 'tilewright[cuda]'")
    environment = {
        **os.environ,
        "TRITON_INTERPRET": "1",
        "PYTHONPATH": paths.first(ROOT),
    }
    command = [sys.executable, "-m", f"tests.support.{script}"]
    ran = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=600)
    assert ran.returncode == 0, ran.stderr[-3000:]
    return ran.stdout


@pytest.fixture(scope="module")
def report() -> str:
    return interpreted("triton_proof")


@pytest.mark.parametrize("batch", batches())
def test_every_case_is_right_in_the_interpreter(batch: str, report: str) -> None:
    assert f"{batch}: {len(batches()[batch])} products right" in report


PROOFS = (
    *("dense_products", "grouped_products", "sums_of_products", "lazy_lists_and_writes"),
    *("results_of_many_shapes", "refusals"),
)


def test_calls_for_tensors_are_right_and_bad_ones_refused() -> None:
    said = interpreted("tensors_proof")
    for proof in PROOFS:
        assert f"{proof}: right" in said
