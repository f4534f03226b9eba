"""Runs the Triton engine in Triton's interpreter, on the host, over the case list.

What tests/backends/cuda/test_triton_interpreter.py starts in a process of its own:

    TRITON_INTERPRET=1 python -m tests.support.interpreter triton_proof
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from tests.support.cases import CASES, COMPLEX, Case, Operands, operands
from tests.support.checks import assert_rest_untouched, assert_right
from tests.support.made_up import H200
from tilewright import Device
from tilewright.arrays.addresses import Columns, row_major
from tilewright.backends.cuda import choose
from tilewright.backends.cuda.machine.triton_launch import INTERPRETED
from tilewright.backends.cuda.tiled.engine import TritonGrouped
from tilewright.backends.cuda.work import Work

CUDA_H200 = replace(
    H200,
    id="cuda:0",
    backend="cuda",
    version="sm_90",
    local_memory=227 * 1024,
    features=frozenset({"fp16", "fp64", "bf16", "tf32", "wgmma"}),
)


def work_of(given: Sequence[Operands], order: str = "auto") -> Work:
    """The batch of these cases as they lie in the host's memory."""

    def columns(arrays: Sequence[Any]) -> Columns:
        facts = [(x.__array_interface__["data"][0], *x.shape, *x.strides) for x in arrays]
        return Columns(*np.array(facts, np.int64).T)

    bias = [one.bias for one in given]
    addresses = [0 if x is None else x.__array_interface__["data"][0] for x in bias]
    one = np.ones(len(given), np.int64)
    c = columns([x.out for x in given])
    vectors = row_major(one, c.cols, np.array(addresses, np.int64), given[0].out.itemsize)
    return Work(
        ordinal=INTERPRETED,
        a=columns([x.a_matrix for x in given]),
        b=columns([x.b_matrix for x in given]),
        c=c,
        bias=vectors if any(addresses) else None,
        alpha=np.array([x.case.alpha for x in given]),
        beta=np.array([x.case.beta for x in given]),
        activation=given[0].case.activation or "none",
        dtype=given[0].case.dtype,
        order=order,
        keep=(given,),
    )


def run_batch(
    cases: Sequence[Case], device: Device = CUDA_H200, *, enough: float = 0.0
) -> list[Operands]:
    """These cases as one batch, through the engine; every result checked.

    `enough`: seconds within which any plan is good enough.
    """
    given = [operands(case, seed) for seed, case in enumerate(cases)]
    work = replace(work_of(given, "given" if enough else "auto"), enough=enough)
    live = np.flatnonzero((work.m > 0) & (work.n > 0))
    work = work.take(live)
    verdict = choose.judge(work, device, TritonGrouped.name)
    assert ("good enough" in verdict.best.reason) == bool(enough)
    with np.errstate(all="ignore"):
        choose.prepared(verdict.best, work).enqueue(0)
    for index, one in enumerate(given):
        try:
            assert_right(one.out, one)
            assert_rest_untouched(one)
        except AssertionError as error:
            raise AssertionError(f"problem {index}, {one.case}: {error}") from error
    return given


def batches() -> dict[str, list[Case]]:
    """The case list by dtype and activation, with sizes at the edges of small tiles."""
    plain = [case for case in CASES if not (case.lead_a or case.lead_b or case.accumulate)]
    # An interpreted program takes milliseconds: what needs hundreds of tiles is left to GPUs.
    plain = [case for case in plain if case.m * case.n * max(case.k, 16) < 300_000]
    for dtype in ("float16", "float32", "float64"):
        plain += [Case(15, 17, 16, dtype=dtype), Case(16, 33, 3, dtype=dtype, b="F")]
        plain += [Case(17, 15, 33, dtype=dtype, a="F", out="F"), Case(16, 32, 64, dtype=dtype)]
    found: dict[str, list[Case]] = {}
    for case in plain:
        found.setdefault(f"{case.dtype}-{case.activation or 'plain'}", []).append(case)
    for dtype in ("complex64", "complex128"):
        # Infinities: the four real products of a complex one have NaN where NumPy has one as well,
        # and where it has not, as C's own have.
        found[dtype] = [x for x in COMPLEX if x.dtype == dtype and x.special != np.inf]
        found[f"little-{dtype}"] = found[dtype]
    # Long products are cut along k and added up in the second phase, with every epilogue.
    found["cut"] = [Case(20, 18, 1500, alpha=0.5, beta=2.0, bias=True), Case(3, 40, 900, out="F")]
    found["cut-half"] = [Case(17, 5, 2000, dtype="float16"), Case(1, 1, 700, dtype="float16")]
    # Rows, columns and k of whole 16-byte vectors: the kernel that loads them.
    found["wide"] = [Case(32, 48, 40, dtype="float16"), Case(16, 64, 8, dtype="float16", a="F")]
    found["wide-single"] = [Case(32, 20, 24), Case(8, 36, 12, b="F")]
    # Little work, for which one shape is good enough, in one launch or in one for each layout.
    found["little"] = [
        case for case in found["float32-plain"] if case.m * case.n * max(case.k, 16) < 50_000
    ]
    found["little-wide"] = [*found["wide"], Case(15, 17, 16, dtype="float16", bias=True, beta=0.5)]
    return found


def main() -> None:
    for name, cases in batches().items():
        run_batch(cases, enough=float(name.startswith("little")))
        print(f"{name}: {len(cases)} products right", flush=True)
