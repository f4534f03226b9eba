"""Runs the kernels of sizes on the device in Triton's interpreter, on the host.

What tests/backends/cuda/test_triton_ragged.py starts in a process of its own:

    TRITON_INTERPRET=1 python -m tests.support.interpreter ragged_proof
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
import torch

from tilewright.backends.cuda.machine import faults
from tilewright.backends.cuda.machine.triton_launch import INTERPRETED
from tilewright.backends.cuda.ragged import engine, packed
from tilewright.backends.cuda.ragged import plan as ragged_plan
from tilewright.backends.cuda.ragged.work import LEFT, RIGHT, RaggedWork
from tilewright.errors import ShapeError
from tilewright.facts.gates import GATES
from tilewright.facts.limits import MOST

SIZES = [[3, 0, 70, 1, 5], [0, 0, 0], [130], [64, 64, 1], [0, 257, 0], [1, 0, 0] * 87]
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


def lying(offsets: Any, layout: str) -> Any:
    """The same offsets as they may lie: with others between them, or in a wide table's column."""
    if layout == "every second":
        return torch.stack((offsets, offsets - 77), 1).reshape(-1)[::2]
    if layout == "a column":
        return torch.stack((offsets + 9, offsets, -offsets), 1)[:, 1]
    if layout == "negated":
        return torch._neg_view(-offsets).resolve_neg()
    return offsets


LAYOUTS = ("dense", "every second", "a column", "negated")


def check_rows(
    sizes: list[int], dtype: Any, *, leading: bool, clear: bool, layout: str = "dense"
) -> None:
    first = 2 if leading else 0
    ends = [first + sum(sizes[: at + 1]) for at in range(len(sizes))]
    x = torch.randn(ends[-1] + 5, 37, dtype=torch.float64).to(dtype)
    w = torch.randn(len(sizes), 45, 37, dtype=torch.float64).to(dtype).transpose(1, 2)
    bias = torch.randn(len(sizes), 45, dtype=torch.float64).to(dtype)
    offsets = torch.tensor([first, *ends] if leading else ends, dtype=torch.int32)
    out = torch.full((x.shape[0], 45), float("nan"), dtype=dtype)
    engine.rows(x, w, lying(offsets, layout), bias, out, "ieee", clear=clear)
    wanted = reference(x, w, bias, ends, first)
    if clear:
        wanted = wanted.nan_to_num(0.0)
    torch.testing.assert_close(
        out.double(), wanted, rtol=0, atol=TOLERANCE[dtype], equal_nan=not clear
    )


def check_depths(sizes: list[int], dtype: Any, m: int = 41, layout: str = "dense") -> None:
    ends = torch.tensor(sizes).cumsum(0)
    x = torch.randn(int(ends[-1]) + 5, m, dtype=torch.float64).to(dtype).t()
    y = torch.randn(x.shape[1], 73, dtype=torch.float64).to(dtype)
    out = torch.full((len(sizes), m, 73), float("nan"), dtype=dtype)
    engine.depths(x, y, lying(ends, layout), out, "ieee")
    begins = [0, *ends.tolist()]
    pairs = zip(begins, ends.tolist(), strict=False)
    wanted = torch.stack([x[:, b:e].double() @ y[b:e].double() for b, e in pairs])
    torch.testing.assert_close(out.double(), wanted, rtol=0, atol=TOLERANCE[dtype])


def check_packing(lie: str, dtype: Any) -> None:
    """Copies of rows as the Hopper kernel reads them: in order, by index, of groups, turned."""
    x = torch.randn(50, 37, dtype=torch.float64).to(dtype)
    w = torch.randn(3, 37, 21, dtype=torch.float64).to(dtype)
    x, w = (one.mT.contiguous().mT if lie == "turned" else one for one in (x, w))
    index = torch.tensor([3, 49, 0, 50, -1, 7], dtype=torch.int32)
    for chosen in (None, index):
        work = RaggedWork(x, w, None, None, None, "ieee", index=chosen)
        left = packed._packed(work, packed._somewhere).left
        found = packed._packer(work, LEFT, left.x)(0, x, chosen)
        right = x if chosen is None else torch.stack([x[3], x[49], x[0], x[0] * 0, x[0] * 0, x[7]])
        assert torch.equal(found, right)
        assert found.stride() == (40, 1)
    found = packed._packer(work, RIGHT, left.w)(0, w, None)
    assert torch.equal(found[:, :37], w)
    assert not found[:, 37:].any()
    assert found.stride() == ((21 * 40, 1, 40) if lie == "turned" else (48 * 24, 24, 1))
    work = RaggedWork(x.t(), x, None, None, torch.empty(1, 37, 37), "ieee", index=index, chosen=1)
    left = packed._packed(work, packed._somewhere).left
    found = packed._packer(work, LEFT, left.x)(0, x.t(), index)
    assert torch.equal(found[:, [0, 1, 2, 5]], x.t()[:, [3, 49, 0, 7]])
    assert not found[:, 3:5].any()


def check_gate(kind: str) -> None:
    h = torch.randn(70, GATES[kind].width(37), dtype=torch.float64)
    out = torch.full((70, 37), float("nan"), dtype=torch.float64)
    work = RaggedWork(None, None, None, None, out, "ieee", gate=GATES[kind])
    packed._gated(work, h)(0, h, out)
    silu = torch.nn.functional.silu
    right = silu(h[:, :37]) * h[:, 37:] if kind == "swiglu" else h.relu() ** 2
    torch.testing.assert_close(out, right)


def check_plan(offsets: list[int], leading: int) -> None:
    """Entries of all groups for the Hopper kernel: those of most rows first; wrong ones empty."""
    from tilewright.backends.cuda.kernels.triton import ragged_plans as kernels

    groups, rows = len(offsets) - leading, 1000
    pairs = list(pairwise(offsets if leading else [0, *offsets]))
    right = [0 <= begin <= end <= rows for begin, end in pairs]
    wanted = [[group, *(pairs[group] if right[group] else (0, 0))] for group in range(groups)]
    wanted.sort(key=lambda entry: entry[1] - entry[2])  # stable
    table = torch.full((1 + groups, 4), -1, dtype=torch.int32)
    flag = faults.flag(INTERPRETED)
    kernels.plan_depths[(groups,)](
        torch.tensor(offsets), table, flag, rows, groups, 1, LEADING=leading, BLOCK=16
    )
    assert table[1:, :3].tolist() == wanted
    assert bool(flag.item()) is not all(right)
    flag.zero_()


def check_table(counts: list[int], *, rests_last: bool, step: int = 1) -> None:
    """Entries of 32 rows at most, all of one group; shorter ones after all others if asked for."""
    bounds = [0, *torch.tensor(counts).cumsum(0).tolist()]
    wanted = [
        [group, row, min(row + 32, end)]
        for group, (begin, end) in enumerate(pairwise(bounds))
        for row in range(begin, end, 32)
    ]
    if rests_last:
        wanted.sort(key=lambda entry: entry[2] - entry[1] < 32)  # stable
    table = torch.full((1 + len(wanted) + 1, 4), -1, dtype=torch.int32)
    out = torch.empty(bounds[-1], 0)
    offsets = torch.tensor(bounds[1:]).repeat_interleave(step)[::step]
    plan = ragged_plan.RowPlan(offsets, out, len(counts), 32, clear=False, rests_last=rests_last)
    plan.launch(0, offsets, table, out)
    assert table[0].tolist() == [len(wanted), 0, 0, 0]
    assert table[1:-1, :3].tolist() == wanted
    assert bool((table[-1] == -1).all())


def check_evenly(
    counts: list[int], height: int, unit: int, turns: int, *, long_first: bool
) -> None:
    """As few entries as `height` allows, in units, as long; long groups first if asked."""
    groups: list[tuple[int, list[list[int]]]] = []
    begin = 0
    for group, rows in enumerate(counts):
        many, units = -(-rows // height), -(-rows // unit)
        edges = [i * (units // many) + min(i, units % many) for i in range(many)]
        bounds = pairwise([*(unit * edge for edge in edges), rows])
        entries = [
            [group, begin + first, begin + end, i % turns | height_of(i, many, turns) << 16]
            for i, (first, end) in enumerate(bounds)
        ]
        groups.append((min(unit * -(-units // max(many, 1)), rows), entries))
        begin += rows
    if long_first:
        groups.sort(key=lambda one: -one[0])  # stable
    wanted = [entry for _, entries in groups for entry in entries]
    table = torch.full((1 + len(wanted) + 1, 4), -1, dtype=torch.int32)
    out, given = torch.empty(begin, 0), torch.tensor(counts).cumsum(0)
    order = {"rests_last": False, "long_first": long_first}
    how = {"clear": False, **order, "unit": unit, "turns": turns}
    ragged_plan.RowPlan(given, out, len(counts), height, **how).launch(0, given, table, out)
    assert table[0].tolist() == [len(wanted), 0, 0, 0]
    assert table[1:-1].tolist() == wanted
    assert bool((table[-1] == -1).all())


def height_of(entry: int, many: int, turns: int) -> int:
    """How many entries of a group take turns with this one."""
    return min(many - (entry - entry % turns), turns)


def check_far_ends() -> None:
    """Groups that end at the last row there may be: no sum goes past 2^31."""
    last, height = MOST, 2**26
    for offsets in ([last], [last - 300, last], [5, 2**30 + 7, last - 1, last]):
        wanted = [
            [group, row, min(row + height, end)]
            for group, (begin, end) in enumerate(pairwise([0, *offsets]))
            for row in range(begin, end, height)
        ]
        table = torch.full((1 + len(wanted) + 1, 4), -1, dtype=torch.int32)
        for rests_last in (False, True):
            ordered = sorted(wanted, key=lambda one: rests_last and one[2] - one[1] < height)
            out, given = torch.empty(1, 0).expand(last, 0), torch.tensor(offsets)
            plan = ragged_plan.RowPlan(
                given, out, len(offsets), height, clear=False, rests_last=rests_last
            )
            plan.launch(0, given, table, out)
            assert table[1:-1, :3].tolist() == ordered
            assert bool((table[-1] == -1).all())


def check_many_depths(offsets: list[int], leading: int) -> None:
    """Every group once, those of more than four times the mean first; wrong ones empty and told."""
    groups, rows = len(offsets) - leading, 1000
    pairs = list(pairwise(offsets if leading else [0, *offsets]))
    right = [0 <= begin <= end <= rows for begin, end in pairs]
    wanted = [[group, *(pairs[group] if right[group] else (0, 0))] for group in range(groups)]
    long = 4 * (rows // groups)
    wanted.sort(key=lambda entry: entry[2] - entry[1] <= long)  # stable
    table, given = torch.full((1 + groups, 4), -1, dtype=torch.int32), torch.tensor(offsets)
    ragged_plan.DepthPlan(table, given, groups).launch(0, given, table, rows)
    assert table[1:, :3].tolist() == wanted
    flag = faults.flag(INTERPRETED)
    assert bool(flag.item()) is not all(right)
    flag.zero_()


def check_long_sums() -> None:
    """fp32 of a long k: as near as sums in blocks are, where one chain would be ten times off."""
    for k in (2000, 4100):
        x, w = torch.full((2, k), 0.1), torch.full((1, k, 3), 0.3)
        ends, out = torch.tensor([2]), torch.empty(2, 3)
        engine.rows(x, w, ends, None, out, "ieee", clear=False)
        wanted = x[0, 0].double() * w[0, 0, 0].double() * k
        assert bool(((out.double() / wanted - 1).abs() < 4e-6).all())
        for m in (1, 2):
            y = torch.full((k, 3), 0.3)
            deep = torch.empty(1, m, 3)
            engine.depths(torch.full((m, k), 0.1), y, torch.tensor([k]), deep, "ieee")
            assert bool(((deep.double() / wanted - 1).abs() < 4e-6).all())


def few_and_many(check: Any, *given: Any, **more: Any) -> None:
    """Planned in one launch, and as if the groups were too many for that, 16 to a block."""
    check(*given, **more)
    usual = ragged_plan._MANY, ragged_plan._COUNTED
    ragged_plan._MANY, ragged_plan._COUNTED = 0, 16
    try:
        check(*given, **more)
    finally:
        ragged_plan._MANY, ragged_plan._COUNTED = usual


def check_wrong(offsets: list[int], group: int, *, clear: bool) -> None:
    """Groups before the wrong one are computed; it is named; nothing after is written but zeros."""
    x, w = torch.ones(10, 3), torch.ones(3, 3, 4)
    guarded = torch.full((12, 4), float("nan"))
    out = guarded[1:-1]
    engine.rows(x, w, torch.tensor(offsets), None, out, "ieee", clear=clear)
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
            if dtype is torch.float64 and sizes is not SIZES[2]:
                few_and_many(check_rows, sizes, dtype, leading=True, clear=False)
            elif len(sizes) < 256:
                check_rows(sizes, dtype, leading=True, clear=False)
            check_depths(sizes[:8], dtype)
            check_depths(sizes[:8], dtype, m=1)
        print(f"{dtype}: right", flush=True)
    for layout in LAYOUTS[1:]:
        leading = layout == "a column"
        few_and_many(
            check_rows, SIZES[0], torch.float32, leading=leading, clear=True, layout=layout
        )
        for m in (1, 41):
            check_depths(SIZES[0], torch.float32, m, layout)
    print("offsets with a step: right", flush=True)
    for offsets, group in WRONG:
        for clear in (False, True):
            few_and_many(check_wrong, offsets, group, clear=clear)
    for leading in (0, 1):
        for offsets in (
            [3, 3, 90, 90, 91, 400, 1000],
            [5, 2, 300, -1, 7, 1001, 1000],
            [*range(0, 800, 20)],
        ):
            check_plan(offsets, leading)
            few_and_many(
                lambda *given: ragged_plan._MANY or check_many_depths(*given), offsets, leading
            )
    for rests_last in (False, True):
        for step in (1, 3):
            counts = [0, 33, 64, 1, 0, 100, 31, 32]
            few_and_many(check_table, counts, rests_last=rests_last, step=step)
            few_and_many(check_table, [40] * 35, rests_last=rests_last, step=step)
    for cut in ((160, 16, 4), (256, 256, 8), (32, 16, 1)):
        for long_first in (False, True):
            counts = [0, 272, 5, 1000, 0, 144, 145, 289, 16]
            check_evenly(counts, *cut, long_first=long_first)
    few_and_many(check_far_ends)
    check_long_sums()
    for lie in ("dense", "turned"):
        check_packing(lie, torch.float16)
    for kind in ("swiglu", "relu2"):
        check_gate(kind)
    print("packed rows and gates: right", flush=True)
    print("plan of depths: longest first", flush=True)
    print("wrong offsets: named", flush=True)
