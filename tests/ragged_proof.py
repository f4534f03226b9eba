"""Runs the kernels of sizes on the device in Triton's interpreter, on the host.

What test_triton_ragged.py starts in a process of its own:

    TRITON_INTERPRET=1 python tests/ragged_proof.py
"""

from __future__ import annotations

import sys
from typing import Any

import pytest
import torch

from tilewright.backends.cuda import faults, ragged
from tilewright.backends.cuda.launcher import INTERPRETED
from tilewright.errors import ShapeError

SIZES = [[3, 0, 70, 1, 5], [0, 0, 0], [130], [64, 64, 1], [0, 257, 0], [1] * 300]
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


def check_depths(sizes: list[int], dtype: Any) -> None:
    ends = torch.tensor(sizes).cumsum(0)
    x = torch.randn(int(ends[-1]) + 5, 41, dtype=torch.float64).to(dtype).t()
    y = torch.randn(x.shape[1], 33, dtype=torch.float64).to(dtype)
    out = torch.full((len(sizes), 41, 33), float("nan"), dtype=dtype)
    ragged.depths(x, y, ends, out, "ieee")
    begins = [0, *ends.tolist()]
    pairs = zip(begins, ends.tolist(), strict=False)
    wanted = torch.stack([x[:, b:e].double() @ y[b:e].double() for b, e in pairs])
    torch.testing.assert_close(out.double(), wanted, rtol=0, atol=TOLERANCE[dtype])


def check_wrong(offsets: list[int], group: int) -> None:
    """Groups before the wrong one are computed; it is named; nothing after is written."""
    x, w = torch.ones(10, 3), torch.ones(3, 3, 4)
    out = torch.full((10, 4), float("nan"))
    ragged.rows(x, w, torch.tensor(offsets), None, out, "ieee", clear=False)
    good = max(offsets[group - 1], 0) if group else 0
    assert bool((out[:good] == 3).all())
    assert bool(out[good:].isnan().all())
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
        print(f"{dtype}: right", flush=True)
    for offsets, group in (([3, 2, 5], 1), ([3, 4, 11], 2), ([-1, 4, 5], 0)):
        check_wrong(offsets, group)
    print("wrong offsets: named", flush=True)


if __name__ == "__main__":
    sys.exit(main())
