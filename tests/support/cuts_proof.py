"""Runs the kernel that decides between two cuts of rows in Triton's interpreter, on the host.

What tests/backends/cuda/test_hopper_cuts.py starts in a process of its own:

    TRITON_INTERPRET=1 python -m tests.support.interpreter cuts_proof
"""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tests.backends.cuda.test_hopper_cuts import SIZES, UNITS, device_takes
from tilewright.backends.cuda.machine import faults
from tilewright.backends.cuda.machine.triton_launch import INTERPRETED
from tilewright.backends.cuda.ragged import hopper_cuts, hopper_rows, plan
from tilewright.errors import ShapeError


def check_either(
    bounds: list[int],
    n: int,
    faster: int,
    *,
    leading: bool = False,
    step: int = 1,
    last: bool = False,
    clear: bool = False,
    wrong: int | None = None,
    units: int = UNITS,
    kind: Any = torch.int64,
    device: str = "cpu",
) -> None:
    """One table is that of the faster cut alone, the other one empty, and rows of no group zero."""
    groups, rows = len(bounds) - 1, max(bounds) + 70
    offsets = torch.tensor(
        bounds if leading else bounds[1:], dtype=kind, device=device
    ).repeat_interleave(step)[::step]
    words = {"dtype": torch.int32, "device": device}
    tables = [torch.full((1 + rows // 16 + groups, 4), -1, **words) for _ in range(3)]
    out = torch.full((rows, n), float("nan"), dtype=torch.float16, device=device)
    how = (offsets, out, groups, clear, last, units)
    hopper_rows.planned(hopper_cuts.EITHER, *how).launch(0, offsets, tables[0], out, tables[1])
    computed = bounds[-1] if wrong is None else bounds[wrong]
    idle = torch.cat((out[: bounds[0]], out[computed:]))
    assert bool((idle == 0).all() if clear else idle.isnan().all())
    assert bool(out[bounds[0] : computed].isnan().all())
    hopper_rows.planned(faster, *how).launch(0, offsets, tables[2], out)
    assert bool((tables[faster] == tables[2]).all())
    assert tables[1 - faster][0].tolist() == [0, 0, 0, 0]
    assert bool((tables[1 - faster][1:] == -1).all())
    if wrong is None:
        faults.check(INTERPRETED if device == "cpu" else out.device.index)
        return
    with pytest.raises(ShapeError, match=rf"group {wrong}\]"):
        faults.check(INTERPRETED)


def ends_of(sizes: list[int], first: int = 0) -> list[int]:
    """Where groups of so many rows begin and end."""
    return [first, *(torch.tensor(sizes).cumsum(0) + first).tolist()]


def main() -> None:
    for sizes, n, faster in SIZES:
        check_either(ends_of(sizes), n, faster, kind=torch.int32)
    for sizes, n, units in (
        ([100] * 5, 3712, UNITS),
        ([64] * 8, 2048, 78),
        ([64] * 8, 2048, UNITS),
    ):
        check_either(ends_of(sizes), n, device_takes(sizes, n, units), units=units)
    for sizes, n, faster in SIZES[1:3]:
        without = [0, *sizes[:2], 0, 0, *sizes[2:], 0]
        check_either(ends_of(without), n, faster, last=True, step=3)
        check_either(ends_of(without, 5), n, faster, leading=True, clear=True)
    uneven, n, _ = SIZES[2]
    begun = ends_of(uneven)
    for wrong in (0, 2, 5):
        ends = [0, *begun[1 : wrong + 1], -1, *begun[wrong + 2 :]]
        faster = device_takes(uneven[:wrong], n) if wrong else 0
        check_either(ends, n, faster, wrong=wrong, clear=wrong == 2)
    check_either([0, 0, 0], n, 0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plan, "_BLOCK", 4)  # offsets that a program looks at together
        for sizes, n, faster in SIZES[1:3]:
            check_either(ends_of(sizes), n, faster)
    print("the faster cut's table, the other one empty")
