"""Runs the kernels of sizes on the device in Triton's interpreter, on the host.

What test_triton_ragged.py starts in a process of its own:

    TRITON_INTERPRET=1 python tests/ragged_proof.py
"""

from __future__ import annotations

import sys
from itertools import pairwise
from typing import Any

import pytest
import torch

from tilewright.backends.cuda import faults, ragged
from tilewright.backends.cuda.launcher import INTERPRETED
from tilewright.errors import ShapeError

SIZES = [[3, 0, 70, 1, 5], [0, 0, 0], [130], [64, 64, 1], [0, 257, 0], [1] * 300]
# Offsets that cannot be, and the first group that is wrong.
WRONG = [
    ([3, 2, 5], 1),
    ([3, 4, 11], 2),
    ([-1, 4, 5], 0),
    ([-3, 4, 5, 6], 0),
    ([2, 4, 3, 6], 1),
    ([1, 2, 3, 99], 2),
    ([2**33, 4, 5], 0),
]
TOLERANCE = {torch.float64: 1e-12, torch.float32: 4e-5, torch.float16: 0.03}


def reference(x: Any, w: Any, bias: Any, ends: list[int], first: int) -> Any:
    """Rows of the groups; NaN where no group has them."""
    wanted = torch.full((x.shape[0], w.shape[2]), float("nan"), dtype=torch.float64)
    for group, end in enumerate(ends):
        wanted[first:end] = x[first:end].double() @ w[group].double() + bias[group].double()
        first = end
    return wanted


def check_rows(sizes: list[int], dtype: Any, *, leading: bool, clear: bool) -> None:
    first = 2 if leading else 0
    ends = [first + sum(sizes[: at + 1]) for at in range(len(sizes))]
    x = torch.randn(ends[-1] + 5, 37, dtype=torch.float64).to(dtype)
    w = torch.randn(len(sizes), 45, 37, dtype=torch.float64).to(dtype).transpose(1, 2)
    bias = torch.randn(len(sizes), 45, dtype=torch.float64).to(dtype)
    offsets = torch.tensor([first, *ends] if leading else ends, dtype=torch.int32)
    out = torch.full((x.shape[0], 45), float("nan"), dtype=dtype)
    ragged.rows(x, w, offsets, bias, out, "ieee", clear=clear)
    wanted = reference(x, w, bias, ends, first)
    if clear:
        wanted = wanted.nan_to_num(0.0)
    torch.testing.assert_close(
        out.double(), wanted, rtol=0, atol=TOLERANCE[dtype], equal_nan=not clear
    )


def check_depths(sizes: list[int], dtype: Any, m: int = 41) -> None:
    ends = torch.tensor(sizes).cumsum(0)
    x = torch.randn(int(ends[-1]) + 5, m, dtype=torch.float64).to(dtype).t()
    y = torch.randn(x.shape[1], 73, dtype=torch.float64).to(dtype)
    out = torch.full((len(sizes), m, 73), float("nan"), dtype=dtype)
    ragged.depths(x, y, ends, out, "ieee")
    begins = [0, *ends.tolist()]
    pairs = zip(begins, ends.tolist(), strict=False)
    wanted = torch.stack([x[:, b:e].double() @ y[b:e].double() for b, e in pairs])
    torch.testing.assert_close(out.double(), wanted, rtol=0, atol=TOLERANCE[dtype])


def check_plan(offsets: list[int], leading: int) -> None:
    """Entries of all groups for the Hopper kernel: those of most rows first; wrong ones empty."""
    from tilewright.backends.cuda.kernels import ragged as kernels

    groups, rows = len(offsets) - leading, 1000
    pairs = list(pairwise(offsets if leading else [0, *offsets]))
    right = [0 <= begin <= end <= rows for begin, end in pairs]
    wanted = [[group, *(pairs[group] if right[group] else (0, 0))] for group in range(groups)]
    wanted.sort(key=lambda entry: entry[1] - entry[2])  # stable
    table = torch.full((1 + groups, 4), -1, dtype=torch.int32)
    flag = faults.flag(INTERPRETED)
    kernels.plan_depths[(groups,)](
        torch.tensor(offsets), table, flag, groups, rows, LEADING=leading, BLOCK=16
    )
    assert table[1:, :3].tolist() == wanted
    assert bool(flag.item()) is not all(right)
    flag.zero_()


def check_table(counts: list[int], *, rests_last: bool) -> None:
    """Entries of 32 rows at most, all of one group; shorter ones after all others if asked for."""
    from tilewright.backends.cuda.kernels import ragged as kernels

    bounds = [0, *torch.tensor(counts).cumsum(0).tolist()]
    wanted = [
        [group, row, min(row + 32, end)]
        for group, (begin, end) in enumerate(pairwise(bounds))
        for row in range(begin, end, 32)
    ]
    if rests_last:
        wanted.sort(key=lambda entry: entry[2] - entry[1] < 32)  # stable
    table = torch.full((1 + len(wanted) + 1, 4), -1, dtype=torch.int32)
    kernels.plan_rows[(len(counts),)](
        torch.tensor(bounds[1:]),
        table,
        faults.flag(INTERPRETED),
        table,
        len(counts),
        bounds[-1],
        *(0, 0, 0),
        LEADING=0,
        TILE_M=32,
        RESTS_LAST=rests_last,
        BLOCK=16,
        CLEARED=64,
    )
    assert table[0].tolist() == [len(wanted), 0, 0, 0]
    assert table[1:-1, :3].tolist() == wanted
    assert bool((table[-1] == -1).all())


def check_wrong(offsets: list[int], group: int, *, clear: bool) -> None:
    """Groups before the wrong one are computed; it is named; nothing after is written but zeros."""
    x, w = torch.ones(10, 3), torch.ones(3, 3, 4)
    guarded = torch.full((12, 4), float("nan"))
    out = guarded[1:-1]
    ragged.rows(x, w, torch.tensor(offsets), None, out, "ieee", clear=clear)
    leading = len(offsets) - 3
    first, last = (offsets[0] * leading, offsets[group - 1 + leading]) if group else (0, 0)
    assert bool((out[first:last] == 3).all())
    rest = torch.cat((out[:first], out[last:]))
    assert bool((rest == 0).all() if clear else rest.isnan().all())
    assert bool(guarded[[0, -1]].isnan().all())
    with pytest.raises(ShapeError, match=rf"group {group}\]"):
        faults.check(INTERPRETED)
    faults.check(INTERPRETED)


def main() -> None:
    torch.manual_seed(0)
    for dtype in TOLERANCE:
        few = SIZES if dtype is torch.float32 else SIZES[:4]
        for sizes in few:
            check_rows(sizes, dtype, leading=False, clear=True)
            check_rows(sizes, dtype, leading=True, clear=False)
            check_depths(sizes[:8], dtype)
            check_depths(sizes[:8], dtype, m=1)
        print(f"{dtype}: right", flush=True)
    for offsets, group in WRONG:
        for clear in (False, True):
            check_wrong(offsets, group, clear=clear)
    for leading in (0, 1):
        check_plan([3, 3, 90, 90, 91, 400, 1000], leading)
        check_plan([5, 2, 300, -1, 7, 1001, 1000], leading)
        check_plan([*range(0, 800, 20)], leading)
    for rests_last in (False, True):
        check_table([0, 33, 64, 1, 0, 100, 31, 32], rests_last=rests_last)
        check_table([40] * 50, rests_last=rests_last)
    print("plan of depths: longest first", flush=True)
    print("wrong offsets: named", flush=True)


if __name__ == "__main__":
    sys.exit(main())
