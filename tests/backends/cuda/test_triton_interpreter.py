"""Every Triton kernel runs in Triton's interpreter, on the host, against the case list.

So do the calls for tensors, each in a process of its own.
"""

from __future__ import annotations

import pytest

from tests.support.interpreter import interpreted
from tests.support.triton_proof import batches


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


def test_programs_that_write_where_others_write_or_read_are_found() -> None:
    """The launches of every proof in the interpreter are watched for it."""
    assert "races: found" in interpreted("races_proof")
